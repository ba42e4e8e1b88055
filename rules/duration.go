package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// day is what the unit d stands for: 24 hours, not a calendar day.
const day = 24 * time.Hour

// durationUnit is one unit of the notation.
type durationUnit struct {
	letter byte
	length time.Duration
}

// durationUnits are the units of the notation, the longest first.
func durationUnits() [4]durationUnit {
	return [4]durationUnit{{'d', day}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}
}

// ParseDuration reads a duration as rules and flags write it: whole numbers with the units d, h, m and s, each at most
// once, the longest first, without spaces: 90s, 5m, 1h30m, 31d. A number without unit, a sign, a fraction and units
// below the second are refused.
func ParseDuration(s string) (time.Duration, error) {
	total, rest := time.Duration(0), s
	for _, unit := range durationUnits() {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits == len(rest) || rest[digits] != unit.letter {
			continue
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || n > int64((math.MaxInt64-total)/unit.length) {
			return 0, fmt.Errorf("%s is too long for a duration", quoteShort(s))
		}
		total += time.Duration(n) * unit.length
		rest = rest[digits+1:]
	}
	if s == "" || rest != "" {
		return 0, fmt.Errorf("%s is no duration, allowed are whole numbers with the units d, h, m, s, such as 5m or 1h30m", quoteShort(s))
	}
	return total, nil
}

// FormatDuration writes d as ParseDuration reads it, in its shortest form: 1m30s for 90 seconds, 1d for 24 hours, 0s
// for none. What is below a second is written as Go does ("1m0.5s"), negative durations with a leading minus;
// ParseDuration reads neither back.
func FormatDuration(d time.Duration) string {
	if d%time.Second != 0 {
		return d.String()
	}
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	if d < 0 {
		b.WriteByte('-')
		d = -d // whole seconds never reach the one value that has no opposite
	}
	for _, unit := range durationUnits() {
		if n := d / unit.length; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteByte(unit.letter)
			d %= unit.length
		}
	}
	return b.String()
}
