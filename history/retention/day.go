// Package retention keeps history within its time. What the live stream brings lies in tables by day, which are made ahead and dropped as a
// whole; the older tables beside them, and the sums per minute, lose their rows in small portions.
package retention

import (
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Day is a day in UTC, counted from 1970-01-01.
type Day int64

const microsecondsPerDay = 24 * 3600 * 1_000_000

// DayOf is the day in which t lies.
func DayOf(t traffic.Time) Day {
	day := Day(t / microsecondsPerDay)
	if t%microsecondsPerDay < 0 {
		day--
	}
	return day
}

// Start is the first instant of the day.
func (d Day) Start() traffic.Time { return traffic.Time(d) * microsecondsPerDay }

// Date is the day as the driver takes it for a date.
func (d Day) Date() time.Time { return d.Start().Std() }

// String writes 2026-11-23.
func (d Day) String() string { return d.Date().Format(time.DateOnly) }

// partition is the table of a day.
func (d Day) partition(table string) string {
	return table + "_" + strings.ReplaceAll(d.String(), "-", "")
}

// dayOfPartition reads what partition writes.
func dayOfPartition(table, name string) (Day, bool) {
	text, ok := strings.CutPrefix(name, table+"_")
	if !ok {
		return 0, false
	}
	t, err := time.Parse("20060102", text)
	if err != nil {
		return 0, false
	}
	return DayOf(traffic.At(t)), true
}

// Tables are those that have a table for each day.
func Tables() []string { return []string{HitsByDay, BesideByDay, decisionsByDay} }

// The tables that have a table for each day.
const (
	HitsByDay      = "hits_by_day"
	BesideByDay    = "hits_beside_by_day"
	decisionsByDay = "block_decisions_by_day"
)
