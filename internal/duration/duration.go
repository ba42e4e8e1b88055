// Package duration reads and writes durations as people do in rules, in the configuration and in flags: 90s, 1h30m, 31d.
package duration

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// day is what the unit d stands for: 24 hours, not a calendar day.
const day = 24 * time.Hour

// unit is one unit of the notation.
type unit struct {
	letter byte
	length time.Duration
}

// units are the units of the notation, the longest first.
func units() [4]unit {
	return [4]unit{{'d', day}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}
}

// Parse reads a duration as settings and flags take it: as ParseWhole does, or any that time.ParseDuration takes, with whole
// days before it or not: 250ms, 1.5h, 1d0.5h. A negative one is refused.
func Parse(s string) (time.Duration, error) {
	if d, err := ParseWhole(s); err == nil {
		return d, nil
	}
	days, rest := time.Duration(0), s
	if before, after, ok := strings.Cut(s, "d"); ok {
		whole, err := ParseWhole(before + "d")
		if err != nil {
			return 0, refused(s)
		}
		days, rest = whole, after
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-days {
		return 0, refused(s)
	}
	return days + d, nil
}

func refused(s string) error {
	hint := ""
	if meant := Meant(s); meant != "" {
		hint = "; did you mean " + meant + "?"
	}
	return fmt.Errorf("got %s; allowed: a duration like 90s, 15m, 24h or 7d%s", quote(s), hint)
}

// ParseWhole reads a duration as rules take it, of which every rule has one spelling of each unit: whole numbers with the
// units d, h, m and s, each at most once, the longest first, without spaces: 90s, 5m, 1h30m, 31d. A number without unit, a
// sign, a fraction and units below the second are refused.
func ParseWhole(s string) (time.Duration, error) {
	total, rest := time.Duration(0), s
	for _, u := range units() {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits == len(rest) || rest[digits] != u.letter {
			continue
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || n > int64((math.MaxInt64-total)/u.length) {
			return 0, fmt.Errorf("got %s; allowed: a duration of at most 106751d", quote(s))
		}
		total += time.Duration(n) * u.length
		rest = rest[digits+1:]
	}
	if s == "" || rest != "" {
		return 0, fmt.Errorf("got %s; allowed: whole numbers with the units d, h, m, s, such as 5m or 1h30m", quote(s))
	}
	return total, nil
}

// Meant is the duration that was probably meant by a text that ParseWhole refuses, as it would take it: 5m for 5min or "5 minutes",
// 1h30m for 1.5h, 7d for 1w, 30d for 1M. Empty for a text that says none.
func Meant(s string) string {
	const most = 1000 * day
	parts := regexp.MustCompile(`^\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)`)
	total := time.Duration(0)
	for rest := s; strings.TrimSpace(rest) != ""; {
		m := parts.FindStringSubmatch(rest)
		if m == nil {
			return ""
		}
		number, err := strconv.ParseFloat(m[1], 64)
		length := lengthOf(m[2])
		if err != nil || length == 0 || number*float64(length) > float64(most) {
			return ""
		}
		total += time.Duration(math.Round(number * float64(length)))
		rest = rest[len(m[0]):]
	}
	if total < time.Second || total > most || total%time.Second != 0 {
		return ""
	}
	return Format(total)
}

// lengthOf is the length of a unit as people spell it; 0 for none. A month is that of retention times, 30 days.
func lengthOf(unit string) time.Duration {
	if unit == "M" {
		return 30 * day
	}
	switch strings.TrimSuffix(strings.ToLower(unit), "s") {
	case "", "sec", "second":
		return time.Second
	case "m":
		if len(unit) > 1 {
			return 0 // milliseconds, or nothing
		}
		return time.Minute
	case "min", "minute":
		return time.Minute
	case "h", "hr", "hour":
		return time.Hour
	case "d", "day":
		return day
	case "w", "wk", "week":
		return 7 * day
	case "mo", "month":
		return 30 * day
	}
	return 0
}

// quote is s in quotes, at most 60 bytes of it.
func quote(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(strings.ToValidUTF8(s[:most], "")), len(s))
}

// Format writes d as ParseWhole reads it, in its shortest form: 1m30s for 90 seconds, 1d for 24 hours, 0s for none. What is
// below a second is written as Go does (1m0.5s), which Parse reads back; negative durations have a leading minus, which
// neither reads.
func Format(d time.Duration) string {
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
	for _, u := range units() {
		if n := d / u.length; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteByte(u.letter)
			d %= u.length
		}
	}
	return b.String()
}
