package doctor

import (
	"testing"
	"time"

	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

func TestJudgeDays(t *testing.T) {
	now := traffic.At(time.Date(2026, 11, 23, 15, 0, 0, 0, time.UTC))
	today := retention.DayOf(now)
	span := func(from, to retention.Day) (days []retention.Day) {
		for d := from; d <= to; d++ {
			days = append(days, today+d)
		}
		return days
	}
	const day = 24 * time.Hour
	for _, tc := range []struct {
		days   []retention.Day
		keep   time.Duration
		status Status
		text   string
	}{
		{span(-10, 7), 10 * day, OK, "history is kept by day from 2026-11-13 to 2026-11-30, 10d"},
		{span(-300, 1), 0, OK, "history is kept by day from 2026-01-27 to 2026-11-24, for ever"},
		{span(-12, 7), 10 * day, Warn, "hits_by_day still has 2026-11-11, and history.retention is 10d"},
		{span(-11, 7), 10 * day, OK, "history is kept by day from 2026-11-12 to 2026-11-30, 10d"},
		{span(-10, 0), 10 * day, Warn, "hits_by_day has no table for 2026-11-24: RECORD makes it when it needs it"},
		{nil, 10 * day, Warn, "hits_by_day has no table for 2026-11-23: RECORD makes it when it needs it"},
	} {
		if f := judgeDays("hits_by_day", tc.days, now, tc.keep); f.Status != tc.status || f.Found != tc.text {
			t.Errorf("%v, %v: %+v, want %s %q", tc.days, tc.keep, f, tc.status, tc.text)
		}
	}
}
