package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
)

// Bound is an area within which an owner's rules have to stay: hosts and paths, said as rules say them. Several of one
// owner add up. In a variable or flag its members are name=value, separated by blanks, and lists of values by +.
type Bound struct {
	Owner    string    `yaml:"owner"` // of rules
	Method   oneOrMore `yaml:"method"`
	Host     oneOrMore `yaml:"host"`
	Path     oneOrMore `yaml:"path"`
	PathAs   string    `yaml:"path_as"`
	PathCase string    `yaml:"path_case"`
	Route    oneOrMore `yaml:"route"`
}

// oneOrMore is a text, or a list of texts.
type oneOrMore struct{ Texts []string }

var (
	_ fmt.Stringer             = Bound{}
	_ encoding.TextUnmarshaler = (*Bound)(nil)
	_ fmt.Stringer             = oneOrMore{}
	_ encoding.TextUnmarshaler = (*oneOrMore)(nil)
	_ listSetter               = (*oneOrMore)(nil)
)

// String writes o as UnmarshalText reads it.
func (o oneOrMore) String() string { return strings.Join(o.Texts, "+") }

// UnmarshalText reads a single text, as a file has it.
func (o *oneOrMore) UnmarshalText(b []byte) error {
	o.Texts = []string{string(b)}
	return nil
}

// SetList takes the elements of a list.
func (o *oneOrMore) SetList(parts []string) error {
	if len(parts) == 0 {
		return errors.New("got an empty list; allowed: at least one, or no such member")
	}
	o.Texts = parts
	return nil
}

// String writes b as UnmarshalText reads it.
func (b Bound) String() string {
	text := "owner=" + b.Owner
	for _, m := range []struct{ name, value string }{
		{"method", b.Method.String()}, {"host", b.Host.String()}, {"path", b.Path.String()},
		{"path_as", b.PathAs}, {"path_case", b.PathCase}, {"route", b.Route.String()},
	} {
		if m.value != "" {
			text += " " + m.name + "=" + m.value
		}
	}
	return text
}

// UnmarshalText reads what String writes.
func (b *Bound) UnmarshalText(text []byte) error {
	const allowed = "allowed: like owner=search host=api.example.com path=/v1/search/*+/v1/suggest"
	*b = Bound{}
	for part := range strings.FieldsSeq(string(text)) {
		name, value, _ := strings.Cut(part, "=")
		list := oneOrMore{strings.Split(value, "+")}
		switch name {
		case "owner":
			b.Owner = value
		case "method":
			b.Method = list
		case "host":
			b.Host = list
		case "path":
			b.Path = list
		case "path_as":
			b.PathAs = value
		case "path_case":
			b.PathCase = value
		case "route":
			b.Route = list
		default:
			return fmt.Errorf("got %q; %s", part, allowed)
		}
	}
	return nil
}

// area is what b names, as a rule's match. The error is rules.Problems, or of what is no area.
func (b *Bound) area() (rules.Match, error) {
	said := map[string]any{}
	for name, list := range map[string][]string{
		"method": b.Method.Texts, "host": b.Host.Texts, "path": b.Path.Texts, "route": b.Route.Texts,
	} {
		if len(list) > 0 {
			said[name] = list
		}
	}
	for name, value := range map[string]string{"path_as": b.PathAs, "path_case": b.PathCase} {
		if value != "" {
			said[name] = value
		}
	}
	if len(said) == 0 {
		return rules.Match{}, errors.New("host, path, method or route: an owner that may reach everything is not bound")
	}
	text, err := json.Marshal(said)
	if err != nil {
		return rules.Match{}, err
	}
	return rules.ParseReach(string(text))
}

// check reports what is not allowed in b; before are the bounds above it.
func (b *Bound) check(k *checks, path string, before []Bound) {
	if strings.TrimSpace(b.Owner) != b.Owner || b.Owner == "" {
		k.fail(path+".owner", fmt.Sprintf("%q", b.Owner), "an owner of rules, as their documents name it")
	}
	n := 1
	for i := range before {
		if before[i].Owner == b.Owner {
			n++
		}
	}
	if n == bounds.MostAreas+1 {
		k.fail(path, fmt.Sprintf("more than %d for owner %q", bounds.MostAreas, b.Owner),
			fmt.Sprintf("%d for one owner", bounds.MostAreas))
	}
	_, err := b.area()
	var wrong rules.Problems
	switch {
	case errors.As(err, &wrong):
		for i := range wrong {
			field, _, _ := strings.Cut(strings.TrimPrefix(wrong[i].Field, "block.match."), "[")
			allowed := wrong[i].Allowed
			if wrong[i].Hint != "" {
				allowed += "; " + wrong[i].Hint
			}
			k.fail(path+"."+field, wrong[i].Got, allowed)
		}
	case err != nil:
		k.fail(path, "an owner alone", err.Error())
	}
}

// RuleBounds is what the rules of each owner may reach; nil: nobody is bound.
func (c *Console) RuleBounds() bounds.Bounds {
	if len(c.Bounds) == 0 {
		return nil
	}
	out := bounds.Bounds{}
	for i := range c.Bounds {
		b := &c.Bounds[i]
		if area, err := b.area(); err == nil { // check has seen it
			out[b.Owner] = append(out[b.Owner], area)
		} else if out[b.Owner] == nil {
			out[b.Owner] = []rules.Match{}
		}
	}
	return out
}
