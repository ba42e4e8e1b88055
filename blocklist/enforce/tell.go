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
func (e *Enforcer) tell(ctx context.Context, s *batchState) error {
	for _, f := range s.effects {
		e.settle(s, f)
	}
	for _, p := range slices.Sorted(maps.Keys(s.deltas)) {
		if err := e.writer.Tell(ctx, strconv.Itoa(p), s.now, s.deltas[p]); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(s.decisions)) {
		if err := e.o.Decisions.Append(ctx, p, s.decisions[p]); err != nil {
			return fmt.Errorf("decisions of partition %d: %w", p, err)
		}
	}
	return nil
}

// settle turns an outcome into a decision and a delta, or a reason why there is none.
func (e *Enforcer) settle(s *batchState, f *effect) {
	f.block.Extended = f.outcome == blocklist.OutcomeExtended || f.outcome == blocklist.OutcomeSameExtended
	switch f.outcome {
	case blocklist.OutcomeWritten, blocklist.OutcomeExtended:
		e.settleChange(s, f, false)
	case blocklist.OutcomeSame, blocklist.OutcomeSameExtended:
		e.settleChange(s, f, true)
	case blocklist.OutcomeReleased:
		if f.release {
			e.settleChange(s, f, false)
		} else {
			s.withhold(f, blocklist.ReasonReleased)
		}
	case blocklist.OutcomeUnchanged:
		s.ignore(ignoredUnchanged)
	case blocklist.OutcomeAbsent:
		s.ignore(ignoredClosed)
	case outcomeDemoted:
		s.ignore(ignoredMode)
	case blocklist.OutcomeStale:
		s.withhold(f, blocklist.ReasonStale)
	case blocklist.OutcomeFull:
		s.withhold(f, blocklist.ReasonFull)
	case blocklist.OutcomeCrowded:
		s.withhold(f, blocklist.ReasonCrowded)
	case blocklist.OutcomeUnreached:
		if !f.release {
			s.withhold(f, blocklist.ReasonUnreachable)
			return
		}
		// Gates act by the delta, which lies elsewhere; the reconciler puts the tombstone, from the decision.
		s.unwritten++
		e.settleChange(s, f, true)
	default:
		s.withhold(f, blocklist.ReasonUnreadable)
	}
}

// settleChange tells of a block or tombstone that stands. One that stood before as asked is told again unless this process
// knows that it was told: a crash may have come between Redis and the log.
func (e *Enforcer) settleChange(s *batchState, f *effect, again bool) {
	var change blocklist.Delta
	var decision blocklist.Decision
	switch {
	case f.release:
		change = blocklist.ReleaseDelta(f.Name, &f.tombstone)
		decision = s.decide(f, blocklist.ActionReleased, f.record.hit.Reason)
	case f.block.Extended:
		change = blocklist.BlockDelta(f.Name, &f.block)
		decision = s.decide(f, blocklist.ActionExtended, "")
	default:
		change = blocklist.BlockDelta(f.Name, &f.block)
		decision = s.decide(f, blocklist.ActionWritten, "")
	}
	if again && s.told(decision.ID) {
		s.ignore(ignoredRepeated)
		return
	}
	if !f.release && !s.again {
		e.latency.observe(s, f, decision.ID, again)
	}
	p := f.record.message.Partition
	s.deltas[p] = append(s.deltas[p], change)
	if f.release && f.legacy != "" { // for gates of an older weir
		s.deltas[p] = append(s.deltas[p], blocklist.ReleaseDelta(blocklist.Name{Subject: f.legacy, Rule: f.Rule}, &f.tombstone))
	}
	s.emit(f, decision)
}

// remember keeps what has been told, after everything was acknowledged.
func (e *Enforcer) remember(s *batchState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range s.emitted {
		e.done.Add(id)
	}
}

func (e *Enforcer) told(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done.Has(id)
}

// count counts a batch once, when it is done.
func (e *Enforcer) count(s *batchState) {
	for kind, n := range s.kinds {
		e.metrics.records.WithLabelValues(string(kind)).Add(float64(n))
	}
	for reason, n := range s.ignored {
		e.metrics.ignored.WithLabelValues(reason).Add(float64(n))
	}
	for reason, n := range s.withheld {
		e.metrics.withheld.WithLabelValues(reason).Add(float64(n))
	}
	for _, list := range s.decisions {
		for i := range list {
			e.metrics.countDecision(&list[i])
		}
	}
	e.metrics.unwritten.Add(float64(s.unwritten))
	e.countStanding(s.effects)
	e.countShadow(s.would)
}
