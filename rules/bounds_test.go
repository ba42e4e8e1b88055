package rules

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// Lists are cut before their elements are compared with each other: each would take minutes in a file of the greatest size.
func TestLongListsAreRefusedUnread(t *testing.T) {
	names := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("ab,", n), ",") + "]" }
	for _, tt := range []struct{ field, src string }{
		{"match.method: got 64001 of them, allowed at most 64", "match: {method: " + names(64_001) + "}\nkey: [ip]"},
		{"match.path: got 64001 of them, allowed at most 64", "match: {path: " + names(64_001) + "}\nkey: [ip]"},
		{"allow: got 64001 of them, allowed at most 64", "match: {}\nkey: [ip]\nallow: " + names(64_001)},
		{"key: got 64001 of them, allowed at most 64", "match: {}\nkey: " + names(64_001)},
		{"block.key: got 64001 of them, allowed at most 64", "match: {}\nkey: [ip]\nblock: {ttl: 1m, key: " + names(64_001) + "}"},
		{"key[0]: got 9 alternatives, allowed at most 8", `match: {}` + "\n" + `key: ["` + strings.TrimSuffix(strings.Repeat("attrs.a|", 9), "|") + `"]`},
	} {
		src := "id: r\nowner: tests\n" + tt.src + "\nlimit: 1\nwindow: 1m\n"
		_, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, Environment{Identity: traffic.DefaultIdentityMap()})
		if err == nil || !strings.Contains(err.Error(), tt.field) {
			t.Errorf("want %s, got %.300v", tt.field, err)
		}
	}
}
