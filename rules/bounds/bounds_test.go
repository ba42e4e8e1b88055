package bounds_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
)

func reach(t *testing.T, text string) rules.Match {
	t.Helper()
	if text == "{}" {
		return rules.Match{}
	}
	m, err := rules.ParseReach(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestBeyond(t *testing.T) {
	api := []string{"{host: api.example.com, path: /v1/search/*}"}
	two := []string{"{host: a.example.com, path: /a/*}", "{host: b.example.com, path: /b/*}"}
	for _, c := range []struct {
		name  string
		areas []string
		match string
		says  string // empty: within
	}{
		{"the area itself", api, api[0], ""},
		{"a path within", api, "{host: api.example.com, path: '/v1/search/{what}'}", ""},
		{"a method more", api, "{method: POST, host: api.example.com, path: /v1/search/all}", ""},
		{"a route more", api, "{route: search, host: api.example.com, path: /v1/search/all}", ""},
		{"what is left out", api, "{host: api.example.com, path: /v1/search/*, except: /v1/search/x}", ""},
		{"another path", api, "{method: POST, host: api.example.com, path: /login}",
			"POST /login, host api.example.com;"},
		{"the path above", api, "{host: api.example.com, path: /v1/*}", "any method /v1/*, host api.example.com;"},
		{"one of its paths", api, "{host: api.example.com, path: [/v1/search/a, /login, /v1/search/b]}",
			"any method /login, host api.example.com;"},
		{"no path", api, "{host: api.example.com}",
			"any method any path, host api.example.com (every path, since it names none);"},
		{"all but what is left out", api, "{host: api.example.com, except: /login}", "except /login"},
		{"no host", api, "{path: /v1/search/*}", "any method /v1/search/* (every host, since it names none);"},
		{"another host", api, "{host: www.example.com, path: /v1/search/a}", "host www.example.com;"},
		{"one of its hosts", api, "{host: [api.example.com, www.example.com], path: /v1/search/a}",
			"any method /v1/search/a, host www.example.com;"},
		{"hosts below one", api, "{host: '*.example.com', path: /v1/search/a}", "host \"*.example.com\";"},
		{"everything", api, "{}", "any method any path (every host and path, since it names none);"},
		{"letters of any case", api, "{host: api.example.com, path: /v1/search/a, path_case: ignore}",
			"path_case ignore"},
		{"bytes", api, "{host: api.example.com, path: /v1/search/a, path_as: raw}", ""},
		{"bytes that servers read otherwise", api, "{host: api.example.com, path: /v1/search/%2e%2e/a, path_as: raw}",
			"path_as raw"},

		{"readings of bytes", []string{"{path: /a/*, path_as: raw}"}, "{path: /a/b}", "any method /a/b;"},
		{"letters of any case, bound so", []string{"{path: /a/*, path_case: ignore}"},
			"{path: /A/b, path_case: ignore}", ""},
		{"hosts below a host", []string{"{host: '*.example.com'}"}, "{host: api.example.com, path: /login}", ""},
		{"the host above", []string{"{host: '*.example.com'}"}, "{host: example.com}", "host example.com;"},
		{"any host", []string{"{path: /a/*}"}, "{path: /a/b}", ""},
		{"a method, bound", []string{"{method: GET, path: /a/*}"}, "{method: GET, path: /a/b}", ""},
		{"another method", []string{"{method: GET, path: /a/*}"}, "{method: [GET, POST], path: /a/b}",
			"GET,POST /a/b;"},
		{"a route, bound", []string{"{route: search}"}, "{route: search, path: /login}", ""},
		{"another route", []string{"{route: search}"}, "{route: [search, login]}", "route login,search;"},
		{"a route instead of a host", api, "{route: search}", "(every host and path, since it names none)"},

		{"areas together", two, "{host: a.example.com, path: [/a/x, /a/y]}", ""},
		{"host of one, path of the other", two, "{host: a.example.com, path: /b/x}",
			"any method /b/x, host a.example.com;"},
		{"hosts and paths crosswise", two, "{host: [a.example.com, b.example.com], path: /a/x}",
			"any method /a/x, host b.example.com;"},
		{"each host by another area", []string{"{host: a.example.com, path: [/a, /c]}",
			"{host: b.example.com, path: [/c, /d]}"}, "{host: [a.example.com, b.example.com], path: /c}", ""},
		{"paths by several areas", []string{"{path: /a}", "{path: /b}"}, "{path: [/a, /b]}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bounds.Bounds{"search": nil}
			for _, area := range c.areas {
				b["search"] = append(b["search"], reach(t, area))
			}
			m := reach(t, c.match)
			other := reach(t, c.areas[0])
			for _, d := range []rules.Document{
				{ID: "scan", Owner: "search", Match: m},
				{ID: "scan", Owner: "search", Match: other, Block: &rules.Block{Match: &m}},
			} {
				field := "match"
				if d.Block != nil {
					field = "block.match"
				}
				got := b.Beyond(&d)
				switch {
				case got == nil && c.says != "":
					t.Fatalf("%s within: got yes; allowed: no", field)
				case got == nil:
					continue
				case c.says == "":
					t.Fatalf("got %q; allowed: within", got)
				}
				want := field + " of rule scan reaches "
				if text := got.String(); !strings.HasPrefix(text, want) || !strings.Contains(text, c.says) ||
					!strings.Contains(text, `owner "search" is bound to `+b["search"][0].String()) {
					t.Errorf("got %q; allowed: %s…%s…", text, want, c.says)
				}
				if p := b.Warn(&d); p == nil || p.Field != field {
					t.Errorf("as a warning: got %v; allowed: one about %s", p, field)
				}
			}
		})
	}
}

func TestWhoIsNotBound(t *testing.T) {
	b := bounds.Bounds{"search": {reach(t, "{path: /search}")}, "nothing": nil}
	all := rules.Document{ID: "all", Owner: "identity"}
	if got := b.Beyond(&all); got != nil {
		t.Errorf("an owner without bounds: got %q; allowed: nothing", got)
	}
	if got := bounds.Bounds(nil).Beyond(&all); got != nil {
		t.Errorf("no bounds at all: got %q; allowed: nothing", got)
	}
	if got := b.BeyondOf("search", &all); got == nil || got.Owner != "search" || got.Rule != "all" {
		t.Errorf("another owner's areas: got %v; allowed: beyond those of search", got)
	}
	all.Owner = "nothing"
	if b.Beyond(&all) == nil {
		t.Error("an owner with no area: got within; allowed: beyond")
	}
	// What answers and events have only narrows.
	narrow := rules.Document{ID: "n", Owner: "search",
		Match: rules.Match{Path: "/search", Statuses: []string{"4xx"}, When: "true"}}
	if got := b.Beyond(&narrow); got != nil {
		t.Errorf("status and condition: got %q; allowed: nothing", got)
	}
}

func TestAMessageListsAFewAreas(t *testing.T) {
	b := bounds.Bounds{}
	for i := range 70 {
		b["o"] = append(b["o"], rules.Match{Path: "/" + strings.Repeat("a", i+1)})
	}
	got := b.Beyond(&rules.Document{ID: "r", Owner: "o", Match: rules.Match{Path: "/b"}})
	if got == nil || !strings.HasSuffix(got.String(), "/aaaaa; or 65 more areas") {
		t.Errorf("got %v; allowed: five areas and how many more", got)
	}
	// Beyond as many as are compared, a match that lies within is said to reach beyond, never the other way round.
	if b.Beyond(&rules.Document{ID: "r", Owner: "o", Match: b["o"][bounds.MostAreas]}) == nil {
		t.Error("of the 65th area: got within; allowed: beyond")
	}
	if got := b.Beyond(&rules.Document{ID: "r", Owner: "o", Match: b["o"][bounds.MostAreas-1]}); got != nil {
		t.Errorf("of the 64th area: got %q; allowed: within", got)
	}
}

// naive says what a match means, of a request that is spelled as all read it. It shares nothing with package rules.
func naive(m *rules.Match, method, host, route string, path []string) bool {
	segment := func(pattern, s string) bool {
		if pattern == "*" || strings.HasPrefix(pattern, "{") {
			return s != ""
		}
		if m.PathCase == rules.PathCaseIgnore {
			pattern, s = strings.ToLower(pattern), strings.ToLower(s)
		}
		return pattern == s
	}
	matches := func(pattern string) bool {
		want := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
		for i, w := range want {
			if w == "*" && i == len(want)-1 {
				return len(path) > i
			}
			if i >= len(path) || !segment(w, path[i]) {
				return false
			}
		}
		return len(want) == len(path)
	}
	paths := m.Paths
	if m.Path != "" {
		paths = []string{m.Path}
	}
	below := func(name string) bool {
		return name == host || strings.HasPrefix(name, "*.") && strings.HasSuffix(host, name[1:])
	}
	return (len(m.Methods) == 0 || slices.Contains(m.Methods, method)) &&
		(len(m.Routes) == 0 || slices.Contains(m.Routes, route)) &&
		(len(m.Hosts) == 0 || slices.ContainsFunc(m.Hosts, below)) &&
		(len(paths) == 0 || slices.ContainsFunc(paths, matches)) && !slices.ContainsFunc(m.Except, matches)
}

func drawMatch(t *rapid.T, label string) rules.Match {
	some := func(what string, most int, from ...string) []string {
		if rapid.IntRange(0, 2).Draw(t, label+what+" is named") == 0 {
			return nil
		}
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, most, rapid.ID).Draw(t, label+what)
	}
	m := rules.Match{
		Methods: some(" methods", 2, "GET", "POST"), Routes: some(" routes", 2, "r", "s"),
		Hosts: some(" hosts", 2, "a.test", "b.a.test", "*.a.test"),
		Paths: some(" paths", 2, "/a", "/a/b", "/a/*", "/{x}", "/{x}/b", "/*", "/b"),
	}
	if len(m.Paths) == 1 {
		m.Path, m.Paths = m.Paths[0], nil
	}
	if len(m.Paths) > 0 || m.Path != "" {
		m.Except = some(" except", 1, "/a/c", "/b/c")
		m.PathCase = rapid.SampledFrom([]rules.PathCase{"", "", rules.PathCaseIgnore}).Draw(t, label+" case")
		m.PathAs = rapid.SampledFrom([]rules.PathAs{"", "", rules.PathRaw}).Draw(t, label+" as")
	}
	return m
}

