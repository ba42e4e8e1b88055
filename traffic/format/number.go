package format

import (
	"math"
	"strconv"
	"strings"
)

// number reads a JSON number and returns its text, which aliases the input.
func (s *scanner) number() (string, error) {
	start := s.i
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++ // and no digit may follow: whoever reads on refuses it
	} else if s.digits() == 0 {
		return "", s.unexpected("a digit")
	}
	if s.peek() == '.' {
		s.i++
		if s.digits() == 0 {
			return "", s.unexpected("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if s.digits() == 0 {
			return "", s.unexpected("a digit")
		}
	}
	return alias(s.b[start:s.i]), nil
}

// digits passes digits and counts them.
func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i - start
}

// decimal is a number's text, taken apart: ±digits × 10^(point - len(digits)), where digits are those of whole and
// frac in a row.
type decimal struct {
	negative    bool
	whole, frac string
	exponent    int
}

// parseDecimal takes JSON numbers and the looser forms that logs have: leading zeros, no digit before or after the
// point. At least one digit is needed.
func parseDecimal(s string) (d decimal, ok bool) {
	if s != "" && s[0] == '-' {
		d.negative, s = true, s[1:]
	}
	n := digitRun(s)
	d.whole, s = s[:n], s[n:]
	if s != "" && s[0] == '.' {
		n = digitRun(s[1:])
		d.frac, s = s[1:1+n], s[1+n:]
	}
	if d.whole == "" && d.frac == "" {
		return d, false
	}
	if s == "" {
		return d, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return d, false
	}
	s = s[1:]
	sign := 1
	if s != "" && (s[0] == '+' || s[0] == '-') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	if s == "" || digitRun(s) != len(s) {
		return d, false
	}
	for i := 0; i < len(s); i++ {
		// Far beyond any number of digits that a message can hold, all exponents are alike.
		d.exponent = min(d.exponent*10+int(s[i]-'0'), math.MaxInt32)
	}
	d.exponent *= sign
	return d, true
}

func digitRun(s string) int {
	n := 0
	for n < len(s) && s[n]-'0' <= 9 {
		n++
	}
	return n
}

// shortDigits is how many decimal digits every int64 has room for.
const shortDigits = 18

// scaled is floor(d × 10^shift), without a detour over floating point. exact is false if the floor dropped anything, ok
// is false if the result is beyond int64.
func (d *decimal) scaled(shift int) (v int64, exact, ok bool) {
	if len(d.whole) <= shortDigits && d.frac == "" && d.exponent == 0 && shift == 0 {
		for i := 0; i < len(d.whole); i++ {
			v = v*10 + int64(d.whole[i]-'0')
		}
		if d.negative {
			v = -v
		}
		return v, true, true
	}
	point := len(d.whole) + d.exponent + shift // digits before the point of the result
	total := len(d.whole) + len(d.frac)
	exact = true
	for i := 0; i < total; i++ {
		digit := d.digit(i)
		if i >= point {
			if digit != 0 {
				exact = false
				break
			}
			continue
		}
		if v > (math.MaxInt64-digit)/10 {
			return 0, false, false
		}
		v = v*10 + digit
	}
	for i := total; i < point && v != 0; i++ {
		if v > math.MaxInt64/10 {
			return 0, false, false
		}
		v *= 10
	}
	if d.negative {
		v = -v
		if !exact {
			v--
		}
	}
	return v, exact, true
}

func (d *decimal) digit(i int) int64 {
	if i < len(d.whole) {
		return int64(d.whole[i] - '0')
	}
	return int64(d.frac[i-len(d.whole)] - '0')
}

// plainDigits is how many digits a number is written with before it takes an exponent.
const plainDigits = 21

// text writes d in the one spelling of its number. written is how it came: most numbers are in that spelling already.
func (d *decimal) text(written string) string {
	if d.frac == "" && d.exponent == 0 && len(d.whole) <= plainDigits && (d.whole[0] != '0' || d.whole == "0" && !d.negative) {
		return written
	}
	digits := strings.TrimLeft(d.whole+d.frac, "0")
	exponent := d.exponent - len(d.frac) // of the last digit
	if plain := strings.TrimRight(digits, "0"); len(plain) < len(digits) {
		exponent += len(digits) - len(plain)
		digits = plain
	}
	if digits == "" {
		return "0"
	}
	var b strings.Builder
	if d.negative {
		b.WriteByte('-')
	}
	switch point := len(digits) + exponent; { // how many digits stand before the point
	case exponent >= 0 && point <= plainDigits:
		b.WriteString(digits + strings.Repeat("0", exponent))
	case exponent < 0 && point > 0 && len(digits) <= plainDigits:
		b.WriteString(digits[:point] + "." + digits[point:])
	case exponent < 0 && point <= 0 && len(digits)-point <= plainDigits:
		b.WriteString("0." + strings.Repeat("0", -point) + digits)
	default:
		b.WriteString(digits + "e" + strconv.Itoa(exponent))
	}
	return b.String()
}
