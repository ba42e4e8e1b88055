package format

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		path, attrs string
		want        int64
		fault       UnitsFault
	}{
		{"attrs.cost", `{"cost":7}`, 7, UnitsFine},
		{"attrs.cost", ` { "x" : [1,{"cost":9}] , "cost" : 0 } `, 0, UnitsFine},
		{"attrs.cost", `{"cost":70e-1}`, 7, UnitsFine},
		{"attrs.cost", `{"cost":7.000}`, 7, UnitsFine},
		{"attrs.cost", `{"cost":-0}`, 0, UnitsFine},
		{"attrs.cost", `{"cost":1,"cost":2}`, 2, UnitsFine},
		{"attrs.cost", `{"cost":1,"cost":null}`, 0, UnitsAbsent},
		{"attrs.cost", `{"c\u006fst":3}`, 3, UnitsFine},
		{"attrs.cost", `{"cost":2147483647}`, MaxUnits, UnitsFine},
		{"attrs.cost", `{"cost":2147483648}`, MaxUnits, UnitsFine},
		{"attrs.cost", `{"cost":1e999999999}`, MaxUnits, UnitsFine},
		{"attrs.cost", `{"cost":-1e999999999}`, 0, UnitsNegative},
		{"attrs.cost", `{"cost":-1}`, 0, UnitsNegative},
		{"attrs.cost", `{"cost":-0.5}`, 0, UnitsNegative},
		{"attrs.cost", `{"cost":0.5}`, 0, UnitsFraction},
		{"attrs.cost", `{"cost":1e-999999999}`, 0, UnitsFraction},
		{"attrs.cost", `{"cost":"7"}`, 0, UnitsNoNumber},
		{"attrs.cost", `{"cost":true}`, 0, UnitsNoNumber},
		{"attrs.cost", `{"cost":{}}`, 0, UnitsNoNumber},
		{"attrs.cost", `{"cost":[7]}`, 0, UnitsNoNumber},
		{"attrs.cost", `{"Cost":7}`, 0, UnitsAbsent},
		{"attrs.cost", `{}`, 0, UnitsAbsent},
		{"attrs.cost", `7`, 0, UnitsAbsent},
		{"attrs.cost", `null`, 0, UnitsAbsent},
		{"attrs.cost", ``, 0, UnitsAbsent},
		{"attrs.usage.tokens", `{"usage":{"tokens":12}}`, 12, UnitsFine},
		{"attrs.usage.tokens", `{"usage":{"tokens":12},"usage":{"tokens":13}}`, 13, UnitsFine},
		{"attrs.usage.tokens", `{"usage":{"tokens":12},"usage":5}`, 0, UnitsAbsent},
		{"attrs.usage.tokens", `{"usage.tokens":12}`, 0, UnitsAbsent},
		{"attrs.größe", `{"größe":4}`, 4, UnitsFine},
	} {
		p, err := ParseAttrPath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got, fault := p.Units([]byte(c.attrs)); got != c.want || fault != c.fault {
			t.Errorf("%s of %s: got %d, %s, want %d, %s", c.path, c.attrs, got, fault, c.want, c.fault)
		}
	}
	if got, fault := (AttrPath{}).Units([]byte(`7`)); got != 0 || fault != UnitsAbsent {
		t.Errorf("no path: got %d, %s", got, fault)
	}
}

func TestParseAttrPathRefuses(t *testing.T) {
	for _, s := range []string{"", "attrs", "attrs.", "cost", "Attrs.cost", "attrs.a..b", "attrs.a.", "attrs..a", "attrs.\x00", "attrs.\xff",
		"attrs." + strings.Repeat("a", MaxAttrPathBytes)} {
		if p, err := ParseAttrPath(s); err == nil {
			t.Errorf("%q: got %v", s, p)
		}
	}
}

func TestUnitsFaultNames(t *testing.T) {
	seen := map[string]bool{}
	for f := UnitsFine; f <= NumUnitsFaults; f++ {
		if name := f.String(); name == "" || seen[name] {
			t.Errorf("fault %d is called %q", f, name)
		} else {
			seen[name] = true
		}
	}
}

// FuzzUnits holds Units to what encoding/json and math/big find at the path.
func FuzzUnits(f *testing.F) {
	for _, attrs := range []string{`{"cost":7}`, `{"a":{"b":{"cost":-1.5e3}}}`, `{"a":1,"a":{"cost":1e400}}`, `{"cost":"7","x":[{}]}`, `[]`, `{"\u0063ost":00}`} {
		f.Add("attrs.cost", []byte(attrs))
		f.Add("attrs.a.b.cost", []byte(attrs))
	}
	f.Fuzz(func(t *testing.T, path string, attrs []byte) {
		p, err := ParseAttrPath(path)
		if err != nil {
			return
		}
		got, fault := p.Units(attrs)
		if got < 0 || got > MaxUnits || fault >= NumUnitsFaults || fault != UnitsFine && got != 0 {
			t.Fatalf("%s of %q: got %d, %s", path, attrs, got, fault)
		}
		if !json.Valid(attrs) || !utf8.Valid(attrs) || depthOf(attrs) > maxDepth || bytes.Contains(attrs, []byte(`\u`)) {
			return // what a decoder refuses, and where the two read escapes differently
		}
		if want, wantFault := unitsByTree(t, strings.Split(path, ".")[1:], attrs); got != want || fault != wantFault {
			t.Fatalf("%s of %q: got %d, %s, want %d, %s", path, attrs, got, fault, want, wantFault)
		}
	})
}

func unitsByTree(t *testing.T, names []string, attrs []byte) (int64, UnitsFault) {
	var v any
	d := json.NewDecoder(bytes.NewReader(attrs))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		object, ok := v.(map[string]any)
		if !ok {
			return 0, UnitsAbsent
		}
		v = object[name]
	}
	if v == nil {
		return 0, UnitsAbsent
	}
	text, ok := v.(json.Number)
	if !ok {
		return 0, UnitsNoNumber
	}
	if i := strings.IndexAny(text.String(), "eE"); i >= 0 && len(text)-i > 5 {
		t.Skip("an exponent that takes math/big too long")
	}
	n, ok := new(big.Rat).SetString(text.String())
	switch {
	case !ok:
		t.Fatalf("math/big does not take %s", text)
	case n.Sign() < 0:
		return 0, UnitsNegative
	case n.Cmp(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 63))) >= 0:
		return MaxUnits, UnitsFine
	case !n.IsInt():
		return 0, UnitsFraction
	}
	return min(n.Num().Int64(), MaxUnits), UnitsFine
}