// Whatever a rule within its owner's bounds watches or holds is of one of the areas: said by an oracle of requests that
// are spelled plainly, and by the matches themselves of others.
func TestNothingWithinReachesOutside(t *testing.T) {
	within, beyond, reached := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		areas := make([]rules.Match, rapid.IntRange(1, 3).Draw(t, "areas"))
		for i := range areas {
			areas[i] = drawMatch(t, "area")
		}
		d := rules.Document{ID: "r", Owner: "o", Match: drawMatch(t, "match")}
		if rapid.IntRange(0, 2).Draw(t, "like an area") > 0 {
			area := rapid.SampledFrom(areas).Draw(t, "which")
			drawn := d.Match
			d.Match = area
			d.Match.Methods = drawn.Methods
			if rapid.Bool().Draw(t, "other hosts") {
				d.Match.Hosts = drawn.Hosts
			}
			if rapid.Bool().Draw(t, "other paths") {
				d.Match.Path, d.Match.Paths, d.Match.Except = drawn.Path, drawn.Paths, drawn.Except
				d.Match.PathAs, d.Match.PathCase = drawn.PathAs, drawn.PathCase
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "holds apart") == 0 {
			m := drawMatch(t, "holds")
			d.Block = &rules.Block{Match: &m}
		}
		if (bounds.Bounds{"o": areas}).Beyond(&d) != nil {
			beyond++
			return
		}
		within++
		held := d.Reach()
		for range 10 {
			path := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "A", "B"}), 1, 3).Draw(t, "path")
			target := rules.Target{
				Method: rapid.SampledFrom([]string{"GET", "POST", "PUT"}).Draw(t, "method"), Path: "/" +
					strings.Join(path, "/"),
				Host:  rapid.SampledFrom([]string{"a.test", "b.a.test", "c.a.test", "test", ""}).Draw(t, "host"),
				Route: rapid.SampledFrom([]string{"r", "s", "u", ""}).Draw(t, "route"),
			}
			asks := func(m *rules.Match) bool { return naive(m, target.Method, target.Host, target.Route, path) }
			if rapid.IntRange(0, 2).Draw(t, "odd") == 0 {
				target.Path = rapid.SampledFrom([]string{"/a//b", "/%61", "/a/./b", "/x/../a", "/a/", "/a%2fb",
					"/a;x/b", "\\a",
					"http://a.test/a", "*", "", "/A/%62"}).Draw(t, "odd path")
				asks = func(m *rules.Match) bool { return m.Reaches(&target) }
			}
			if !asks(&d.Match) && !asks(&held) {
				continue
			}
			reached++
			if !slices.ContainsFunc(areas, func(a rules.Match) bool { return asks(&a) }) {
				t.Fatalf("%s, holding %s, is said to lie within %v, and reaches %+v", d.Match, held, areas, target)
			}
		}
	})
	if within < 10 || beyond < 10 || reached < 10 {
		t.Errorf("%d within, %d beyond, %d requests reached: the test said nothing", within, beyond, reached)
	}
}
