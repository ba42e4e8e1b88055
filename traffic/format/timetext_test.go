package format

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

func TestParseRFC3339AgainstStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(int64(minEventTime), int64(maxEventTime)).Draw(t, "us")
		minutes := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "zone")
		at := time.UnixMicro(us).In(time.FixedZone("", minutes*60))
		if y := at.Year(); y < 0 || y > 9999 {
			t.Skip("not a year of four digits")
		}
		layout := rapid.SampledFrom([]string{time.RFC3339Nano, "2006-01-02T15:04:05.000000000Z07:00", "2006-01-02 15:04:05.000000Z07:00"}).Draw(t, "layout")
		text := at.Format(layout)
		for _, lax := range []bool{false, true} {
			if got, ok := parseRFC3339(text, lax); !ok || got != traffic.Time(us) {
				t.Fatalf("%s: got %d, %v, want %d", text, got, ok, us)
			}
		}
		whole := at.Truncate(time.Second)
		if got, ok := parseTimeLocal(whole.Format("02/Jan/2006:15:04:05 -0700")); !ok || got != traffic.At(whole) {
			t.Fatalf("%s: got %v, %v", whole, got, ok)
		}
	})
}

// TestParseRFC3339NeverTakesMore mutates good times: what the standard library refuses must be refused, but for the
// forms that are documented.
func TestParseRFC3339NeverTakesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte("2024-02-29T23:59:59.5+01:00")
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			i := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text[i] = rapid.SampledFrom([]byte("0123456789-+:.TZ x")).Draw(t, "byte")
		}
		got, ok := parseRFC3339(string(text), false)
		std := string(text)
		if text[10] == ' ' {
			std = std[:10] + "T" + std[11:]
		}
		leap := std[17:19] == "60"
		if leap {
			std = std[:17] + "59" + std[19:]
		}
		want, err := time.Parse(time.RFC3339Nano, std)
		if leap {
			want = want.Add(time.Second)
		}
		if ok && (err != nil || got != traffic.At(want)) {
			t.Fatalf("%s: got %v, want %v, %v", text, got, want, err)
		}
	})
}

func TestDaysOfEveryDateAgainstStandardLibrary(t *testing.T) {
	t.Parallel()
	for year := range 10_000 {
		for month := range 14 {
			for day := range 33 {
				want := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
				date := want.Year() == year && want.Month() == time.Month(month) && want.Day() == day
				if got, ok := civilDays(year, month, day); ok != date || ok && got*86400 != want.Unix() {
					t.Fatalf("%04d-%02d-%02d: got %d, %v; want %d, %v", year, month, day, got, ok, want.Unix()/86400, date)
				}
			}
		}
	}
}

func TestTimeForms(t *testing.T) {
	want := traffic.At(time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC))
	for _, c := range []struct {
		text      string
		rfc, any  bool
		remainder traffic.Time
	}{
		{"2015-05-17T10:05:03Z", true, true, 0},
		{"2015-05-17t10:05:03z", true, true, 0},
		{"2015-05-17 10:05:03+00:00", true, true, 0},
		{"2015-05-17T12:05:03+02:00", true, true, 0},
		{"2015-05-17T10:05:03.1234567Z", true, true, 123456},
		{"2015-05-17T10:05:02.9Z", true, true, -100000},
		{"2015-05-17T10:05:03", false, true, 0},
		{"2015-05-17 10:05:03,250", false, true, 250000},
		{"2015-05-17T10:05:03.5", false, true, 500000},
		{"2015-05-17 08:05:03 -0200", false, true, 0},
		{"2015-05-17T10:05:03+00", false, true, 0},
		{"17/May/2015:10:05:03 +0000", false, true, 0},
		{"17/May/2015:12:05:03 +0200", false, true, 0},
		{"1431857103", false, true, 0},
		{"1431857103.25", false, true, 250000},
		{"1431857103250", false, true, 250000},
		{"1431857103250000", false, true, 250000},
		{"1431857103250000999", false, true, 250000},
		{"17/may/2015:10:05:03 +0000", false, false, 0},
		{"31/Feb/2015:10:05:03 +0000", false, false, 0},
		{"17/May/2015:10:05:03", false, false, 0},
		{"2015-02-29T10:05:03Z", false, false, 0},
		{"2015-13-01T10:05:03Z", false, false, 0},
		{"2015-05-17T24:05:03Z", false, false, 0},
		{"2015-05-17T10:05:03.Z", false, false, 0},
		{"2015-05-17T10:05:03+24:00", false, false, 0},
		{"2015-05-17T10:05:03 +", false, false, 0},
		{"2015-05-17T10:05:03Zx", false, false, 0},
		{"9999-12-31T23:59:59-01:00", false, false, 0},
		{"0000-01-01T00:00:00+01:00", false, false, 0},
		{"2015-05-17", false, false, 0},
		{"", false, false, 0},
		{"1e400", false, false, 0},
	} {
		if got, ok := parseRFC3339(c.text, false); ok != c.rfc || ok && got != want+c.remainder {
			t.Errorf("RFC 3339 %q: got %v, %v", c.text, got, ok)
		}
		if got, ok := parseAnyTime(c.text); ok != c.any || ok && got != want+c.remainder {
			t.Errorf("any %q: got %v, %v", c.text, got, ok)
		}
	}
}

func TestTimeSaturates(t *testing.T) {
	for _, c := range []struct {
		t    traffic.Time
		d    time.Duration
		want traffic.Time
	}{
		{traffic.EndOfTime, -time.Hour, traffic.EndOfTime}, {traffic.BeforeTime, time.Hour, traffic.BeforeTime},
		{traffic.EndOfTime - 1, time.Second, traffic.EndOfTime}, {traffic.BeforeTime + 1, -time.Second, traffic.BeforeTime}, {5, time.Microsecond, 6},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%v + %v = %v, want %v", c.t, c.d, got, c.want)
		}
	}
	if got := traffic.Time(1500000).Sub(500000); got != time.Second {
		t.Errorf("got %v", got)
	}
}

func TestTimeTextRoundTrip(t *testing.T) {
	for _, want := range []traffic.Time{traffic.EndOfTime, traffic.BeforeTime, 0, -1, 1431857103_250001, minEventTime, maxEventTime} {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got traffic.Time
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
		if string(want.AppendTo(nil)) != string(text) {
			t.Errorf("AppendTo differs from %s", text)
		}
	}
	if err := new(traffic.Time).UnmarshalText([]byte("soon")); err == nil {
		t.Error("took soon")
	}
}
