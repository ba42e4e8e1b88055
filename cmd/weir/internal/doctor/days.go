package doctor

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// lookAtDays says whether history has the days that it is to have, and no older ones.
func (e *examination) lookAtDays(ctx context.Context) []Finding {
	if !e.migrated() {
		return nil
	}
	var last Finding
	for _, table := range retention.Tables() {
		days, err := retention.Existing(ctx, e.history.DB, table)
		if err != nil {
			return []Finding{failed("days", err, "see PostgreSQL's log")}
		}
		if last = judgeDays(table, days, e.database.Clock, time.Duration(e.conf.History.Retention)); last.Status != OK {
			break
		}
	}
	return []Finding{last}
}

// overdue is how long after its time a day may be there: a query that reads it keeps it, and nothing runs in an installation that is stopped.
const overdue = 24 * time.Hour

func judgeDays(table string, days []retention.Day, now traffic.Time, keep time.Duration) Finding {
	const name = "days"
	today := retention.DayOf(now)
	for _, day := range []retention.Day{today, today + 1} {
		if !slices.Contains(days, day) {
			return warning(name, "run weir migrate, or start weir run with record, which makes days ahead", "%s has no table for %s: RECORD makes it when it needs it", table, day)
		}
	}
	if oldest := days[0]; keep != 0 && (oldest+1).Start() < now.Add(-keep-overdue) {
		return warning(name, "start weir run with record; a query that reads the day for hours keeps it: end it", "%s still has %s, and history.retention is %s", table, oldest, config.Duration(keep))
	}
	kept := "for ever"
	if keep != 0 {
		kept = config.Duration(keep).String()
	}
	return fine(name, "history is kept by day from %s to %s, %s", days[0], days[len(days)-1], kept)
}
