package enforce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/weirhq/weir/blocklist"
)

// seenDecisions is how many decision ids are remembered at least: 32 hex digits each, so about 10 MB in all.
const seenDecisions = 1 << 16

// tell makes the outcomes known: to gates by the delta streams, and then to the blocks topic.
func (e *Enforcer) tell(ctx context.Context, w *batchState) error {
	for _, f := range w.effects {
		e.settle(w, f)
	}
	for _, p := range slices.Sorted(maps.Keys(w.deltas)) {
		if err := e.writer.Tell(ctx, strconv.Itoa(p), w.now, w.deltas[p]); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(w.decisions)) {
		if err := e.O.Decisions.Append(ctx, p, w.decisions[p]); err != nil {
			return fmt.Errorf("decisions of partition %d: %w", p, err)
		}
	}
	return nil
}

// settle turns an outcome into a decision and a delta, or a reason why there is none.
func (e *Enforcer) settle(w *batchState, f *effect) {
	f.block.Extended = f.outcome == blocklist.OutcomeExtended || f.outcome == blocklist.OutcomeSameExtended
	switch f.outcome {
	case blocklist.OutcomeWritten, blocklist.OutcomeExtended:
		w.ages = append(w.ages, w.now.Sub(f.record.hit.Last).Seconds())
		e.settleChange(w, f, false)
	case blocklist.OutcomeSame, blocklist.OutcomeSameExtended:
		e.settleChange(w, f, true)
	case blocklist.OutcomeReleased:
		if f.release {
			e.settleChange(w, f, false)
		} else {
			w.withhold(f, blocklist.ReasonReleased)
		}
	case blocklist.OutcomeUnchanged:
		w.ignore(ignoredUnchanged)
	case blocklist.OutcomeAbsent:
		w.ignore(ignoredClosed)
	case outcomeDemoted:
		w.ignore(ignoredMode)
	case blocklist.OutcomeStale:
		w.withhold(f, blocklist.ReasonStale)
	case blocklist.OutcomeFull:
		w.withhold(f, blocklist.ReasonFull)
	case blocklist.OutcomeCrowded:
		w.withhold(f, blocklist.ReasonCrowded)
	case blocklist.OutcomeUnreached:
		if !f.release {
			w.withhold(f, blocklist.ReasonUnreachable)
			return
		}
		// Gates act by the delta, which lies elsewhere; the reconciler puts the tombstone, from the decision.
		w.unwritten++
		e.settleChange(w, f, true)
	default:
		w.withhold(f, blocklist.ReasonUnreadable)
	}
}

// settleChange tells of a block or tombstone that stands. What stood already as asked is told again unless this process
// knows that it was: a crash may have come between Redis and the log.
func (e *Enforcer) settleChange(w *batchState, f *effect, again bool) {
	change := blocklist.BlockDelta(f.Name, &f.block)
	var decision blocklist.Decision
	switch {
	case f.release:
		change = blocklist.ReleaseDelta(f.Name, &f.tombstone)
		decision = w.decide(f, blocklist.ActionReleased, f.record.hit.Reason)
	case f.block.Extended:
		decision = w.decide(f, blocklist.ActionExtended, "")
	default:
		decision = w.decide(f, blocklist.ActionWritten, "")
	}
	if again && w.told(decision.ID) {
		w.ignore(ignoredRepeated)
		return
	}
	p := f.record.message.Partition
	w.deltas[p] = append(w.deltas[p], change)
	if f.release && f.legacy != "" { // for gates of an older weir
		w.deltas[p] = append(w.deltas[p], blocklist.ReleaseDelta(blocklist.Name{Subject: f.legacy, Rule: f.Rule}, &f.tombstone))
	}
	w.emit(f, decision)
}

// remember keeps what has been told, after everything was acknowledged.
func (e *Enforcer) remember(w *batchState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range w.emitted {
		e.done.Add(id)
	}
}

func (e *Enforcer) told(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done.Has(id)
}

// count counts a batch once, when it is done.
func (e *Enforcer) count(w *batchState) {
	for kind, n := range w.kinds {
		e.metrics.records.WithLabelValues(string(kind)).Add(float64(n))
	}
	for reason, n := range w.ignored {
		e.metrics.ignored.WithLabelValues(reason).Add(float64(n))
	}
	for _, list := range w.decisions {
		for i := range list {
			e.metrics.countDecision(&list[i])
		}
	}
	for i := range w.letters {
		e.metrics.dead.WithLabelValues(w.letters[i].Reason).Inc()
	}
	e.metrics.unwritten.Add(float64(w.unwritten))
	for _, age := range w.ages {
		e.metrics.age.Observe(age)
	}
}
