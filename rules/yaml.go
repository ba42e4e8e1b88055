package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic"
)

// YAML writes d as a rule document: every field with its value, defaults included, in the order of the reference. ParseFiles
// reads it back into an Equal document, whatever the identity map's prefix lengths. Only a path that was stored before
// there was a normal form, and has another one, is refused there.
//
// The text is written by hand, since it is stored beside the version: the YAML library spells characters beyond the basic
// plane, control and zero-width characters otherwise than strconv.Quote (`"/\U0001F600"` for `"/😀"`), and leaves plain what
// other readers take for no text. What must be quoted is decided here either way.
func (d *Document) YAML() string {
	n := d.normal()
	n.fillCounting()
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + ": " + value + "\n") }
	line("id", yamlText(n.ID))
	line("owner", yamlText(n.Owner))
	writeMatch(&b, "", &n.Match)
	line("key", describeKey(n.Key))
	line("on_missing", string(n.Missing))
	line("limit", strconv.Itoa(n.Limit))
	if len(n.Tiers) > 0 {
		line("tiers", describeTiers(n.Tiers))
	}
	if n.Near != 0 {
		line("near", describeNear(n.Near))
	}
	if n.Candidate != nil {
		line("candidate", "{limit: "+describeCandidate(n.Candidate)+"}")
	}
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
		if n.Block.Match != nil {
			writeMatch(&b, "  ", n.Block.Match)
		}
	}
	if len(n.Allow) > 0 {
		line("allow", "["+strings.Join(yamlEach(n.Allow), ", ")+"]")
	}
	if n.Promote != nil {
		line("promote", describePromote(n.Promote))
	}
	if n.Canary != nil {
		line("canary", describeCanary(n.Canary))
	}
	return b.String()
}

// writeMatch writes a match that stands in a section of this indent.
func writeMatch(b *strings.Builder, indent string, m *Match) {
	var members strings.Builder
	line := func(name, value string) { members.WriteString(indent + "  " + name + ": " + value + "\n") }
	lists := func(name string, of []string) {
		if len(of) > 0 {
			line(name, yamlTexts(of))
		}
	}
	lists("method", m.Methods)
	lists("path", m.paths())
	lists("except", m.Except)
	if len(m.paths())+len(m.Except) > 0 {
		line("path_as", string(cmp.Or(m.PathAs, PathNormal)))
		line("path_case", string(cmp.Or(m.PathCase, PathCaseExact)))
	}
	lists("host", m.Hosts)
	lists("route", m.Routes)
	lists("status", m.Statuses)
	if m.When != "" {
		line("when", strconv.Quote(m.When))
	}
	if members.Len() == 0 {
		b.WriteString(indent + "match: {}\n")
		return
	}
	b.WriteString(indent + "match:\n" + members.String())
}

// yamlTexts writes a single text plainly and several as a list, in quotes what has a meaning there.
func yamlTexts(list []string) string {
	if len(list) == 1 {
		return yamlText(list[0])
	}
	return "[" + strings.Join(yamlEach(list), ", ") + "]"
}

func yamlEach(list []string) []string {
	parts := make([]string, len(list))
	for i, s := range list {
		if parts[i] = yamlText(s); strings.ContainsAny(parts[i], "{}") && parts[i] == s {
			parts[i] = strconv.Quote(s)
		}
	}
	return parts
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

// DescribeKey is a key as a rule document writes it.
func DescribeKey(key []traffic.KeyField) string { return describeKey(key) }

// describeKey writes a key as a rule does.
func describeKey(key []traffic.KeyField) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = describeKeyField(k)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// describeKeyField writes an element of a key so that YAML reads it back.
func describeKeyField(k traffic.KeyField) string {
	switch {
	case k.Field == traffic.FieldIP:
		return fmt.Sprintf("{field: ip, v4: %d, v6: %d}", k.V4, k.V6)
	case k.Field == traffic.FieldFallback:
		var parts []string
		for one := range k.Alternatives() {
			parts = append(parts, describeKeyField(one))
		}
		return "{any: [" + strings.Join(parts, ", ") + "]}"
	case k.Field >= traffic.FieldParam:
		return flowText(k.String())
	}
	return k.String()
}

// Shown is a version as commands write it in JSON, for people and their scripts: as it is stored, but with durations as documents have
// them, 1m and 1d12h, where the stored form has nanoseconds.
type Shown struct {
	Version
	Window   string      `json:"window"`
	Cooldown string      `json:"cooldown,omitempty"` // empty: the default
	Lateness string      `json:"lateness"`
	MaxLag   string      `json:"max_lag"`
	Block    *ShownBlock `json:"block,omitempty"`
}

// ShownBlock is the block of a Shown.
type ShownBlock struct {
	Block
	TTL string `json:"ttl"`
}

// Shown is v for JSON that is shown.
func (v Version) Shown() Shown {
	s := Shown{Version: v, Window: duration.Format(v.Window), Lateness: duration.Format(v.Lateness), MaxLag: duration.Format(v.MaxLag)}
	if v.Cooldown != 0 {
		s.Cooldown = duration.Format(v.Cooldown)
	}
	if v.Block != nil {
		s.Block = &ShownBlock{*v.Block, duration.Format(v.Block.TTL)}
	}
	return s
}

// Plain is what was shown: the inverse of Version.Shown.
func (s *Shown) Plain() (Version, error) {
	v := s.Version
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{{"window", s.Window, &v.Window}, {"cooldown", s.Cooldown, &v.Cooldown}, {"lateness", s.Lateness, &v.Lateness}, {"max_lag", s.MaxLag, &v.MaxLag}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = duration.Parse(d.text); err != nil {
			return v, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if s.Block != nil {
		block := s.Block.Block
		var err error
		if block.TTL, err = duration.Parse(s.Block.TTL); err != nil {
			return v, fmt.Errorf("block.ttl: %w", err)
		}
		v.Block = &block
	}
	return v, nil
}
