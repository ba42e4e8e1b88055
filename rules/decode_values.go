package rules

import (
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// text reads n as a string.
func (d *decoder) text(field string, n *yaml.Node, allowed string) (string, bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Style&yaml.TaggedStyle == 0 {
		return n.Value, true
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		hint = "put it in quotes to make it text"
	}
	d.wrong(field, n, allowed, hint)
	return "", false
}

// integer reads n as a whole number in plain decimal digits; YAML's octal, hexadecimal and 1_000 are refused, since
// readers differ on them.
func (d *decoder) integer(field string, n *yaml.Node, allowed string) (int, bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Style&yaml.TaggedStyle == 0 {
		if v, err := strconv.Atoi(n.Value); err == nil && strconv.Itoa(v) == n.Value {
			return v, true
		}
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Style&yaml.TaggedStyle == 0 {
		if _, err := strconv.Atoi(n.Value); err == nil {
			hint = "leave the quotes out"
		}
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}

// duration reads n as ParseDuration does.
func (d *decoder) duration(field string, n *yaml.Node, allowed string) (time.Duration, bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Style&yaml.TaggedStyle == 0 {
		if v, err := ParseDuration(n.Value); err == nil {
			return v, true
		}
	}
	hint := ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" {
		hint = "add a unit: s, m, h or d"
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}

// describe says what a value is, for messages.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Kind != yaml.ScalarNode:
		return "a YAML reference"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + shortNumber(n.Value)
	case "!!bool":
		return "the truth value " + n.Value
	case "!!timestamp":
		return "the date " + n.Value
	}
	return quoteShort(n.Value)
}

func shortNumber(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%s… (%d digits)", s[:40], len(s))
	}
	return s
}
