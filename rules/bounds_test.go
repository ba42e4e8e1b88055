package rules

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

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

// Whatever fills a file of the greatest size, it is refused, or read, with the line and no more problems than anybody reads.
func TestGreatFiles(t *testing.T) {
	const rule = "id: r\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
	const list = "kind: allow\nid: a\nowner: o\nentries:\n"
	fill := func(before, part, after string) string {
		return before + strings.Repeat(part, (MaxFileBytes-len(before)-len(after))/len(part)) + after
	}
	for name, tt := range map[string]struct{ src, want string }{
		"one byte more":   {fill("", "#", "") + "#", "r.yaml:1:1: got a file that is too big, allowed at most 1048576 bytes"},
		"lists in lists":  {fill("", "[", ""), "r.yaml:1:1: got YAML that cannot be read (exceeded max depth of 10000)"},
		"mappings":        {fill("", "{a: ", ""), "r.yaml:1:1: got YAML that cannot be read (exceeded max depth of 10000)"},
		"dashes":          {fill("", "- ", "a"), "r.yaml:1:1: got YAML that cannot be read (exceeded max depth of 10000)"},
		"deep in a rule":  {rule + "block: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "r.yaml:7:8: block: got a list, allowed a mapping"},
		"unfolding":       {"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "r.yaml:1:4: got the YAML anchor \"&a\", allowed values written out"},
		"anchors":         {fill("", "- &a x\n", ""), "r.yaml:1:3: got the YAML anchor"},
		"empty documents": {fill(rule, "---\n", ""), ""},
		"documents":       {fill("", "---\n{}\n", ""), "r.yaml:2:1: id: got nothing"},
		"the same rule":   {fill("", "---\n"+rule, ""), "r.yaml:9:5: id: got \"r\" a second time (first at r.yaml:2:5)"},
		"unknown fields":  {fill("", "a: 1\n", ""), "r.yaml:1:1: a: got an unknown field"},
		"one line":        {fill(rule+"owner: ", "a", "\n"), "r.yaml:7:1: owner: got it a second time"},
		"one text":        {fill("id: r\nowner: \"", "\\x41", "\"\n"), "r.yaml:2:8: owner: got \"AAAA"},
		"a literal":       {fill("id: r\nowner: |\n", "  a\n", ""), "r.yaml:2:8: owner: got \"a\\na\\na"},
		"comments":        {fill(rule, "# a\n\n", ""), ""},
		"tiers":           {fill(rule+"tiers: [", "{when: 'true', limit: 2},", "]"), "r.yaml:7:8: tiers: got "},
		"tests":           {fill(rule+"tests: [", "{},", "]"), "r.yaml:7:8: tests: got a list, allowed a list of at most 100 tests"},
		"sources":         {fill(list, "- {cidr: 192.0.2.1/32, reason: r}\n", ""), "r.yaml:5:1: entries: got 10001 entries, allowed at most 10000"},
		"no sources":      {fill(list, "- {}\n", ""), "r.yaml:5:3: entries[0].reason: got nothing"},
		"unknown lists":   {fill("", "---\nid: r\nallow: [zz]\n", ""), "r.yaml:2:1: owner: got nothing"},
		"a pattern each":  {fill(rule+"when: '", "a", "'"), "r.yaml:7:1: when: got an unknown field"},
		"an expression":   {fill("id: r\nowner: o\nmatch: {when: '", "!", "true'}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"), "r.yaml:3:15: match.when: got an expression of "},
	} {
		warned := 0
		env := testEnvironment()
		env.AllowLists, env.Warn = []string{}, func(Problem) { warned++ }
		_, err := ParseSet([]File{{Name: "r.yaml", Src: []byte(tt.src)}}, env)
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %.300v, want %s", name, err, tt.want)
			continue
		}
		problems, _ := err.(Problems)
		if most := 3*maxProblems + 3; len(problems) > most || warned > maxSetProblems+1 {
			t.Errorf("%s: %d problems, %d warnings", name, len(problems), warned)
		}
		for _, p := range problems {
			if p.Line < 1 || len(p.Error()) > 1000 {
				t.Errorf("%s: %.200s… of %d bytes", name, p.Error(), len(p.Error()))
				break
			}
		}
	}
}

// Many files are as bounded as one.
func TestManyFiles(t *testing.T) {
	tree := fstest.MapFS{}
	great := []byte(strings.Repeat("#", MaxFileBytes))
	for i := range MaxSetBytes>>20 + 5 {
		tree[fmt.Sprintf("%03d.yaml", i)] = &fstest.MapFile{Data: great}
	}
	files, err := ReadDir(tree, "rules")
	if err != nil || len(files) != MaxSetBytes>>20+1 {
		t.Errorf("%d files, %v", len(files), err)
	}
	const sized = "rules/064.yaml:1: got more than 64 MiB of files, with this one, allowed at most 64 MiB of rules together"
	if _, err := ParseSet(files, Environment{}); err == nil || err.Error() != sized {
		t.Errorf("got %v, want %s", err, sized)
	}
	files = files[:0]
	for i := range 200 {
		files = append(files, File{Name: fmt.Sprintf("%03d.yaml", i), Src: []byte(strings.Repeat("---\nid: r\n", 30))})
	}
	_, err = ParseSet(files, Environment{})
	problems, _ := err.(Problems)
	if len(problems) != maxSetProblems+1 || !strings.Contains(problems[maxSetProblems].Error(), "more problems, allowed none") {
		t.Errorf("%d problems, the last %v", len(problems), problems[max(len(problems), 1)-1])
	}
}

// A rule that is legal and probably not meant is warned about, and so are the first of many.
func TestWarningsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 3 * maxSetProblems {
		fmt.Fprintf(&b, "---\nid: r-%d\nowner: o\nmatch: {method: NONE}\nkey: [ip]\nlimit: 1\nwindow: 1m\nallow: [none]\n", i)
	}
	var got []string
	env := testEnvironment()
	env.Warn = func(p Problem) { got = append(got, p.Error()) }
	if _, err := ParseSet([]File{{Name: "r.yaml", Src: []byte(b.String())}}, env); err != nil {
		t.Fatal(err)
	}
	const last = "r.yaml:24000:9: got 5000 more warnings, allowed none"
	if len(got) != maxSetProblems+1 || got[maxSetProblems] != last {
		t.Errorf("%d warnings, the last %s, want %s", len(got), got[max(len(got), 1)-1], last)
	}
}

// More rules than a record can name are refused before they are stored: routers would stand still.
func TestTooManyRules(t *testing.T) {
	r := diverseRouting(MaxRules + 1)
	want := fmt.Sprintf("rules: got %d, allowed at most %d, with those that are pending", MaxRules+1, MaxRules)
	if _, err := r.Encode(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %.300v, want %s", err, want)
	}
	r.Rules = r.Rules[1:]
	if err := r.Validate(); err != nil {
		t.Errorf("%.300v", err)
	}
}
