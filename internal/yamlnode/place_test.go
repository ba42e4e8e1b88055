package yamlnode

import (
	"errors"
	"strings"
	"testing"
)

// Each kind of syntax error: those of the library's scanner, of its parser, with and without the line of a block around it, and
// those that have no line at all.
func TestASyntaxErrorIsWhereItsTextIs(t *testing.T) {
	const rule = "id: a\nowner: b\n"
	quotes := "put the whole expression into quotes, or after |"
	for _, tt := range []struct {
		src    string
		at     Place
		reason string
		hint   string
	}{
		{"key: [ip", Place{1, 6}, "did not find expected ',' or ']'", "close the [ with ]"},
		{"key: [ip\n", Place{1, 6}, "did not find expected ',' or ']'", "close the [ with ]"},
		{rule + "match: {}\nkey: [ip\nlimit: 10\nwindow: 1m\n", Place{4, 6}, "did not find expected ',' or ']'", "close the [ with ]"},
		{rule + "key: [ip,\n  user\nlimit: 1\n", Place{3, 6}, "did not find expected ',' or ']'", "close the [ with ]"},
		{rule + "match: {path: /x\nkey: [ip]\n", Place{3, 8}, "did not find expected ',' or '}'", "close the { with }"},
		{rule + "key: [[ip, user], [device\n", Place{3, 19}, "did not find expected ',' or ']'", "close the [ with ]"},
		{rule + "match:\n  when: \"x\" == event.plan\nlimit: 1\n", Place{4, 13}, "did not find expected key", quotes},
		{rule + "match:\n  path: /x\n  host: y\n  when: 'x' == event.plan\nlimit: 1\n", Place{6, 13}, "did not find expected key", quotes},
		{"match:\r\n  when: \"x\" == event.plan\r\nlimit: 1\r\n", Place{2, 13}, "did not find expected key", quotes},
		{rule + "---\n" + rule + " limit: 1\n", Place{6, 7}, "mapping values are not allowed in this context", ""},
		{rule + "match:\n  when: event.plan == \"a: b\" ? x : y\n", Place{4, 25}, "mapping values are not allowed in this context", quotes},
		{rule + "list:\n- a\n b\n- c\nlimit\n", Place{7, 1}, "could not find expected ':'", ""},
		{rule + "\tlimit: 1\n", Place{3, 1}, "found a tab character that violates indentation", "YAML is indented with spaces, not with tabs"},
		{rule + "limit: @1\n", Place{3, 8}, "found character that cannot start any token", ""},
		{rule + "limit: \"1\nx: y\n", Place{3, 8}, "found unexpected end of stream", ""},
		{rule + "path: \"/ä\\d\"\n", Place{3, 10}, "found unknown escape character", ""},
		{"\ufeffa: 1\nb: *c\n", Place{2, 5}, "unknown anchor 'c' referenced", ""},
		{"- a\n- b\nc: d\n", Place{3, 1}, "did not find expected '-' indicator", ""},
		{"a: \"b\n\tc\\d\"\n", Place{2, 3}, "found unknown escape character", ""},
		{"a: [", Place{1, 4}, "did not find expected node content", ""},
		{"a: \x01\n", Place{1, 4}, "control characters are not allowed", ""},
	} {
		var err error
		for _, err = range Documents([]byte(tt.src)) {
		}
		e := (*SyntaxError)(nil)
		if !errors.As(err, &e) || e.Place != tt.at || e.Reason != tt.reason || e.Hint != tt.hint {
			t.Errorf("%q:\ngot  %v %s %s\nwant %v %s %s", tt.src, e.Place, e.Reason, e.Hint, tt.at, tt.reason, tt.hint)
		}
	}
}

// The place of a character of a text is where the file has it, or none.
func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		within    Place
		want      string // what the file has there; empty for no place
	}{
		{"plain", "a: b == c", Place{1, 3}, "== c"},
		{"plain, wide characters before", "\"ä😀\": b == c", Place{1, 3}, "== c"},
		{"plain over lines", "a: b\n   == c", Place{1, 3}, "== c"},
		{"plain over lines with an empty one", "a: b\n\n   == c", Place{2, 1}, ""},
		{"the end", "a: b == c", Place{1, 7}, ""},
		{"behind the end", "a: b == c", Place{1, 8}, "none"},
		{"single quotes", "a: 'b == c'", Place{1, 3}, "== c'"},
		{"single quotes with quotes", "a: 'b == ''c'' && d'", Place{1, 13}, "d'"},
		{"double quotes", `a: "b == c"`, Place{1, 3}, `== c"`},
		{"double quotes with quotes", `a: "b == \"c\" && d"`, Place{1, 13}, `d"`},
		{"before an escape", `a: "b == c\u0064 e"`, Place{1, 3}, `== c\u0064 e"`},
		{"behind an escape", `a: "b == \u0064 e"`, Place{1, 8}, "none"},
		{"double quotes over lines", "a: \"b\n  == c\"", Place{1, 3}, `== c"`},
		{"double quotes over lines, joined", "a: \"b\\\n  == c\"", Place{1, 3}, "none"},
		{"literal", "a: |\n  b\n  == c\n", Place{2, 4}, "c"},
		{"literal with an indicator", "a: |2-  # why\n    b\n  == c\n", Place{1, 3}, "b"},
		{"literal with an empty line", "a: |\n\n  b\n\n  == c\n", Place{4, 1}, "== c"},
		{"literal in a list", "a:\n- |\n  b\n    == c\n", Place{2, 3}, "== c"},
		{"folded", "a: >\n  b ==\n  c\n", Place{1, 6}, "c"},
		{"folded, one line", "a: >-\n  b == c\n", Place{1, 3}, "== c"},
		{"folded with more indented lines", "a: >\n  b\n    == c\n", Place{2, 3}, "none"},
		{"windows", "x: y\r\na: |\r\n  b\r\n  == c\r\n", Place{2, 1}, "== c"},
		{"byte order mark", "\ufeffa: b == c", Place{1, 3}, "== c"},
		{"outside", "a: b", Place{2, 1}, "none"},
	} {
		var n Node
		for _, m := range documents(t, tt.src)[0].Members() {
			n = m.Value
		}
		if n.Kind() == List {
			n = n.Children()[0]
		}
		at, ok := n.Within(tt.within)
		got := "none"
		if ok {
			line := []rune(splitLines([]byte(tt.src))[at.Line-1])
			got = string(line[min(at.Column-1, len(line)):])
		}
		if want := tt.want; got != want && !(want == "" && strings.Contains(tt.name, "empty one") && got == "none") {
			t.Errorf("%s: got %q at %v, want %q", tt.name, got, at, want)
		}
	}
	if _, ok := documents(t, "[a]")[0].Within(Place{1, 1}); ok {
		t.Error("a list has a place within")
	}
}
