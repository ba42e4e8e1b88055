package route

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestClausesTellWhatHeld(t *testing.T) {
	m := rules.Match{Methods: []string{"GET", "POST"}, Path: "/v1/{id}", PathCase: rules.PathCaseIgnore}
	for _, tt := range []struct {
		method, path string
		want         string
	}{
		{"POST", "/V1/7", "[{match.method GET, POST POST true} {match.path /v1/{id} (path_case: ignore) /V1/7 true}]"},
		{"PUT", "/v1/%37", "[{match.method GET, POST PUT false} {match.path /v1/{id} (path_case: ignore) /v1/%37 true}]"},
		{"", "/v2/7", "[{match.method GET, POST  false} {match.path /v1/{id} (path_case: ignore) /v2/7 false}]"},
	} {
		if got := fmt.Sprint(Clauses(&m, &traffic.Request{Method: tt.method, Path: tt.path})); got != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.method, tt.path, got, tt.want)
		}
	}
	if got := Clauses(&rules.Match{}, &traffic.Request{Method: "GET"}); got != nil {
		t.Errorf("a match of everything: got %v", got)
	}
}

// A rule watches a request if and only if all of its clauses hold, and no clause has a say in another.
func TestAllClausesTogetherAreTheMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rules.Match{
			Methods:  rapid.SampledFrom([][]string{nil, {"GET"}, {"GET", "POST"}}).Draw(t, "methods"),
			Path:     rapid.SampledFrom([]string{"", "/a", "/a/*", "/{x}/b", "*", "/A"}).Draw(t, "pattern"),
			Except:   rapid.SampledFrom([][]string{nil, {"/a"}, {"/a/b/c", "/x/*"}}).Draw(t, "except"),
			Hosts:    rapid.SampledFrom([][]string{nil, {"a.example"}, {"*.example", "b.test"}}).Draw(t, "hosts"),
			Routes:   rapid.SampledFrom([][]string{nil, {"r"}}).Draw(t, "routes"),
			Statuses: rapid.SampledFrom([][]string{nil, {"401"}, {"200", "4xx"}}).Draw(t, "statuses"),
		}
		if m.Path == "" && rapid.Bool().Draw(t, "several") {
			m.Paths = []string{"/a", "/x/*"}
		}
		if m.Path != "" || m.Paths != nil || m.Except != nil {
			m.PathAs = rapid.SampledFrom([]rules.PathAs{"", rules.PathRaw}).Draw(t, "as")
			m.PathCase = rapid.SampledFrom([]rules.PathCase{"", rules.PathCaseIgnore}).Draw(t, "case")
		}
		q := traffic.Request{
			Method: rapid.SampledFrom([]string{"GET", "POST", "PUT", ""}).Draw(t, "method"),
			Path:   rapid.SampledFrom([]string{"", "/", "/a", "/a/", "/%61", "/A", "/x/b", "/a/../b", "*", "/a/b/c"}).Draw(t, "path"),
			Host:   rapid.SampledFrom([]string{"", "a.example", "A.EXAMPLE:80", "x.example", "b.test"}).Draw(t, "host"),
			Route:  rapid.SampledFrom([]string{"", "r", "s"}).Draw(t, "route"),
			Status: rapid.SampledFrom([]int{0, 200, 401, 404}).Draw(t, "status"),
		}
		all := true
		for _, c := range Clauses(&m, &q) {
			all = all && c.Held
		}
		index := rules.NewIndex([]rules.Version{{Document: rules.Document{Match: m}}})
		if watched := len(index.Match(nil, &rules.Target{Method: q.Method, Path: q.Path, Host: q.Host, Route: q.Route, Status: q.Status})) > 0; watched != all {
			t.Fatalf("%+v on %s %s: watched %v, clauses %+v", m, q.Method, q.Path, watched, Clauses(&m, &q))
		}
	})
}
