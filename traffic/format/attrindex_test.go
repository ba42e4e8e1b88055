package format

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// wantAsScanned holds what an index says of attrs to what each path finds by itself, whatever was asked before.
func wantAsScanned(t *testing.T, x *AttrIndex, attrs []byte, paths []AttrPath) {
	t.Helper()
	x.Reset(attrs)
	for _, p := range paths {
		if got, want := x.Value(p), p.Value(attrs); !reflect.DeepEqual(got, want) {
			t.Errorf("%q of %q: value %+v, want %+v", p.names, attrs, got, want)
		}
		got, ok := x.Text(p)
		if want, has := p.Text(attrs); got != want || ok != has {
			t.Errorf("%q of %q: text %q %v, want %q %v", p.names, attrs, got, ok, want, has)
		}
		units, fault := x.Units(p)
		if want, wrong := p.Units(attrs); units != want || fault != wrong {
			t.Errorf("%q of %q: units %d %s, want %d %s", p.names, attrs, units, fault, want, wrong)
		}
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d": %d, `, i, i)
	}
	return `{` + b.String() + `"a": 7}`
}

func TestAttrIndexIsAsTheScanner(t *testing.T) {
	var x AttrIndex
	paths := []AttrPath{AttrPathOf("a"), AttrPathOf("a", "b"), AttrPathOf("b"), AttrPathOf(""), AttrPathOf("é"), AttrPathOf("m3"), AttrPathOf("none"), AttrPathOf(), AttrPathOf("a", "b", "c")}
	for _, attrs := range []string{
		``, ` `, `7`, `"a"`, `null`, `[{"a": 1}]`, `{}`, ` { } `, `{"a":1}`, ` {"a" : 1 , "b" : "x"} `, "{\n\t\"a\":\r\n1e3\n}",
		`{"a": {"b": {"c": 1}}, "b": [1, [2, {"a": "]}"}]]}`, `{"a": "x\"}", "b": "\\", "é": "\u00e9"}`, `{"": true, "a": -0.5, "b": false}`,
		`{"\u0061": 1, "b": 2}`, `{"a": 1e400, "b": 123456789012345678901234567890}`, `{"a": 999999999999999999, "b": 1000000000000000000}`, `{"a": 0, "b": -0}`,
		manyMembers(maxAttrMembers - 1), manyMembers(maxAttrMembers), manyMembers(maxAttrMembers + 9),
		`{"a": "` + strings.Repeat("x", 1<<16) + `", "b": [` + strings.Repeat(`{"a": "b"}, `, 1000) + `1]}`,
	} {
		for range 2 { // memory that is used again
			wantAsScanned(t, &x, []byte(attrs), paths)
		}
	}
}

// Where a name repeats, the last one counts, however each is spelled.
func TestAttrIndexTakesTheLastOfAName(t *testing.T) {
	var x AttrIndex
	for _, attrs := range []string{`{"a": 1, "a": 2}`, `{"a": 1, "b": 3, "\u0061": 2}`, `{"\u0061": 1, "a": 2}`, `{"a": {"b": 1}, "a": 2}`, `{"a": 1, ` + manyMembers(100)[1:len(manyMembers(100))-1] + `, "a": 2}`} {
		x.Reset([]byte(attrs))
		if got := x.Value(AttrPathOf("a")); got.Kind != AttrWhole || got.Whole != 2 {
			t.Errorf("%s: got %+v", attrs, got)
		}
		wantAsScanned(t, &x, []byte(attrs), []AttrPath{AttrPathOf("a"), AttrPathOf("a", "b"), AttrPathOf("b")})
	}
	x.Reset([]byte(`{"a": {"b": 1}, "a": 2}`))
	if got := x.Value(AttrPathOf("a", "b")); got.Kind != AttrMissing {
		t.Errorf("a member of one that does not count: %+v", got)
	}
}

// However long attrs are, their members are found by one scan, without memory.
func TestAttrIndexScansOnce(t *testing.T) {
	attrs := []byte(`{"long": "` + strings.Repeat(`\"x]}`, 1<<18) + `", "list": [` + strings.Repeat(`{"a": "b"}, `, 1<<15) + `1], "a": 1, "b": 2}`)
	var x AttrIndex
	a, b := AttrPathOf("a"), AttrPathOf("b")
	if n := testing.AllocsPerRun(5, func() {
		x.Reset(attrs)
		if x.Value(a).Whole != 1 || x.Value(b).Whole != 2 || x.state != attrsKnown || x.n != 4 {
			t.Fatalf("state %d, %d members", x.state, x.n)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzAttrIndex: of whatever a decoder takes for attrs an index says what the scanner says; of anything else it says something.
func FuzzAttrIndex(f *testing.F) {
	f.Add(`{"a": {"b": [1, "x"]}, "a": "y\"", "\u0061": 7}`, "a", "b")
	f.Add(manyMembers(70), "m69", "")
	f.Add(`{"a":1`, "a", "b")
	f.Fuzz(func(t *testing.T, attrs, name, inner string) {
		paths := []AttrPath{AttrPathOf(name), AttrPathOf(name, inner), AttrPathOf(inner), AttrPathOf("a"), AttrPathOf()}
		var x AttrIndex
		s := scanner{b: []byte(attrs)}
		if s.space(); s.skip() != nil || s.end() != nil {
			x.Reset([]byte(attrs))
			for _, p := range paths {
				x.Value(p)
				x.Text(p)
				x.Units(p)
			}
			return
		}
		wantAsScanned(t, &x, []byte(attrs), paths)
	})
}
