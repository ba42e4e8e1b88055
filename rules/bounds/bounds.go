// Package bounds says which requests the rules of an owner may reach, and which rules reach beyond that. It is pure:
// who is refused for it is console/acts' to decide.
package bounds

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules"
)

// MostAreas bounds the areas of one owner.
const MostAreas = 64

// Bounds are, by owner, the areas within which rules have to stay: together they are all that the owner's rules may
// reach. An owner that is not among them is not bound.
type Bounds map[string][]rules.Match

// Beyond is a rule that reaches, or may reach, requests outside of an owner's areas.
type Beyond struct {
	Rule    string
	Field   string        // match or block.match
	Reaches rules.Match   // of what Field says, what lies outside
	Owner   string        // who is bound
	Allowed []rules.Match // his areas
}

// Beyond tells what of a rule reaches beyond its owner's areas; nil: nothing does. What cannot be shown to lie within
// is beyond: a match without a host where hosts are bound, for one. What a match asks of answers and events only
// narrows it, and so does what it leaves out.
func (b Bounds) Beyond(d *rules.Document) *Beyond { return b.BeyondOf(d.Owner, d) }

// BeyondOf is Beyond for the areas of another owner than the rule's: of an allow list that the rule names, say.
func (b Bounds) BeyondOf(owner string, d *rules.Document) *Beyond {
	areas, bound := b[owner]
	if !bound {
		return nil
	}
	if m, ok := outside(areas, d.Match); ok {
		return &Beyond{Rule: d.ID, Field: "match", Reaches: m, Owner: owner, Allowed: areas}
	}
	if d.Block == nil || d.Block.Match == nil {
		return nil
	}
	if m, ok := outside(areas, *d.Block.Match); ok {
		return &Beyond{Rule: d.ID, Field: "block.match", Reaches: m, Owner: owner, Allowed: areas}
	}
	return nil
}

// outside finds a host and a path of m that no single area takes in.
func outside(areas []rules.Match, m rules.Match) (rules.Match, bool) {
	m.Statuses, m.When = nil, ""
	areas = areas[:min(len(areas), MostAreas)]
	rest := within(areas, func(a *rules.Match) bool {
		return rules.Match{Methods: a.Methods, Routes: a.Routes}.
			Includes(rules.Match{Methods: m.Methods, Routes: m.Routes})
	})
	hosts, paths := eachHost(m), eachPath(m)
	inPaths := make([]uint64, len(paths))
	for i := range paths {
		inPaths[i] = within(areas, func(a *rules.Match) bool { return pathsOf(*a).Includes(paths[i]) })
	}
	for _, host := range hosts {
		inHost := within(areas, func(a *rules.Match) bool {
			return rules.Match{Hosts: a.Hosts}.Includes(rules.Match{Hosts: host})
		})
		for i := range paths {
			if rest&inHost&inPaths[i] == 0 {
				one := paths[i]
				one.Methods, one.Routes, one.Hosts = m.Methods, m.Routes, host
				return one, true
			}
		}
	}
	return rules.Match{}, false
}

// within are the areas for which in holds, a bit each.
func within(areas []rules.Match, in func(a *rules.Match) bool) (set uint64) {
	for i := range areas {
		if in(&areas[i]) {
			set |= 1 << i
		}
	}
	return set
}

// eachHost are the hosts of m, each by itself; a single nil for one that names none.
func eachHost(m rules.Match) [][]string {
	if len(m.Hosts) == 0 {
		return [][]string{nil}
	}
	out := make([][]string, len(m.Hosts))
	for i := range m.Hosts {
		out[i] = m.Hosts[i : i+1 : i+1]
	}
	return out
}

// eachPath is what m says of paths, for each of its paths by itself.
func eachPath(m rules.Match) []rules.Match {
	m = pathsOf(m)
	if len(m.Paths) == 0 {
		return []rules.Match{m}
	}
	out := make([]rules.Match, len(m.Paths))
	for i := range m.Paths {
		out[i] = m
		out[i].Paths = m.Paths[i : i+1 : i+1]
	}
	return out
}

// pathsOf is m without what it says of anything but paths.
func pathsOf(m rules.Match) rules.Match {
	m.Methods, m.Hosts, m.Routes, m.Statuses, m.When = nil, nil, nil, nil, ""
	return m
}

// String says which rule, what it reaches, and what its owner is bound to.
func (b *Beyond) String() string {
	return fmt.Sprintf("%s of rule %s reaches %s; owner %q is bound to %s", b.Field, b.Rule, b.reaches(), b.Owner,
		b.allowed())
}

// Problem is b as a warning about a document.
func (b *Beyond) Problem() rules.Problem {
	return rules.Problem{Field: b.Field, Got: b.reaches() + ", beyond what owner " + strconv.Quote(b.Owner) +
		" is bound to", Allowed: b.allowed(),
		Hint: "an admin alone may apply and promote it: console.bounds of the configuration"}
}

// reaches is what lies outside, and what is not named where areas name it.
func (b *Beyond) reaches() string {
	text := b.Reaches.String()
	hosts, paths := true, true
	for i := range b.Allowed {
		hosts = hosts && len(b.Allowed[i].Hosts) > 0
		paths = paths && (b.Allowed[i].Path != "" || len(b.Allowed[i].Paths) > 0)
	}
	var missing []string
	if hosts && len(b.Reaches.Hosts) == 0 {
		missing = append(missing, "host")
	}
	if paths && b.Reaches.Path == "" && len(b.Reaches.Paths) == 0 {
		missing = append(missing, "path")
	}
	if len(missing) > 0 {
		text += " (every " + strings.Join(missing, " and ") + ", since it names none)"
	}
	return text
}

// shownAreas bounds the areas that a message lists.
const shownAreas = 5

func (b *Beyond) allowed() string {
	var texts []string
	for i := range b.Allowed[:min(len(b.Allowed), shownAreas)] {
		texts = append(texts, b.Allowed[i].String())
	}
	if more := len(b.Allowed) - shownAreas; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more areas", more))
	}
	return strings.Join(texts, "; or ")
}

// Warn is Beyond for who reads documents: rules.Environment.Bounded.
func (b Bounds) Warn(d *rules.Document) *rules.Problem {
	beyond := b.Beyond(d)
	if beyond == nil {
		return nil
	}
	p := beyond.Problem()
	return &p
}
