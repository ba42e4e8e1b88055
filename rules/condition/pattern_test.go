package condition

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// somePatterns use each thing that patterns have.
var somePatterns = []string{
	``, `a`, `^a`, `a$`, `^$`, `^a$`, `a|b`, `ab*c`, `a+?b`, `(a*)*b`, `(?i)straße|k`, `(?i)[a-k]x`, `[^a]b`, `.`, `(?s).$`, `.*b.`, `\bab\b`, `\Ba`, `a\b|^\B`,
	`(?m)^b$`, `(?m)a$\n^b`, `\Aa\z`, `\pL+\d`, `[^\pL]a`, `\p{Greek}\P{Latin}`, `é|[à-ü]{2}`, `\x{10FFFF}`, `\x{FFFD}a`, `[\x{D7FF}-\x{E000}]b`, `a{2,4}b`, `(?:a|b){3}c`,
	`(ab|a)(bc|c)?$`, `^(a|ab)(c|bcd)$`, `(?i)(bot|crawl|spider|curl)/\d`, `^/v[0-9]+/login$`, `^\d{1,3}(\.\d{1,3}){3}$`, `a.{6}b`, `(^|x)a`, `(?m)(^|x)a($|y)`, `\n`, `[[:^alpha:]]a`,
	`$^`, `a\z|b`, `(?:)|a`, `[^\x00-\x{10FFFF}]`, `(?-s).a`, `(?U)a+b`, `x*`, `(?i)ſ`, `(?i)[^k]K`,
}

var someLetters = []string{"a", "b", "c", "A", "K", "k", "K", "ſ", "s", "x", "0", "9", "/", ".", "_", " ", "\n", "é", "à", "α", "\U0010FFFF", "\uFFFD", "\xff", "\xe2\x82", "\x00", "bot", "/v1"}

// A table says what Go's regexp says.
func TestPatternsAgreeWithRegexp(t *testing.T) {
	held := 0
	for _, text := range somePatterns {
		p, err := compilePattern(text, MaxPatternTable)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := regexp.MustCompile(text)
		for n := range 100 {
			rapid.Check(t, func(t *rapid.T) {
				s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(someLetters), 0, 12).Draw(t, "text"), "")
				if got := p.match(s); got != want.MatchString(s) {
					t.Fatalf("%q of %q: got %v", text, s, got)
				} else if got {
					held++
				}
			})
			if n >= 2 {
				break
			}
		}
	}
	if held < 1000 {
		t.Errorf("%d texts matched: the test has shown little", held)
	}
}

func FuzzPattern(f *testing.F) {
	for _, text := range somePatterns {
		f.Add(text, "ab 9é\n\xff/v1")
	}
	f.Fuzz(func(t *testing.T, text, s string) {
		prog, err := programOf(text)
		if err != nil || len(prog.Inst) > MaxPattern || len(s) > MaxText {
			return
		}
		p, err := compilePattern(text, MaxPatternTable)
		if err != nil {
			if !errors.Is(err, errPatternTable) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if got, want := p.match(s), regexp.MustCompile(text).MatchString(s); got != want {
			t.Fatalf("%q of %q: got %v, want %v", text, s, got, want)
		}
	})
}

// Patterns whose tables would be great are refused before they are made: each cell costs memory, and time to make.
func TestGreatPatternsAreRefused(t *testing.T) {
	l := language(t)
	const table, room = "a pattern that has to remember too much of what it has read", "patterns whose tables have at most 32768 cells together"
	for _, tt := range []struct{ expr, want string }{
		{`event.path.matches("a.{16}b")`, "line 1, column 20: got " + table},
		{`event.path.matches("a.{12}b")`, "line 1, column 20: got " + table},
		{`event.path.matches("^a.{16}b")`, ""},
		{`event.path.matches("(x|y)?a.{14}(b|c).{14}d")`, room},
		{`event.path.matches("a.{11}b")`, ""},
		{`event.path.matches("a.{11}b") && event.plan.matches("a.{11}c")`, room},
		{`event.path.matches("a.{11}b") && event.plan.matches("a.{11}b")`, ""}, // one table
		{`event.path.matches("` + every("\\\\p{%s}", "Greek Latin Han Arabic Thai Lao Khmer Cyrillic Hebrew Tamil Bengali Gujarati Oriya Telugu Hiragana Runic Ogham Cham Lisu Miao L N P S Z C M") + `")`, ""},
		{strings.Repeat(`event.path.matches("a") || `, MaxPatterns-1) + `event.path.matches("a")`, ""},
		{strings.Repeat(`event.path.matches("a") || `, MaxPatterns) + `event.path.matches("a")`, "got one more pattern, allowed at most 4 in one condition; one pattern has alternatives: a|b"},
	} {
		_, err := l.Compile(tt.expr)
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.expr, err, tt.want)
		}
	}
}

func every(form, words string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(words) {
		fmt.Fprintf(&b, form, word)
	}
	return b.String()
}

// No pattern, and no text, makes a character cost more than one look.
func TestAPatternLooksOncePerCharacter(t *testing.T) {
	for _, text := range append(somePatterns, strings.Repeat("(x|y)?", 60), "a.{11}b", "(?i)\\pL{400}$") {
		p, err := compilePattern(text, MaxPatternTable)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for state := int(patternBegins); state < p.cells()/(p.end+1); state++ {
			for class := range p.end + 1 {
				if next := int(p.next[state*(p.end+1)+class]); next >= p.cells()/(p.end+1) || class == p.end && next >= int(patternBegins) {
					t.Fatalf("%q: state %d, class %d leads to %d", text, state, class, next)
				}
			}
		}
		if n := testing.AllocsPerRun(10, func() { p.match("some text of é\n\xff") }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
	if !utf8.ValidString(strings.Join(somePatterns, "")) {
		t.Error("a pattern that is no text")
	}
}

// BenchmarkPattern is what a pattern costs for the longest text, each of them the worst that is known, and Go's regexp beside it.
func BenchmarkPattern(b *testing.B) {
	ascii, wide := strings.Repeat("xy", MaxText/2), strings.Repeat("éü", MaxText/4)
	for _, bench := range []struct{ name, pattern, text string }{
		{"optional", strings.Repeat("(x|y)?", 60) + "z", ascii},
		{"states", "x.{11}b", ascii},
		{"letters", `(?i)\pL{400}1`, wide},
		{"agents", `(?i)(bot|crawl|spider|curl)/\d`, ascii},
	} {
		p, err := compilePattern(bench.pattern, MaxPatternTable)
		if err != nil {
			b.Fatal(err)
		}
		r := regexp.MustCompile(bench.pattern)
		for name, match := range map[string]func(string) bool{"table": p.match, "regexp": r.MatchString} {
			b.Run(bench.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					match(bench.text)
				}
			})
		}
	}
}
