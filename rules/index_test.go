package rules

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexAgainstEachRule asks the index and every rule by itself.
func TestIndexAgainstEachRule(t *testing.T) {
	check := func(t *rapid.T) {
		versions := make([]Version, rapid.IntRange(0, 30).Draw(t, "rules"))
		for i := range versions {
			m := Match{Methods: drawMethods(t, "methods"), Path: drawPattern(t, "pattern")}
			m.PathAs, m.PathCase = drawReading(t)
			if odd := rapid.SampledFrom([]string{"", "", "", "/%61", "/../b", "//a", "/%2e*", "/{x}/a;b", "/%7Bx%7D", `/a\b`, "/a#"}).Draw(t, "odd"); odd != "" {
				m.Path = odd // of a rule from before there was a normal form
			}
			versions[i].Match = m
		}
		ix, before := NewIndex(versions), (&Routing{Rules: versions, RecordFormat: ReadingRecordFormat - 1}).Index()
		for range 10 {
			method := rapid.SampledFrom([]string{"GET", "post", "Put", "", "DELETE"}).Draw(t, "method")
			path := drawPath(t)
			if rapid.Bool().Draw(t, "odd") {
				path = drawOddPath(t)
			}
			want, wantBefore := []int{-1, 99}, []int{-1, 99} // what is in dst stays
			for i := range versions {
				m := versions[i].Match
				reached := m.Reaches(&Target{Method: method, Path: path})
				if reached {
					want = append(want, i)
				}
				if m.PathAs = PathRaw; m.Reaches(&Target{Method: method, Path: path}) {
					wantBefore = append(wantBefore, i)
					if !reached {
						t.Fatalf("%s %q is what %s watches, and does not reach it", method, path, describeMatch(versions[i].Match))
					}
				}
			}
			if got := ix.Match([]int{-1, 99}, &Target{Method: method, Path: path}); !slices.Equal(got, want) {
				t.Fatalf("%s %q: got %v, want %v", method, path, got, want)
			}
			if got := before.Match([]int{-1, 99}, &Target{Method: method, Path: path}); !slices.Equal(got, wantBefore) {
				t.Fatalf("%s %q before record format %d: got %v, want %v", method, path, ReadingRecordFormat, got, wantBefore)
			}
		}
	}
	for range 20 {
		rapid.Check(t, check)
	}
}

func TestIndexDoesNotAllocate(t *testing.T) {
	ix := NewIndex(manyRules(1000))
	dst := make([]int, 0, 16)
	m := Match{Methods: []string{"POST"}, Path: "/v1/{tenant}/users*"}
	allocs := testing.AllocsPerRun(200, func() {
		dst = ix.Match(dst[:0], &Target{Method: "post", Path: "/svc7/v1/things/42/details?q=1"})
		if !m.Reaches(&Target{Method: "post", Path: "/v1/acme/users/7?x"}) {
			t.Fatal("no match")
		}
	})
	if allocs != 0 {
		t.Errorf("got %v allocations for a request, want 0", allocs)
	}
	if len(dst) == 0 {
		t.Error("nothing matched: the test measured nothing")
	}
}

// manyRules makes n rules of the kinds that occur; a request to one service meets four of them, whatever n is.
func manyRules(n int) []Version {
	versions := make([]Version, 0, n)
	for i := 0; len(versions) < n; i++ {
		for _, m := range []Match{
			{Methods: []string{"POST"}, Path: fmt.Sprintf("/svc%d/v1/things/{id}/details", i)},
			{Path: fmt.Sprintf("/svc%d/v1/things/42/details", i)},
			{Methods: []string{"GET", "POST"}, Path: fmt.Sprintf("/svc%d/v1/thi*", i)},
			{Methods: []string{"DELETE"}, Path: fmt.Sprintf("/svc%d/v1/things/{id}/details", i)},
			{Path: fmt.Sprintf("/svc%d/*", i)},
		} {
			if len(versions) < n {
				versions = append(versions, Version{Document: Document{Match: m}})
			}
		}
	}
	return versions
}

// BenchmarkIndexMatch shows that the number of rules hardly matters: each request meets the same four rules.
func BenchmarkIndexMatch(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			ix := NewIndex(manyRules(n))
			want := []int{5, 6, 7, 9} // of /svc1
			dst := make([]int, 0, 16)
			b.ReportAllocs()
			for b.Loop() {
				dst = ix.Match(dst[:0], &Target{Method: "POST", Path: "/svc1/v1/things/42/details?page=2"})
			}
			if !slices.Equal(dst, want) {
				b.Fatalf("got %v, want %v", dst, want)
			}
		})
	}
}

// alike makes n rules that differ in one part of the match only. The request meets one of them, whatever n is.
func alike(n int, part string) (versions []Version, target Target) {
	versions = make([]Version, n)
	for i := range versions {
		m := &versions[i].Match
		m.Methods, m.Path = []string{"POST"}, "/v1/things/{id}"
		switch part {
		case "host":
			m.Hosts = []string{fmt.Sprintf("tenant%d.example.com", i)}
		case "hosts below":
			m.Hosts = []string{fmt.Sprintf("*.tenant%d.example.com", i), fmt.Sprintf("tenant%d.test", i)}
		case "route":
			m.Routes = []string{fmt.Sprintf("route-%d", i)}
		case "status":
			m.Routes, m.Statuses = []string{fmt.Sprint("r", i/500)}, []string{fmt.Sprint(100 + i%500)}
		case "paths":
			m.Path, m.Paths = "", []string{fmt.Sprintf("/a%d/x", i), fmt.Sprintf("/b%d/{id}", i), fmt.Sprintf("/c%d/*.php", i)}
		case "except":
			m.Hosts, m.Except = []string{fmt.Sprintf("tenant%d.example.com", i)}, []string{"/v1/things/health", "/v1/things/ready"}
		}
	}
	target = Target{Method: "POST", Path: "/v1/things/42?page=2", Host: "tenant1.example.com:443", Route: "route-1", Status: 101}
	switch part {
	case "hosts below":
		target.Host = "A.b.tenant1.example.com"
	case "status":
		target.Route = "r0"
	case "paths":
		target.Path = "/b1/42"
	}
	return versions, target
}

var parts = []string{"host", "hosts below", "route", "status", "paths", "except"}

func TestIndexOfAlikeRulesDoesNotAllocate(t *testing.T) {
	for _, part := range parts {
		versions, target := alike(1000, part)
		ix := NewIndex(versions)
		dst := make([]int, 0, 4)
		if n := testing.AllocsPerRun(100, func() { dst = ix.Match(dst[:0], &target); versions[1].Match.Reaches(&target) }); n != 0 {
			t.Errorf("%s: %v allocations", part, n)
		}
		if !slices.Equal(dst, []int{1}) {
			t.Errorf("%s: got %v", part, dst)
		}
	}
}

// BenchmarkIndexOfAlikeRules shows that the number of rules hardly matters where they differ in one part only.
func BenchmarkIndexOfAlikeRules(b *testing.B) {
	for _, part := range parts {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/rules=%d", part, n), func(b *testing.B) {
				versions, target := alike(n, part)
				ix := NewIndex(versions)
				dst := make([]int, 0, 4)
				b.ReportAllocs()
				for b.Loop() {
					dst = ix.Match(dst[:0], &target)
				}
				if !slices.Equal(dst, []int{1}) {
					b.Fatalf("got %v", dst)
				}
			})
		}
	}
}
