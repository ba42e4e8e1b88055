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
			versions[i].Match = Match{Methods: drawMethods(t, "methods"), Path: drawPattern(t, "pattern")}
		}
		ix := NewIndex(versions)
		for range 10 {
			method := rapid.SampledFrom([]string{"GET", "post", "Put", "", "DELETE"}).Draw(t, "method")
			path := drawPath(t)
			want := []int{-1, 99} // what is in dst stays
			for i := range versions {
				if versions[i].Match.Matches(method, path) {
					want = append(want, i)
				}
			}
			if got := ix.Match([]int{-1, 99}, method, path); !slices.Equal(got, want) {
				t.Fatalf("%s %q: got %v, want %v", method, path, got, want)
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
		if !m.Matches("post", "/v1/acme/users/7?x") {
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
