package detect

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// Counters must not count anew all that is folded twice: after a crash the records since the last snapshot are folded again, up to a third
// of what the log keeps. How far the counters have come is no part of the state, so that it stands in the group's commit, which is written
// every reportEvery. Whoever scrapes has to have read them before they count as told, or what a process counts last is lost with it:
//
//	            snapshot          told                      the crash
//	keyed log   ────┴──────────────┴──────────────────────────┴────▶
//	                 folded again,   scrapeWait to twice that: counted by the process
//	                 not counted     that died, and again by its successor
//
// toldMark comes before the offset in a commit's metadata.
const toldMark = "counted="

// toldTimeout bounds how long taking partitions waits for the commits. Without them windows and hits are as right as with them.
const toldTimeout = 500 * time.Millisecond

// scrapeWait is the longest time between two scrapes for which no count is lost.
const scrapeWait = time.Minute

// commit is for tools that show lag: where to begin, the checkpoint says. Its metadata says up to where records were counted a scrapeWait
// ago, or up to twice as long.
func (o *owned) commit(now time.Time) ingest.Commit {
	if now.Sub(o.markedAt) >= scrapeWait {
		o.scraped, o.marked, o.markedAt = o.marked, o.told, now
	}
	return ingest.Commit{Offset: o.saved, Metadata: toldMark + strconv.FormatInt(o.scraped, 10)}
}

// toldBefore is the offset up to which processes before this one have counted the records of partitions. One is absent where that is
// not known.
func (d *Detector) toldBefore(ctx context.Context, commits ingest.Commits, partitions []int) map[int]int64 {
	if len(partitions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, toldTimeout)
	defer cancel()
	found, err := commits.Fetch(ctx, partitions)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if err != nil {
		d.metrics.errors.WithLabelValues(callCommits).Inc()
		d.log.Warn("records since the newest snapshots may be counted again by metrics", "error", err)
		return nil
	}
	told := map[int]int64{}
	for p, c := range found {
		text, marked := strings.CutPrefix(c.Metadata, toldMark)
		if offset, err := strconv.ParseInt(text, 10, 64); marked && err == nil {
			told[p] = offset
		}
	}
	return told
}

// foldFetched folds what was fetched. What was told of before changes the state, and no counter.
func (o *owned) foldFetched(messages []traffic.Message) (done bool, err error) {
	news := ingest.MessagesFrom(messages, o.told)
	if old := messages[:len(messages)-len(news)]; len(old) > 0 {
		done, err := o.foldMessages(old)
		o.counted = o.state.Counts()
		o.state.TakeRuleEvents(func(string, *detectors.RuleEvents) {})
		o.repeated = len(o.pending) // none was pending before: a fold follows when all were sent
		if done || err != nil {
			return done, err
		}
	}
	return o.foldMessages(news)
}

// tellCounts moves the counters on by what has been counted since it last did.
func (o *owned) tellCounts() {
	c := o.state.Counts()
	o.d.metrics.add(c, o.counted)
	o.state.TakeRuleEvents(o.d.metrics.rules.add)
	o.counted, o.told = c, max(o.told, o.offset)
}

// acknowledged counts the first n pending hits, which the hits topic has acknowledged, and lets them go. Those of an append that fails are
// counted once, when they are.
func (o *owned) acknowledged(n int) {
	for i := range o.pending[:n] {
		h := &o.pending[i]
		if i >= o.repeated {
			o.d.metrics.sent(h)
		}
		if h.Kind == detectors.KindHit && h.Phase == detectors.PhaseOpen {
			o.d.tally.open()
		}
	}
	o.pending, o.repeated = o.pending[n:], max(0, o.repeated-n)
}
