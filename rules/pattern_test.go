package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		methods      string // joined by a space
		pattern      string
		method, path string
		want         bool
	}{
		{"", "", "GET", "/any/thing", true},
		{"", "", "", "", true},
		{"POST", "", "POST", "/", true},
		{"POST", "", "post", "/", true},
		{"POST", "", "GET", "/", false},
		{"POST", "", "", "/", false},
		{"POST", "", strings.Repeat("POST", 1000), "/", false},
		{"GET POST", "", "POST", "/", true},
		{"K", "", "\u212a", "/", false}, // the Kelvin sign folds to k in Unicode

		{"", "/v1/guest-tokens", "", "/v1/guest-tokens", true},
		{"", "/v1/guest-tokens", "", "/v1/guest-tokens?a=b", true},
		{"", "/v1/guest-tokens", "", "/v1/guest-tokens?/x", true},
		{"", "/v1/guest-tokens", "", "/v1/guest-tokens/", false},
		{"", "/v1/guest-tokens", "", "/V1/guest-tokens", false},
		{"", "/v1/guest-tokens", "", "/v1/guest%2Dtokens", false},
		{"", "/v1/guest-tokens", "", "//v1/guest-tokens", false},
		{"", "/v1/guest-tokens", "", "v1/guest-tokens", false},
		{"", "s3.amazonaws.com", "", "s3.amazonaws.com", true},
		{"", "/", "", "/", true},
		{"", "/", "", "", false},

		{"", "/u/{id}", "", "/u/7", true},
		{"", "/u/{id}", "", "/u/", false},
		{"", "/u/{id}", "", "/u", false},
		{"", "/u/{id}", "", "/u/7/", false},
		{"", "/u/{id}", "", "/u/?x", false},
		{"", "/u/{id}/", "", "/u/7/", true},
		{"", "/u/{id}/p/{p}", "", "/u/7/p/8", true},
		{"", "{any}", "", "s3.amazonaws.com", true},

		{"", "*", "", "", true},
		{"", "*", "", "/a/b", true},
		{"", "/v1/*", "", "/v1/", true},
		{"", "/v1/*", "", "/v1/a/b", true},
		{"", "/v1/*", "", "/v1", false},
		{"", "/v1/gu*", "", "/v1/gu", true},
		{"", "/v1/gu*", "", "/v1/guest/x", true},
		{"", "/v1/gu*", "", "/v1/g", false},
		{"", "/u/{id}/*", "", "/u/7/x", true},
		{"", "/u/{id}/*", "", "/u//x", false},
	} {
		m := Match{Methods: strings.Fields(c.methods), Path: c.pattern}
		if got := m.Matches(c.method, c.path); got != c.want {
			t.Errorf("%s on %q %q: got %v, want %v", describeMatch(m), c.method, c.path, got, c.want)
		}
		if got := NewIndex([]Version{{Document: Document{Match: m}}}).Match(nil, c.method, c.path); (len(got) == 1) != c.want {
			t.Errorf("index of %s on %q %q: got %v, want %v", describeMatch(m), c.method, c.path, got, c.want)
		}
	}
}

// patternRegexp is the oracle of path matching: the documented meaning, said in another language.
func patternRegexp(pattern string) *regexp.Regexp {
	if pattern == "" {
		pattern = "*"
	}
	body, endless := strings.CutSuffix(pattern, "*")
	expr := regexp.QuoteMeta(body)
	expr = regexp.MustCompile(`(^|/)\\\{\w+\\\}(/|$)`).ReplaceAllString(expr, `$1[^/]+$2`)
	expr = regexp.MustCompile(`(^|/)\\\{\w+\\\}(/|$)`).ReplaceAllString(expr, `$1[^/]+$2`) // neighbours share a slash
	if endless {
		expr += ".*"
	}
	return regexp.MustCompile("(?s)^" + expr + "$")
}

// drawPattern and drawPath keep to few letters, so that patterns overlap and paths hit them.
func drawPattern(t *rapid.T, label string) string {
	segment := rapid.SampledFrom([]string{"", "a", "b", "ab", "aa", "{x}", "{y}"})
	path := strings.Join(rapid.SliceOfN(segment, 1, 4).Draw(t, label), "/")
	switch rapid.IntRange(0, 5).Draw(t, label+" end") {
	case 0:
		return ""
	case 1:
		return path + "/*"
	case 2:
		return path + "/a*"
	case 3:
		return "*"
	}
	if path == "" {
		return "a"
	}
	return path
}

func drawPath(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{"", "a", "b", "ab", "aa", "aab", "c", "{x}", "*"})
	path := strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "path"), "/")
	return path + rapid.SampledFrom([]string{"", "", "?q=/a", "?"}).Draw(t, "query")
}

func drawMethods(t *rapid.T, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "POST", "PUT"}), 0, 2, rapid.ID).Draw(t, label)
}

func TestMatchesAgainstRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Match{Path: drawPattern(t, "pattern")}
		if m.Path != "" && checkPath(m.Path) != "" {
			t.Fatalf("the generator made %q, which is refused: %s", m.Path, checkPath(m.Path))
		}
		path := drawPath(t)
		want := patternRegexp(m.Path).MatchString(strings.SplitN(path, "?", 2)[0])
		if got := m.Matches("GET", path); got != want {
			t.Fatalf("%q on %q: got %v, want %v", m.Path, path, got, want)
		}
	})
}

// smallPaths are all paths of up to four segments over a small alphabet that tells the generated patterns apart. Two
// patterns of at most three segments that differ do so on one of these: their rest needs one segment more.
func smallPaths() []string {
	segments := []string{"", "a", "b", "ab", "aa", "aab", "c"}
	all, level := slices.Clone(segments), segments
	for range 3 {
		var next []string
		for _, head := range level {
			for _, tail := range segments {
				next = append(next, head+"/"+tail)
			}
		}
		all = append(all, next...)
		level = next
	}
	return all
}

// TestIncludes compares with the question put to every small path: one that only the narrow pattern matches is the
// counter-example to inclusion, and where there is none, inclusion must be seen.
func TestIncludes(t *testing.T) {
	paths := smallPaths()
	var includedPairs int
	check := func(t *rapid.T) {
		wide, narrow := drawPattern(t, "wide"), drawPattern(t, "narrow")
		if strings.Count(wide, "/") > 2 || strings.Count(narrow, "/") > 2 {
			t.Skip("longer than the paths that can tell")
		}
		w, n := Match{Path: wide}, Match{Path: narrow}
		want := true
		for _, p := range paths {
			if n.Matches("", p) && !w.Matches("", p) {
				want = false
				break
			}
		}
		if got := includes(wide, narrow); got != want {
			t.Fatalf("includes(%q, %q): got %v, want %v", wide, narrow, got, want)
		}
		if want {
			includedPairs++
		}
	}
	for range 20 {
		rapid.Check(t, check)
	}
	if includedPairs == 0 {
		t.Error("no generated pair was included: the test said nothing about that side")
	}
}

func TestMatchIncludesMethods(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{"", "", true}, {"", "GET", true}, {"GET", "", false}, {"GET", "GET", true},
		{"GET POST", "POST", true}, {"POST", "GET POST", false},
	} {
		if got := (Match{Methods: strings.Fields(c.wide)}).includes(Match{Methods: strings.Fields(c.narrow)}); got != c.want {
			t.Errorf("[%s] includes [%s]: got %v, want %v", c.wide, c.narrow, got, c.want)
		}
	}
}
