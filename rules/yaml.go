package rules

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/duration"
)

// YAML writes d as a rule document: every field with its value, defaults included, in the order of the reference. Parse
// reads it back into an Equal document, whatever the identity map's prefix lengths. Only a path that was stored before
// there was a normal form, and has another one, is refused there.
func (d *Document) YAML() string {
	n := d.normal()
	n.fillCounting()
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + ": " + value + "\n") }
	line("id", yamlText(n.ID))
	line("owner", yamlText(n.Owner))
	if len(n.Match.Methods) == 0 && n.Match.Path == "" {
		line("match", "{}")
	} else {
		b.WriteString("match:\n")
		if len(n.Match.Methods) > 0 {
			line("  method", yamlTexts(n.Match.Methods))
		}
		if n.Match.Path != "" {
			line("  path", yamlText(n.Match.Path))
			line("  path_as", string(cmp.Or(n.Match.PathAs, PathNormal)))
			line("  path_case", string(cmp.Or(n.Match.PathCase, PathCaseExact)))
		}
	}
	line("key", describeKey(n.Key))
	line("on_missing", string(n.Missing))
	line("limit", strconv.Itoa(n.Limit))
	line("window", duration.Format(n.Window))
	line("algorithm", string(n.Algorithm))
	line("count", n.Count.String())
	if n.Burst != 0 {
		line("burst", strconv.Itoa(n.Burst))
	}
	line("cooldown", duration.Format(n.Cooldown))
	line("lateness", duration.Format(n.Lateness))
	line("max_lag", duration.Format(n.MaxLag))
	if n.Block != nil {
		b.WriteString("block:\n")
		line("  key", describeKey(n.Block.Key))
		line("  ttl", duration.Format(n.Block.TTL))
		line("  extend", string(n.Block.Extend))
	}
	return b.String()
}

// yamlTexts writes a single text plainly and several as a list.
func yamlTexts(list []string) string {
	if len(list) == 1 {
		return yamlText(list[0])
	}
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = yamlText(s)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// yamlText writes s plainly where YAML surely reads the same text back, in quotes elsewhere. Go's quoted form is a
// double-quoted scalar of YAML: it uses only escapes that YAML has too. Braces are plain text inside a block mapping,
// where paths stand; method names, which may stand in a list, have none.
func yamlText(s string) string {
	if s == "" || !(s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z' || s[0] == '/') {
		return strconv.Quote(s)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/-_.{}*", c) >= 0) {
			return strconv.Quote(s)
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	return s
}

// flowText writes s as an element of a flow mapping, where more characters have a meaning: plainly only if it is a name.
func flowText(s string) string {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && i > 0 || (c == '.' || c == '_' || c == '-') && i > 0) {
			return strconv.Quote(s)
		}
	}
	return s
}
