package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// keyed parses a rule of this match, key and more.
func keyed(t interface {
	Helper()
	Fatal(...any)
}, match, key, more string) Document {
	t.Helper()
	env := Environment{Identity: traffic.DefaultIdentityMap()}
	src := "id: r\nowner: o\nmatch: " + match + "\nkey: " + key + "\nlimit: 1\nwindow: 1m\n" + more
	docs, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(src)}}, env)
	if err != nil {
		t.Fatal(err)
	}
	return docs[0]
}

// A {param} is the segment as a server reads it that the path reaches.
func TestParam(t *testing.T) {
	for _, c := range []struct {
		match      Match
		path, want string
	}{
		{Match{Path: "/users/{id}/posts"}, "/users/7/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/7/posts/?x=/users/8/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/%37/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/a%2Fb/posts", "a/b"},
		{Match{Path: "/users/{id}/posts"}, "/users/%2537/posts", "%37"},
		{Match{Path: "/users/{id}/posts"}, "/x/../users/7/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "//users/7/./posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "http://h/users/7/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/7;x=1/posts", "7"}, // else each x is another window
		{Match{Path: "/users/{id}/posts"}, "/users/7\t/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/x%2f..%2f7/posts", "7"},
		{Match{Path: "/users/{id}/posts"}, "/users/7", ""},
		{Match{Path: "/users/{other}/posts"}, "/users/7/posts", ""},
		{Match{Path: "/users/{id}*"}, "/users/7", ""},
		{Match{Path: "/{a}/{id}/*"}, "/x/7/y/z", "7"},
		{Match{Path: "/users/{id}", PathAs: PathRaw}, "/users/%37", "%37"},
		{Match{Path: "/Users/{id}", PathCase: PathCaseIgnore}, "/uSERS/Ab", "Ab"},
		{Match{Paths: []string{"/a/{id}", "/b/x/{id}"}}, "/b/x/7", "7"},
		{Match{Paths: []string{"/a/{id}", "/{id}/x"}}, "/a/x", "x"}, // the first of the paths
		{Match{}, "/users/7", ""},
	} {
		if got, ok := c.match.Param("id", "GET", c.path); got != c.want || ok != (c.want != "") {
			t.Errorf("%+v of %s: got %q, %t, want %q", c.match, c.path, got, ok, c.want)
		}
	}
}

// Every request that reaches a rule has its {param}, and no other.
func TestParamOfAllThatIsReached(t *testing.T) {
	reached := 0
	rapid.Check(t, func(t *rapid.T) {
		m := Match{Path: rapid.SampledFrom([]string{"/users/{id}/posts", "/users/{id}/*", "/{id}", "/users/{id}"}).Draw(t, "pattern"),
			PathAs: rapid.SampledFrom([]PathAs{"", PathRaw}).Draw(t, "as"), PathCase: rapid.SampledFrom([]PathCase{"", PathCaseIgnore}).Draw(t, "case")}
		path := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"/", "users", "posts", "7", "%2F", "%37", ";x", "..", ".", "\\", "%5c", "#", "USERS", "\n", "//h", "%"}), 1, 9).Draw(t, "path"), "")
		value, ok := m.Param("id", "GET", "/"+path)
		if ok != m.Reaches(&Target{Method: "GET", Path: "/" + path}) || ok && value == "" {
			t.Fatalf("%s of %s: %q, %t; reached: %t", m.Path, "/"+path, value, ok, !ok)
		}
		if ok {
			reached++
		}
	})
	if reached == 0 {
		t.Error("no path reached a pattern")
	}
}

func TestHostsAreOneWhateverTheirSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "a.example", "a.example:8080": "a.example", " a.example:80 ": "a.example",
		"[2001:DB8::1]:443": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]", "2001:db8::1": "2001:db8::1", "": "", ":": "", ":80": "",
	} {
		if got := reading.PlainHost(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// The extra fields of a routing version are in the order of their first use, each once, a {param} once for all rules of its paths.
func TestExtras(t *testing.T) {
	var r Routing
	for _, d := range []Document{
		keyed(t, `{}`, `[ip, host]`, ""),
		keyed(t, `{path: "/u/{id}"}`, `["{id}"]`, "count: {distinct: [path, attrs.a]}\n"),
		keyed(t, `{path: "/v/{id}"}`, `["{id}", host]`, ""),
		keyed(t, `{path: "/u/{id}"}`, `[ip]`, "count: {distinct: \"{id}\"}\n"),
		keyed(t, `{}`, `["user|attrs.a|attrs.b"]`, ""),
		keyed(t, `{}`, `[ip]`, "count: {sum: attrs.c}\n"),
	} {
		r.Rules = append(r.Rules, Version{Document: d})
	}
	x := r.Extras()
	var got []string
	for _, f := range x.Fields {
		got = append(got, f.Field.String())
	}
	if want := []string{"host", "{id}", "attrs.a", "path", "{id}", "attrs.b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, want := range [][]int{{0}, {1, 2, 3}, {0, 4}, {1}, {2, 5}, nil} {
		var got []int
		for _, u := range x.ByRule[i] {
			got = append(got, u.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("rule %d: got %v, want %v", i, got, want)
		}
	}
}

// Values are readable and bounded, as those of identities.
func TestExtraValues(t *testing.T) {
	d := keyed(t, `{path: "/u/{id}"}`, `[host, method, route, plan, user_agent, attrs.t, "{id}"]`, "count: {distinct: path}\n")
	r := Routing{Rules: []Version{{Document: d}}}
	long := strings.Repeat("x", 5000)
	q := &traffic.Request{Host: "H:1", Method: "get", Route: "r\x00", Plan: "p", UserAgent: long, Path: "/u/%ff?q", Attrs: []byte(`{"t":1.50}`)}
	of := r.Extras().Of(0, q)
	for name, want := range map[string]string{"host": "h", "method": "GET", "route": "r\ufffd", "plan": "p", "attrs.t": "1.5", "{id}": "\ufffd", "path": "/u/%ff"} {
		k, _ := traffic.ParseKeyField(name)
		if got, ok := of.ExtraValue(k); got != want || !ok {
			t.Errorf("%s: got %q, %t, want %q", name, got, ok, want)
		}
	}
	if got, _ := of.ExtraValue(traffic.KeyField{Field: traffic.FieldUserAgent}); len(got) > 300 || !strings.HasPrefix(got, "xxx") {
		t.Errorf("a value of %d bytes", len(got))
	}
	if got, ok := of.ExtraValue(traffic.KeyField{Field: traffic.FieldAttr, Name: "u"}); ok {
		t.Errorf("got %q of a field that the rule does not use", got)
	}
	if _, ok := r.Extras().Of(0, &traffic.Request{}).ExtraValue(traffic.KeyField{Field: traffic.FieldHost}); ok {
		t.Error("an empty event has a host")
	}
}

// A key in the short and in the long form is the same, is written so that it is read back, and starts new windows when it changes.
func TestKeysOfAnyFieldAreDocuments(t *testing.T) {
	env := Environment{Identity: traffic.DefaultIdentityMap()}
	a := keyed(t, `{path: "/u/{id}"}`, `["api_key|ip", "{id}", "attrs.a b"]`, "count: {distinct: [path, \"user|device\"]}\n")
	b := keyed(t, `{path: "/u/{id}"}`, `[{any: [api_key, {field: ip, v4: 32, v6: 64}]}, {field: "{id}"}, "attrs.a b"]`, "count: {distinct: [{any: [user, device]}, path]}\n")
	if !a.Equal(&b) {
		t.Errorf("differ: %v", Diff(&a, &b))
	}
	again, err := ParseFiles([]File{{Name: "y", Src: []byte(a.YAML())}}, env)
	if err != nil || !again[0].Equal(&a) {
		t.Errorf("%v\n%s", err, a.YAML())
	}
	stored, err := a.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if read, err := DecodeDocument(stored); err != nil || !read.Equal(&a) || read.Validate(env) != nil {
		t.Errorf("%v, %v, %s", err, read.Validate(env), stored)
	}
	prev, _ := NextVersion(nil, a)
	for name, change := range map[string]struct {
		to   Document
		anew bool
	}{
		"prefix":      {keyed(t, `{path: "/u/{id}"}`, `[{any: [api_key, {field: ip, v4: 24}]}, "{id}", "attrs.a b"]`, "count: {distinct: [path, \"user|device\"]}\n"), true},
		"order":       {keyed(t, `{path: "/u/{id}"}`, `["ip|api_key", "{id}", "attrs.a b"]`, "count: {distinct: [path, \"user|device\"]}\n"), true},
		"combination": {keyed(t, `{path: "/u/{id}"}`, `["api_key|ip", "{id}", "attrs.a b"]`, "count: {distinct: [path, user]}\n"), true},
		"path":        {keyed(t, `{path: "/{id}/u"}`, `["api_key|ip", "{id}", "attrs.a b"]`, "count: {distinct: [path, \"user|device\"]}\n"), true},
		"method":      {keyed(t, `{method: GET, path: "/u/{id}"}`, `["api_key|ip", "{id}", "attrs.a b"]`, "count: {distinct: [path, \"user|device\"]}\n"), false},
	} {
		next, changed := NextVersion(&prev, change.to)
		if !changed || (next.Lineage != prev.Lineage) != change.anew {
			t.Errorf("%s: changed %t, lineage %d", name, changed, next.Lineage)
		}
	}
}

// Where {id} lies elsewhere, others are counted together: such an edit may block more.
func TestMovedParamMayBlockMore(t *testing.T) {
	more := "block: {key: [ip], ttl: 1m}\n"
	a := keyed(t, `{path: "/u/{id}/{n}"}`, `[ip, "{id}"]`, more)
	b := keyed(t, `{path: "/u/{n}/{id}"}`, `[ip, "{id}"]`, more)
	if got := MayBlockMore(&a, &b); len(got) == 0 || !strings.Contains(strings.Join(got, "; "), "windows start anew") {
		t.Errorf("got %q", got)
	}
	if got := MayBlockMore(&a, &a); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}
