package rules

import (
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
)

// text reads n as a string.
func (d *decoder) text(field string, n yamlnode.Node, allowed string) (string, bool) {
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		return n.Value(), true
	}
	hint := ""
	if n.IsScalar() && n.Kind() != yamlnode.Null {
		hint = "put it in quotes to make it text"
	}
	d.wrong(field, n, allowed, hint)
	return "", false
}

// integer reads n as a whole number in plain decimal digits; YAML's octal, hexadecimal and 1_000 are refused, since
// readers differ on them.
func (d *decoder) integer(field string, n yamlnode.Node, allowed string) (int, bool) {
	if n.Kind() == yamlnode.Integer && n.Tag() == "" {
		if v, err := strconv.Atoi(n.Value()); err == nil && strconv.Itoa(v) == n.Value() {
			return v, true
		}
	}
	hint := ""
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		if _, err := strconv.Atoi(n.Value()); err == nil {
			hint = "leave the quotes out"
		}
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}

// duration reads n as duration.ParseWhole does.
func (d *decoder) duration(field string, n yamlnode.Node, allowed string) (time.Duration, bool) {
	if n.Kind() == yamlnode.Text && n.Tag() == "" {
		if v, err := duration.ParseWhole(n.Value()); err == nil {
			return v, true
		}
	}
	hint := ""
	if n.Kind() == yamlnode.Integer {
		hint = "add a unit: s, m, h or d"
	}
	d.wrong(field, n, allowed, hint)
	return 0, false
}
