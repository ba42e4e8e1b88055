package shown

import (
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

func TestNumbers(t *testing.T) {
	at := func(text string) (out traffic.Time) {
		if err := out.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	tests := []struct{ got, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1000), "1\u202f000"},
		{Count(-1234567), "−1\u202f234\u202f567"},
		{Count(int64(9_999_999)), "9\u202f999\u202f999"},
		{Count(18_240_000), "18.2\u202fM"},
		{Short(0), "0"},
		{Short(0.25), "0.2"},
		{Short(999), "999"},
		{Short(1500), "1.5\u202fk"},
		{Short(123456), "123\u202fk"},
		{Short(2e12), "2\u202fT"},
		{Bytes(999), "999 B"},
		{Bytes(1500), "1.5\u202fkB"},
		{Bytes(2_000_000_000), "2\u202fGB"},
		{Saturating(63), "63"},
		{Saturating(64), "64+"},
		{Span(90 * time.Second), "90 s"},
		{Span(5 * time.Minute), "5 min"},
		{Span(48 * time.Hour), "2 d"},
		{Span(1500 * time.Millisecond), "1500 ms"},
		{About(400 * time.Millisecond), "0 s"},
		{About(8 * time.Second), "8 s"},
		{About(3 * time.Minute), "3 min"},
		{About(76*time.Hour + 50*time.Minute), "3 d 4 h"},
		{About(59*time.Minute + 59*time.Second), "59 min 59 s"},
		{Clock(0), ""},
		{Stamp(at("2026-11-21T05:10:02.5Z")), "2026-11-21 05:10:02"},
		{When(at("2026-11-21T05:10:02Z"), at("2026-11-21T23:00:00Z")), "05:10:02"},
		{When(at("2026-11-20T05:10:02Z"), at("2026-11-21T23:00:00Z")), "2026-11-20 05:10"},
		{When(0, at("2026-11-21T23:00:00Z")), ""},
	}
	for i, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%d: got %q, want %q", i, tt.got, tt.want)
		}
	}
}
