package duration

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseWhole(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0s": 0, "1s": time.Second, "90s": 90 * time.Second, "5m": 5 * time.Minute, "05m": 5 * time.Minute,
		"1h30m": 90 * time.Minute, "31d": 31 * day, "1d2h3m4s": day + 2*time.Hour + 3*time.Minute + 4*time.Second, "1d1s": day + time.Second,
	} {
		if got, err := ParseWhole(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "5", "m", "5 m", " 5m", "5m ", "-5m", "+5m", "1.5h", "5ms", "5us", "5M", "1m1h", "1m1m", "5w", "5m\x00", "५m",
		"9223372036854775807d", "106752d", "106751d23h47m17s", "99999999999999999999s", strings.Repeat("1", 1_000_000),
	} {
		got, err := ParseWhole(s)
		if err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		} else if len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	if got, err := ParseWhole("106751d23h47m16s"); err != nil || got != 9223372036*time.Second {
		t.Errorf("the longest: got %v, %v", got, err)
	}
}

func TestParseTakesWhatRulesTakeAndWhatGoTakes(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "-0s": 0, "+5m": 5 * time.Minute, "5m": 5 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour,
		"250ms": 250 * time.Millisecond, "1.5h": 90 * time.Minute, ".5s": 500 * time.Millisecond, "90m30s": 90*time.Minute + 30*time.Second,
		"1m1h": 61 * time.Minute, "10us": 10 * time.Microsecond, "10µs": 10 * time.Microsecond, "7ns": 7,
		"1d0.5h": day + 30*time.Minute, "1d250ms": day + 250*time.Millisecond,
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "5", "m", "5 m", " 5m", "-5m", "5M", "5w", "d", "1.5d", "-1d", "1h1d", "1d1d", "1d-1h", "+1d", "106752d", "106751d24h", "106751d1000000.5h",
		"9223372036854775807d", strings.Repeat("1", 1_000_000),
	} {
		got, err := Parse(s)
		if err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		} else if len(err.Error()) > 300 || !strings.Contains(err.Error(), "allowed: a duration like 90s") {
			t.Errorf("%q: got %v", s, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1m30s": 90 * time.Second, "1d": day, "31d": 31 * day, "1d12h": 36 * time.Hour, "-5m": -5 * time.Minute,
		"1.5s": 1500 * time.Millisecond, "-2562047h47m16.854775808s": -1 << 63,
	} {
		if got := Format(d); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 9223372036).Draw(t, "seconds")) * time.Second
		if got, err := ParseWhole(Format(d)); err != nil || got != d {
			t.Fatalf("%v is written as %s and read as %v, %v", d, Format(d), got, err)
		}
		d += min(time.Duration(rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")), math.MaxInt64-d)
		if got, err := Parse(Format(d)); err != nil || got != d {
			t.Fatalf("%v is written as %s and Parse reads %v, %v", d, Format(d), got, err)
		}
	})
}

func TestMeant(t *testing.T) {
	for s, want := range map[string]string{
		"5min": "5m", "5 minutes": "5m", "1.5h": "1h30m", "1w": "7d", "1M": "30d", "60 sec": "1m", "1 hour 30 min": "1h30m", "1H": "1h",
		"30m1h": "1h30m", "2days": "2d", "1month": "30d", "90S": "1m30s",
		"": "", "60": "", "500ms": "", "0.5s": "", "-5m": "", "soon": "", "5 apples": "", "99999999d": "", "999999999999999999999h": "",
	} {
		if got := Meant(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
		if _, err := ParseWhole(want); want != "" && err != nil {
			t.Errorf("%q: what is meant is no duration: %v", s, err)
		}
	}
}
