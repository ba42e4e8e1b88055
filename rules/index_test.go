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
				reached := m.Reaches(method, path)
				if reached {
					want = append(want, i)
				}
				if m.PathAs = PathRaw; m.Reaches(method, path) {
					wantBefore = append(wantBefore, i)
					if !reached {
						t.Fatalf("%s %q is what %s watches, and does not reach it", method, path, describeMatch(versions[i].Match))
					}
				}
			}
			if got := ix.Match([]int{-1, 99}, method, path); !slices.Equal(got, want) {
				t.Fatalf("%s %q: got %v, want %v", method, path, got, want)
			}
			if got := before.Match([]int{-1, 99}, method, path); !slices.Equal(got, wantBefore) {
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
		dst = ix.Match(dst[:0], "post", "/svc7/v1/things/42/details?q=1")
		if !m.Reaches("post", "/v1/acme/users/7?x") {
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
				dst = ix.Match(dst[:0], "POST", "/svc1/v1/things/42/details?page=2")
			}
			if !slices.Equal(dst, want) {
				b.Fatalf("got %v, want %v", dst, want)
			}
		})
	}
}
