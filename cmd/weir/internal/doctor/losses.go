package doctor

import (
	"context"

	"github.com/weirhq/weir/internal/plural"
)

// historyUse is what history tells an examination.
type historyUse struct{ e *examination }

// lookAtLosses tells of what was lost within the last day: whoever does not look at history would not hear of it.
func (h historyUse) lookAtLosses(ctx context.Context) []Finding {
	if !h.e.migrated() {
		return nil
	}
	n, newest, err := h.e.history.Streams.RecentLosses(ctx)
	if err != nil {
		return []Finding{failed("losses", err, "see PostgreSQL's log")}
	}
	return []Finding{judgeLosses(n, newest)}
}

func judgeLosses(n int, newest string) Finding {
	const name = "losses"
	if n == 0 {
		return fine(name, "none within a day")
	}
	return warning(name,
		"see losses_v for all of them, and docs/runbook.md for WeirPartitionStranded, WeirRecordsLost and "+
			"WeirCountsLost; this line ends after a day",
		"%s of records within a day, the newest: %s", plural.Of(n, "gap"), newest)
}
