package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules/reading"
)

// TestPatterns is about paths that are compared as they stand, but for their query.
func TestPatterns(t *testing.T) {
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
		m := Match{Methods: strings.Fields(c.methods), Path: c.pattern, PathAs: PathRaw}
		if got := m.Reaches(&Target{Method: c.method, Path: c.path}); got != c.want {
			t.Errorf("%s on %q %q: got %v, want %v", describeMatch(m), c.method, c.path, got, c.want)
		}
		if got := NewIndex([]Version{{Document: Document{Match: m}}}).Match(nil, &Target{Method: c.method, Path: c.path}); (len(got) == 1) != c.want {
			t.Errorf("index of %s on %q %q: got %v, want %v", describeMatch(m), c.method, c.path, got, c.want)
		}
	}
}

// patternRegexp is the oracle of path matching, byte by byte: the documented meaning, said in another language.
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

// drawOddPath draws a path in which everything may occur that servers read differently.
func drawOddPath(t *rapid.T) string {
	segment := rapid.SampledFrom([]string{
		"", "a", "b", "ab", "A", "aB", "%61", "%41b", "%", "%zz", "..", ".", "%2e%2E", ".%2e", "..;", ";x", "a;b", "a%3Bb", "#", "a#", "%23",
		`a\b`, `\`, `..\b`, "a%5Cb", "a%2Fb", "..%2f", "%2F..", "\t", "a\xa0", "\x85", "\u00e0", "*", "{x}",
	})
	origin := rapid.SampledFrom([]string{"", "", "", "", "http://h", "HTTPS://h:1", "x:", "//h", `/\`, "*", "h:443"}).Draw(t, "origin")
	path := strings.Join(rapid.SliceOfN(segment, 1, 6).Draw(t, "odd path"), "/")
	return origin + "/" + path + rapid.SampledFrom([]string{"", "", "?q=/a", "?"}).Draw(t, "query")
}

// drawReading draws how a match compares its path.
func drawReading(t *rapid.T) (as PathAs, fold PathCase) {
	return rapid.SampledFrom([]PathAs{"", PathNormal, PathRaw}).Draw(t, "path_as"),
		rapid.SampledFrom([]PathCase{"", PathCaseExact, PathCaseIgnore}).Draw(t, "path_case")
}

func drawMethods(t *rapid.T, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "POST", "PUT"}), 0, 2, rapid.ID).Draw(t, label)
}

func TestPatternsAgainstRegexp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Match{Path: drawPattern(t, "pattern"), PathAs: PathRaw}
		if m.Path != "" && reading.CheckPattern(m.Path) != "" {
			t.Fatalf("the generator made %q, which is refused: %s", m.Path, reading.CheckPattern(m.Path))
		}
		path := drawPath(t)
		want := patternRegexp(m.Path).MatchString(strings.SplitN(path, "?", 2)[0])
		if got := m.Reaches(&Target{Method: "GET", Path: path}); got != want {
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
		w, n := Match{Path: wide, PathAs: PathRaw}, Match{Path: narrow, PathAs: PathRaw}
		want := true
		for _, p := range paths {
			if n.Reaches(&Target{Method: "", Path: p}) && !w.Reaches(&Target{Method: "", Path: p}) {
				want = false
				break
			}
		}
		if got := reading.Includes(wide, narrow); got != want {
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

// TestIncludesInEveryReading looks for paths that reach the narrow match alone, where it is said to be included.
func TestIncludesInEveryReading(t *testing.T) {
	var included, apart int
	check := func(t *rapid.T) {
		w, n := Match{Path: drawPattern(t, "wide")}, Match{Path: drawPattern(t, "narrow")}
		if rapid.Bool().Draw(t, "same") {
			w.Path = n.Path
		}
		w.PathAs, w.PathCase = drawReading(t)
		n.PathAs, n.PathCase = drawReading(t)
		if rapid.IntRange(0, 3).Draw(t, "odd") == 0 { // raw, or from before there was a normal form
			n.Path = rapid.SampledFrom([]string{"/a/../", "//", "/./", "/%61/"}).Draw(t, "prefix") + strings.TrimPrefix(w.Path, "/")
		}
		if !w.Includes(n) {
			apart++
			return
		}
		included++
		for range 20 {
			if path := drawOddPath(t); n.Reaches(&Target{Method: "GET", Path: path}) && !w.Reaches(&Target{Method: "GET", Path: path}) {
				t.Fatalf("%s is said to include %s, and %q reaches only the latter", describeMatch(w), describeMatch(n), path)
			}
		}
	}
	for range 20 {
		rapid.Check(t, check)
	}
	if included == 0 || apart == 0 {
		t.Errorf("%d pairs included, %d not: the test said nothing about one side", included, apart)
	}
	base := Match{Path: "/v1/Things"}
	raw, folded, both := base, base, base
	raw.PathAs, folded.PathCase = PathRaw, PathCaseIgnore
	both.PathAs, both.PathCase = PathRaw, PathCaseIgnore
	for _, c := range []struct {
		wide, narrow Match
		want         bool
	}{
		{base, raw, true}, {raw, base, false}, {folded, base, true}, {base, folded, false}, {folded, both, true}, {both, folded, false},
		{raw, both, false}, {both, raw, true}, {base, both, false}, {Match{}, both, true}, {folded, Match{Path: "/V1/things"}, true},
		{Match{Path: "/b*"}, Match{Path: "/a/../b*", PathAs: PathRaw}, false}, // which /a/../b/../../x is, as it stands
		{Match{Path: "/{y}"}, Match{Path: "/x/../{y}", PathAs: PathRaw}, false},
		{Match{Path: "/b*"}, Match{Path: "/a/../b*"}, false},
	} {
		if got := c.wide.Includes(c.narrow); got != c.want {
			t.Errorf("%s includes %s: got %v, want %v", describeMatch(c.wide), describeMatch(c.narrow), got, c.want)
		}
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
		wide, narrow := Match{Methods: strings.Fields(c.wide)}, Match{Methods: strings.Fields(c.narrow)}
		if got := wide.Includes(narrow); got != c.want {
			t.Errorf("[%s] includes [%s]: got %v, want %v", c.wide, c.narrow, got, c.want)
		}
	}
}
