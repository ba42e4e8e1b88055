package format

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestScaledAgainstBigRat compares with arbitrary precision arithmetic.
func TestScaledAgainstBigRat(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		text := number.Draw(t, "text")
		shift := rapid.IntRange(-3, 6).Draw(t, "shift")
		d, ok := parseDecimal(text)
		if !ok {
			t.Fatalf("refused %q", text)
		}
		got, exact, fits := d.scaled(shift)

		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("big.Rat refuses %q", text)
		}
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil))
		if shift < 0 {
			power.Inv(power)
		}
		want.Mul(want, power)
		floor := new(big.Int).Div(want.Num(), want.Denom()) // Euclidean, which is the floor for a positive divisor
		inRange := new(big.Int).Abs(floor).IsInt64()
		switch {
		case fits && floor.Cmp(big.NewInt(got)) != 0:
			t.Fatalf("%s × 10^%d: got %d, want %s", text, shift, got, floor)
		case fits && exact != want.IsInt():
			t.Fatalf("%s × 10^%d: exact is %v", text, shift, exact)
		case !fits && inRange:
			t.Fatalf("%s × 10^%d: does not fit, want %s", text, shift, floor)
		}
	})
}

func TestParseDecimal(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "007": true, "-1": true, ".5": true, "5.": true, "1e5": true, "1E+05": true, "-0.0e-0": true,
		"": false, "-": false, ".": false, "e5": false, "1e": false, "1e+": false, "+1": false, "1x": false, "1.2.3": false,
		" 1": false, "1 ": false, "0x10": false, "NaN": false, "1e5x": false,
	} {
		if _, got := parseDecimal(text); got != want {
			t.Errorf("parseDecimal(%q): got %v", text, got)
		}
	}
}

func TestHugeExponents(t *testing.T) {
	for text, fits := range map[string]bool{"0e99999999999999999999": true, "1e99999999999999999999": false, "1e-99999999999999999999": true} {
		d, ok := parseDecimal(text)
		if v, _, got := d.scaled(6); !ok || got != fits || v != 0 {
			t.Errorf("%s: got %d, %v", text, v, got)
		}
	}
}
