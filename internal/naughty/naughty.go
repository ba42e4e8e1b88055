// Package naughty has texts that programs have stumbled over, for tests: the Big List of Naughty Strings (npm package
// big-list-of-naughty-strings 1.0.0, MIT: testdata/LICENSE), and those that are naughty to a table, a shell or a terminal.
package naughty

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

//go:embed testdata/blns.json
var list []byte

// Strings are all texts, each once, all of them valid UTF-8. One is empty.
func Strings() ([]string, error) {
	var all []string
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("the list: %w", err)
	}
	all = append(all,
		"=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", " =1+1", `","=1+1`, `"=1+1"`, "a\"b,c\nd",
		"$(id)", "`id`", "${IFS}", "'; id; '", `"; id; "`, "a\\", "a'b", "~root", "!!", "#", "a|b", "a&b", "*", "{a,b}", "-rf", "--help", "=a=b", "a\nid\n",
		"\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\b\b\bback", "a\rb", "a\u0085b", "a\u2028b", "\u202eevil", "a\u200bb", "\u0300mark", "a\x00b", "\x7f",
		"%", "%00", "%2F", "ip=192.0.2.1", "ip=192.0.2.1&device=x", "sha256:"+string(slices.Repeat([]byte("a"), 64)), "<script>alert(1)</script>", "</pre><b>", "&lt;b&gt;", "{{.}}", "{% x %}",
		"\\x00", "\\u{202e}", "·", "~0123456789",
	)
	slices.Sort(all)
	return slices.Compact(all), nil
}
