package reading

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestEachReadingIsNeeded has for each reading, in their order, a path that is served under it and under no other one.
func TestEachReadingIsNeeded(t *testing.T) {
	for i, tt := range [len(readings)]struct{ pattern, path string }{
		{"/{x}/{y}", "/a%2F#/.."},
		{"/{x}", `//h/%2e%2e;%2e%2e%5C\a//%2e%2e#`},
		{"/{x}/a", "//;/a/%2F.."},
		{"/{x}/{y}", "/..%2F#"},
		{"/{x}/a", "/../#%2Fa"},
		{"/{x}/{y}", `//;\hh/../#`},
		{"/{x}", "///#//.."},
		{"/{x}", `//;a%2F\a\\a#/;`},
		{"/{x}/{y}", `/%2F\..`},
		{"/{x}/a", `/..\a%2F`},
		{"/a", `/\a/\..`},
		{"/a", `//%2Fa\a`},
		{"/a", `/\h%2Fa`},
		{"/{x}", `/%5C/\..\;%2Fh/#`},
		{"/a", `/\a%2F/%5C/..`},
		{"/{x}/a", "/;%5Ca"},
		{"/{x}", `//;a/;\%2Fa`},
		{"/{x}/{y}/a", "//h/../;b%2Fa"},
		{"/a", "//h/a/;b//.."},
		{"/{x}", "//h/b%2Fa/;"},
		{"/{x}/a", "//h/..%2Fa;"},
		{"/{x}", "//h/h/..;/b"},
		{"/{x}", "/../%2e%2e"},
		{"/{x}", "/b;/a"},
		{"/{x}/{y}/a", "//..;/%2F/a;"},
		{"/{x}/a", "//..%2Fa;"},
		{"/{x}", `//h//../a%2F\b`},
		{"/{x}/a", `//h/a%2F\//..;`},
		{"/{x}/a", `/%2F\a;`},
		{"/a", `/\%2Fa;`},
		{"/{x}/a", `/\%2Fb/a///..;#ah`},
		{"/{x}", "/b%2F/..;"},
	} {
		odd := newOddPath(tt.path, false)
		for j, r := range readings {
			s := Segments{text: odd.text, cuts: odd.read(r), Loose: true}
			if got := s.Match(tt.pattern, false); got != (i == j) {
				t.Errorf("%q reaches %s under reading %d (%011b): %v; it is there to be reached under %d only", tt.path, tt.pattern, j, r, got, i)
			}
		}
	}
}

// TestTwoServersInARowAreNeeded has paths that the watched operation is served under only if a server passes on what it has
// read to another one, in each of the ways in which that one may read on.
func TestTwoServersInARowAreNeeded(t *testing.T) {
	for _, tt := range []struct{ pattern, path string }{
		{"/a/b", "/a/x;y/../b;c/d"},
		{"/a", `/x%3B/..%2Fa%3B/b`},
		{"/{x}/b/{y}", `/a;b/../c%3B/b%5C\..`},
	} {
		odd := newOddPath(tt.path, false)
		for j, r := range readings {
			if s := (Segments{text: odd.text, cuts: odd.read(r), Loose: true}); s.Match(tt.pattern, false) {
				t.Errorf("%q reaches %s under reading %d alone", tt.path, tt.pattern, j)
			}
		}
		reached := false
		for s := SpellingsOf(tt.path, false); s.Next(); {
			reached = reached || s.Match(tt.pattern, false)
		}
		if !reached {
			t.Errorf("%q does not reach %s", tt.path, tt.pattern)
		}
	}
}

// TestEachReadingIsGiven holds that what next leaves out, as no other way to read a path, is none: of odd paths, of ordinary
// ones, of those behind a host, and of those that one server passes on to another.
func TestEachReadingIsGiven(t *testing.T) {
	whole := func(s *Segments) string {
		var all []string
		for place, more := 0, true; more; {
			var one string
			one, place, more = s.At(place)
			all = append(all, one)
		}
		return fmt.Sprintf("%q", all)
	}
	bits := []string{
		"/", "/", "/", "a", "b", "h", "..", ".", "%2e", "%2e%2e", "%2F", "%5C", `\`, ";", "#", "%3B", "%23", "%", "%25", " ", "\xa0", "\u00e0",
	}
	random := rand.New(rand.NewPCG(1, 2))
	var odd, plain, behind, handed int
	for range 30_000 {
		path := "/"
		for range random.IntN(9) {
			path += bits[random.IntN(len(bits))]
		}
		target, hosted := path, false
		if random.IntN(4) == 0 {
			target = "http:/" + path
		}
		if path, hosted = pathOf(withoutBlanks(target), false); path == "" {
			continue
		}
		given := map[string]bool{}
		for s := SpellingsOf(target, false); s.Next(); {
			given[whole(&s.Segments)] = true
		}
		check := func(o *oddPath, what string, n *int) {
			*n++
			for i, r := range readings {
				s := Segments{text: o.text, cuts: o.read(r)}
				if got := whole(&s); !given[got] {
					t.Fatalf("%s %q of %q: reading %d (%011b), %s, is not given", what, o.text, target, i, r, got)
				}
			}
		}
		switch o := newOddPath(path, hosted); {
		case hosted:
			check(o, "path behind a host", &behind)
		case Ordinary(path):
			check(o, "ordinary path", &plain)
		default:
			check(o, "path", &odd)
			c := newCutter(len(path)) // what a server passes on, however little the next one may find in it
			for i, cut := range o.read(readAndPassedOn) {
				if i > 0 {
					c.put('/', false)
				}
				for _, b := range []byte(o.text[cut.from:cut.to]) {
					c.put(b, b == '#')
				}
			}
			if next := c.done(); strings.ContainsAny(next.text, `;\`) {
				check(next, "passed on", &handed)
			}
		}
	}
	for _, n := range []int{odd, plain, behind, handed} {
		if n < 1000 {
			t.Errorf("%d odd paths, %d ordinary, %d behind a host, %d passed on: the test said nothing about one kind", odd, plain, behind, handed)
		}
	}
}

// TestWaysAreBounded holds that a path made to be costly is read as often as any other odd one.
func TestWaysAreBounded(t *testing.T) {
	for _, unit := range []string{"%2e%2e;/", "/a/..", "/", `\;#%2F%5C%3B`, "%2e%2e%2F", "/;a%3B/..", "%", `%u005c;x\..%2F#%2e%2e//`, "..;\xa0"} {
		path := "//h/" + strings.Repeat(unit, 8192/len(unit))
		ways := 0
		for s := SpellingsOf(path, false); s.Next(); {
			ways++
		}
		if most := mostWays(); ways > most {
			t.Errorf("8 KB of %q are read in %d ways, at most %d", unit, ways, most)
		}
	}
}

func TestDocumentTellsTheNumberOfWays(t *testing.T) {
	src, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	if told := fmt.Sprintf("at most %d ways", mostWays()); !strings.Contains(string(src), told) {
		t.Errorf("docs/rules.md does not say %q", told)
	}
}

// mostWays is in how many ways a path is read at most: as it stands, and with and without the blanks around it under all
// readings and under those that differ for what a server passes on.
func mostWays() int {
	const passedOn = readSemicolonEnd | readParameters | readBackslash | readDots | readEmptySegments | readAuthority
	differ := map[reading]bool{}
	for _, r := range readings {
		differ[r&passedOn] = true
	}
	return 1 + 2*(len(readings)+len(differ))
}
