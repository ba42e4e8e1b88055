package shown

import (
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Commands are lines for a shell that do what a page is about. Its value is what calls the program: "weir", with its options.
//
// They are shown to be copied. Rule ids are [a-z0-9-], and a subject is written in plain words or, where one of its values has
// more than letters, digits and -._:/@, in its canonical form in single quotes, of RFC 3986's unreserved characters, '%', '='
// and '&': no shell finds anything in either.
type Commands string

// Release releases a block; empty where the command line has no words for its subject.
func (c Commands) Release(rule string, subject traffic.Subject) string {
	words := Words(subject)
	if words == "" {
		return ""
	}
	return string(c) + " blocks release " + rule + " " + words + ` --reason "…"`
}

// Mode changes what a rule does: a promoted rule goes into shadow, one that is off counts again, one in shadow blocks by the
// version that is shown.
func (c Commands) Mode(rule string, mode rules.Mode, version int) string {
	if mode == rules.ModeShadow {
		return c.Promote(rule, version)
	}
	return string(c) + " rules demote " + rule + ` --reason "…"`
}

// Promote lets a version of a rule block, and is refused where another one has come since it was shown.
func (c Commands) Promote(rule string, version int) string {
	return string(c) + " rules promote " + rule + " --version " + strconv.Itoa(version) + ` --reason "…"`
}

// Apply applies an edited document of a rule.
func (c Commands) Apply(rule string) string {
	return string(c) + " rules apply -f " + rule + `.yaml --reason "…"`
}

// RaiseLimit raises the limit of a rule for a time.
func (c Commands) RaiseLimit(rule string) string {
	return string(c) + " rules set-limit " + rule + ` … --for 2h --reason "…"`
}

// Disable has a rule count nothing.
func (c Commands) Disable(rule string) string {
	return string(c) + " rules disable " + rule + ` --reason "…"`
}

// Decisions shows what was decided about a rule's episodes.
func (c Commands) Decisions(rule string) string {
	return string(c) + " history decisions --rule " + rule + " --since 1h"
}

// Words are the arguments that mean a subject; empty where there are none.
func Words(s traffic.Subject) string {
	values, err := s.Values()
	if err != nil { // not a subject: it could hold anything
		return ""
	}
	quoted := "'" + string(s) + "'"
	if strings.ContainsAny(string(s), "'\\\n") || len(values) == 0 {
		return ""
	}
	words := make([]string, len(values))
	for i, v := range values {
		if v.Missing || v.Digest || !plain(v.Field) || !plain(v.Value) {
			return quoted
		}
		words[i] = v.Field + "=" + v.Value
	}
	if s.WithDigests() != s {
		return quoted // a value that reads like a digest, and is none
	}
	return strings.Join(words, " ")
}

// plain reports whether a text means itself to every shell. The tilde does not: bash expands it behind a = or a colon.
func plain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._:/@", r))
	}) < 0
}
