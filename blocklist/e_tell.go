package blocklist

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// seenDecisions is how many decision ids are remembered at least: 32 hex digits each, so about 10 MB in all.
const seenDecisions = 1 << 16

// tell makes the outcomes known: to gates by the delta streams, and then to the blocks topic.
func (e *Enforcer) tell(ctx context.Context, w *work) error {
	for _, f := range w.effects {
		e.settle(w, f)
	}
	for _, p := range slices.Sorted(maps.Keys(w.deltas)) {
		if err := e.writer.appendDeltas(ctx, strconv.Itoa(p), w.now, w.deltas[p]); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(w.decisions)) {
		if err := e.o.Decisions.Append(ctx, p, w.decisions[p]); err != nil {
			return fmt.Errorf("decisions of partition %d: %w", p, err)
		}
	}
	return nil
}

// settle turns an outcome into a decision and a delta, or a reason why there is none.
func (e *Enforcer) settle(w *work, f *effect) {
	f.block.Extended = f.outcome == outcomeExtended || f.outcome == outcomeSameExtended
	switch f.outcome {
	case outcomeWritten, outcomeExtended:
		w.ages = append(w.ages, w.now.Sub(f.ask.hit.Last).Seconds())
		e.settleChange(w, f, false)
	case outcomeSame, outcomeSameExtended:
		e.settleChange(w, f, true)
	case outcomeReleased:
		if f.release {
			e.settleChange(w, f, false)
		} else {
			w.withhold(f, ReasonReleased)
		}
	case outcomeUnchanged:
		w.ignore(ignoredUnchanged)
	case outcomeAbsent:
		w.ignore(ignoredClosed)
	case outcomeDemoted:
		w.ignore(ignoredMode)
	case outcomeStale:
		w.withhold(f, ReasonStale)
	case outcomeFull:
		w.withhold(f, ReasonFull)
	case outcomeCrowded:
		w.withhold(f, ReasonCrowded)
	case outcomeUnreached:
		if !f.release {
			w.withhold(f, ReasonUnreachable)
			return
		}
		// Gates act by the delta, which lies elsewhere; the reconciler puts the tombstone, from the decision.
		w.unwritten++
		e.settleChange(w, f, true)
	default:
		w.withhold(f, ReasonUnreadable)
	}
}

// settleChange tells of a block or tombstone that stands. What stood already as asked is told again unless this process
// knows that it was: a crash may have come between Redis and the log.
func (e *Enforcer) settleChange(w *work, f *effect, again bool) {
	change := blockDelta(f.held, &f.block)
	var decision Decision
	switch {
	case f.release:
		change = releaseDelta(f.held, &f.tombstone)
		decision = w.decide(f, ActionReleased, f.ask.hit.Reason)
	case f.block.Extended:
		decision = w.decide(f, ActionExtended, "")
	default:
		decision = w.decide(f, ActionWritten, "")
	}
	if again && w.told(decision.ID) {
		w.ignore(ignoredRepeated)
		return
	}
	p := f.ask.message.Partition
	w.deltas[p] = append(w.deltas[p], change)
	if f.release && f.elder != "" { // for gates of an older weir
		w.deltas[p] = append(w.deltas[p], releaseDelta(held{f.elder, f.rule}, &f.tombstone))
	}
	w.emit(f, decision)
}

// remember keeps what has been told, after everything was acknowledged.
func (e *Enforcer) remember(w *work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range w.emitted {
		e.done.add(id)
	}
}

func (e *Enforcer) told(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done.has(id)
}

// count counts a batch once, when it is done.
func (e *Enforcer) count(w *work) {
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
