package shown

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Count writes a number with a narrow space between thousands: 12 345. From ten million on it is rounded: 18.2 M.
func Count[N int | int64](n N) string {
	v := int64(n)
	if v < 0 {
		return "−" + Count(-v)
	}
	if v >= 10_000_000 {
		return Short(float64(v))
	}
	digits := strconv.FormatInt(v, 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteRune('\u202f')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// Short writes a number in four characters or so: 950, 1.2 k, 18 M.
func Short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= u.size {
			return trimmed(v/u.size) + "\u202f" + u.name
		}
	}
	return trimmed(v)
}

// trimmed has one decimal below 100, and none where that is 0.
func trimmed(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// Bytes writes a size: 1.5 GB.
func Bytes(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	short := Short(float64(n))
	return strings.Replace(short, "k", "kB", 1) + map[bool]string{true: "", false: "B"}[strings.Contains(short, "k")]
}

// Saturating is a number that stops at 64: 64+.
func Saturating(n int) string {
	if n >= 64 {
		return "64+"
	}
	return strconv.Itoa(n)
}

// Span writes a duration of a rule: 90 s, 5 min, 1 h.
func Span(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= u.size && d%u.size == 0 {
			return fmt.Sprintf("%d %s", d/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// About writes how long something lasts, to two units at most: 3 d 4 h, 12 min, 8 s. What is below a second is "0 s".
func About(d time.Duration) string {
	type unit struct {
		size time.Duration
		name string
	}
	units := []unit{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		first := fmt.Sprintf("%d %s", d/u.size, u.name)
		if i+1 == len(units) {
			return first
		}
		next := units[i+1]
		if rest := d % u.size / next.size; rest > 0 {
			return first + fmt.Sprintf(" %d %s", rest, next.name)
		}
		return first
	}
	return "0 s"
}

// Clock is the time of day, UTC; empty for no time.
func Clock(t traffic.Time) string { return formatted(t, time.TimeOnly) }

// Stamp is date and time to the second, UTC; empty for no time.
func Stamp(t traffic.Time) string { return formatted(t, time.DateTime) }

func formatted(t traffic.Time, layout string) string {
	if t == 0 {
		return ""
	}
	return t.Std().UTC().Format(layout)
}

// When is Clock of a time of the same day as now, and date and time to the minute of all others.
func When(t, now traffic.Time) string {
	if t == 0 {
		return ""
	}
	if formatted(t, time.DateOnly) == formatted(now, time.DateOnly) {
		return Clock(t)
	}
	return formatted(t, "2006-01-02 15:04")
}
