package format

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

func TestAttrText(t *testing.T) {
	for _, c := range []struct{ attrs, want string }{
		{`{"a":"acme"}`, "acme"},
		{`{"a":"\u0041\u0000"}`, "A\x00"},
		{`{"a":7}`, "7"},
		{`{"a":7.0}`, "7"},
		{`{"a":70e-1}`, "7"},
		{`{"a":0.7E1}`, "7"},
		{`{"a":-0.50}`, "-0.5"},
		{`{"a":5e-1}`, "0.5"},
		{`{"a":-0}`, "0"},
		{`{"a":0.000e99}`, "0"},
		{`{"a":100}`, "100"},
		{`{"a":1e2}`, "100"},
		{`{"a":123456789012345678901}`, "123456789012345678901"},
		{`{"a":1234567890123456789010}`, "123456789012345678901e1"},
		{`{"a":1e21}`, "1e21"},
		{`{"a":1e20}`, "100000000000000000000"},
		{`{"a":1e999999999}`, "1e999999999"},
		{`{"a":9007199254740993}`, "9007199254740993"},
		{`{"a":true}`, "true"},
		{`{"a":false}`, "false"},
		{`{"a":1,"a":"x"}`, "x"},
		{`{"a":null}`, ""},
		{`{"a":""}`, ""},
		{`{"a":{}}`, ""},
		{`{"a":["x"]}`, ""},
		{`{"a":"x"`, ""},
		{`{"b":1}`, ""},
		{`"a"`, ""},
		{``, ""},
	} {
		p, err := ParseAttrPath("attrs.a")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := p.Text([]byte(c.attrs)); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, %t, want %q", c.attrs, got, ok, c.want)
		}
	}
	if _, ok := (AttrPath{}).Text([]byte(`7`)); ok {
		t.Error("no path has a text")
	}
}

// FuzzAttrText holds that equal numbers have one text, which is a spelling of the number, and that it never grows beyond
// what came, but for the zeros of a small exponent.
func FuzzAttrText(f *testing.F) {
	for _, seed := range []string{"7", "-0.50", "1e21", "123456789012345678901234", "0.00000000000000000000012", "9e-7", "00", "1e99999999999999999999"} {
		f.Add(seed)
	}
	p, err := ParseAttrPath("attrs.a")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, number string) {
		attrs := []byte(`{"a":` + number + `}`)
		got, ok := p.Text(attrs)
		if !json.Valid(attrs) || !ok {
			return
		}
		if len(got) > len(number)+plainDigits+2 && strings.IndexByte(`"`, number[0]) < 0 {
			t.Errorf("%s became %s", number, got)
		}
		again, _ := p.Text([]byte(`{"a":` + got + `}`))
		trimmed := strings.TrimSpace(number)
		if c := trimmed[0]; c != '-' && (c < '0' || c > '9') || len(number) > 40 || strings.ContainsAny(number, "eE") && len(number) > 8 {
			return
		}
		if again != got {
			t.Errorf("%s became %s, and that %s", number, got, again)
		}
		want, wantOK := new(big.Rat).SetString(trimmed)
		have, haveOK := new(big.Rat).SetString(got)
		if wantOK && (!haveOK || want.Cmp(have) != 0) {
			t.Errorf("%s became %s", number, got)
		}
	})
}
