package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules"
)

func TestBoundsAreRead(t *testing.T) {
	c, err := Load(consoleYAML(`  bounds:
    - {owner: search, host: API.example.com, path: /v1/search/*}
    - {owner: search, host: [www.example.com, "*.shop.example.com"], path: ["/search", "/suggest/{what}"], method: get,
       path_case: ignore, path_as: raw, route: web}
    - owner=the+team host=a.example.com+b.example.com method=GET+POST path=/a path_case=ignore path_as=normal route=r
`))
	if err != nil {
		t.Fatal(err)
	}
	b := c.Console.RuleBounds()
	var got []string
	for _, area := range append(b["search"], b["the+team"]...) {
		got = append(got, area.String())
	}
	want := []string{"any method /v1/search/*, host api.example.com",
		`GET /search,/suggest/{what}, path_as raw, path_case ignore, host "*.shop.example.com",www.example.com, ` +
			"route web",
		"GET,POST /a, path_case ignore, host a.example.com,b.example.com, route r"}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(b) != 2 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	within := rules.Document{ID: "r", Owner: "search", Match: rules.Match{Path: "/v1/search/a",
		Hosts: []string{"api.example.com"}}}
	if beyond := b.Beyond(&within); beyond != nil {
		t.Errorf("got %s; allowed: within", beyond)
	}
	within.Match.Path = "/login"
	if b.Beyond(&within) == nil {
		t.Error("/login: got within; allowed: beyond")
	}
	for _, f := range c.Fields() {
		if f.Path != "console.bounds" {
			continue
		}
		again, err := Load(Source{ReadFile: files(nil), Environ: []string{"WEIR_CONSOLE_BOUNDS=" + f.Text()}})
		if err != nil || fmt.Sprint(again.Console.RuleBounds()) != fmt.Sprint(b) {
			t.Errorf("as %s: got %v, %v; allowed: the same", f.Text(), again, err)
		}
	}
	if none, err := Load(consoleYAML("  hosts: []\n")); err != nil || none.Console.RuleBounds() != nil {
		t.Errorf("without: got %v, %v; allowed: nobody is bound", none.Console.RuleBounds(), err)
	}
}

func TestErrorsOfBounds(t *testing.T) {
	one := func(members string) string { return "  bounds:\n    - {" + members + "}\n" }
	for _, tc := range []struct{ yaml, want string }{
		{one("path: /a"), `default: console.bounds[1].owner: got ""; allowed: an owner of rules`},
		{one("owner: search"),
			`default: console.bounds[1]: got an owner alone; allowed: host, path, method or route: ` +
				`an owner that may reach`},
		{one("owner: search, host: '*'"),
			`weir.yaml:3:29: console.bounds[1].host: got "*"; allowed: a host such as api.example.com`},
		{one("owner: search, host: [a.example.com, 'https://b']"),
			`weir.yaml:3:29: console.bounds[1].host: got "https://b"`},
		{one("owner: search, path: search"), `weir.yaml:3:29: console.bounds[1].path: got "search"`},
		{one("owner: search, path: /a//b"), `weir.yaml:3:29: console.bounds[1].path: got "/a//b"; allowed: a path as`},
		{one("owner: search, path: /a, path_case: any"), `weir.yaml:3:44: console.bounds[1].path_case: got "any"`},
		{one("owner: search, path_case: ignore"),
			`weir.yaml:3:34: console.bounds[1].path_case: got "ignore" without a path; allowed: only beside path`},
		{one("owner: search, host: []"),
			`weir.yaml:3:29: console.bounds[1].host: got an empty list; allowed: at least one`},
		{one("owner: search, status: 401"),
			`weir.yaml:3:23: console.bounds[1].status: unknown field; allowed: owner, method`},
		{one("owner: search, except: /a"), `weir.yaml:3:23: console.bounds[1].except: unknown field`},
		{"  bounds: [owner=search hosts=a]\n",
			`weir.yaml:2:12: console.bounds[1]: got "hosts=a"; allowed: like owner=search host=api`},
		{"  bounds: {search: /a}\n", `weir.yaml:2:11: console.bounds: got a mapping; allowed: a list`},
		{"  bounds:\n" + strings.Repeat("    - {owner: s, path: /a}\n", 65),
			`default: console.bounds[65]: got more than 64 for owner "s"; allowed: 64 for one owner`},
	} {
		_, err := Load(consoleYAML(tc.yaml))
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s\ngot  %v\nwant %s…", tc.yaml, err, tc.want)
		}
	}
}
