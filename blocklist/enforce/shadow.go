package enforce

import (
	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
)

// What ENFORCE would have done for a rule in shadow, beside the actions of decisions. It is counted and nothing else: no decision, no key.
const (
	actionWouldWrite    = "would_write"
	actionWouldWithhold = "would_withhold"
)

// shadowReasons are those of would_withhold: what can be told without Redis.
func shadowReasons() []string {
	return []string{blocklist.ReasonMaxLag, blocklist.ReasonNeverBlock, blocklist.ReasonExpired, blocklist.ReasonUnlearned, blocklist.ReasonNoSpec}
}

// wouldBe is a hit of a rule in shadow that a rule which blocks would have acted on.
type wouldBe struct {
	*effect
	withheld string // why it would not have blocked
}

// planShadow decides what a hit of a rule in shadow would do, by all checks that need neither Redis nor a wait.
func (e *Enforcer) planShadow(s *batchState, r *hitRecord, mode *rules.ModeState) {
	h := &r.hit
	f := newEffect(r)
	if checkHit(blocklist.Name{Subject: h.BlockSubject, Rule: h.Rule}, h) != nil {
		return
	}
	terms, learned := e.versions.learned(versionKey{h.Rule, h.RuleVersion})
	if !learned {
		s.would = append(s.would, wouldBe{f, blocklist.ReasonUnlearned})
		return
	}
	if terms == nil {
		s.would = append(s.would, wouldBe{f, blocklist.ReasonNoSpec})
		return
	}
	f.block = blocklist.NewBlock(h.Rule, mode.Generation, h.ID, h.First, terms.Until(h.First, h.Last))
	if withheld, ignored := e.judge(s.now, f, terms); ignored == "" {
		s.would = append(s.would, wouldBe{f, withheld})
	}
}

// countShadow counts what rules in shadow would have done. What raises a block that would be in force is no second one, and the
// reason why there is none is counted with the opening hit alone.
func (e *Enforcer) countShadow(all []wouldBe) {
	for i := range all {
		w := &all[i]
		h := &w.record.hit
		if w.withheld != "" {
			if h.Phase == detectors.PhaseOpen {
				e.metrics.decide(h.Rule, rules.ModeShadow, actionWouldWithhold, w.withheld)
			}
			continue
		}
		block := w.held()
		block.would = true
		found := e.standing.raise(block)
		opens := h.Phase == detectors.PhaseOpen
		// An episode that is older than what this process remembers was counted when it opened.
		if found.full && opens || found.fresh && (opens || h.First >= found.since) {
			e.metrics.decide(h.Rule, rules.ModeShadow, actionWouldWrite, "")
		}
	}
}

// countStanding notes what stands and what was released.
func (e *Enforcer) countStanding(effects []*effect) {
	for _, f := range effects {
		switch f.outcome {
		case blocklist.OutcomeWritten, blocklist.OutcomeExtended, blocklist.OutcomeSame, blocklist.OutcomeSameExtended, blocklist.OutcomeUnchanged:
			if !f.release {
				stands := f.held()
				stands.extendOnly = false // Redis had it, whether or not this process knew
				e.standing.raise(stands)
			}
		case blocklist.OutcomeReleased, blocklist.OutcomeUnreached:
			if f.release {
				e.standing.release(f.place(), f.tombstone.StoodUntil)
			}
		}
	}
}

func (f *effect) place() place { return place{f.record.message.Partition, f.Rule, f.Subject} }

func (f *effect) held() held {
	return held{place: f.place(), generation: f.block.Generation, until: f.block.Until, extendOnly: f.extendOnly}
}

// Standing is what this Enforcer counts of blocks. Whoever gives it partitions of the hits topic, or reads from history what stands in
// them, tells it.
func (e *Enforcer) Standing() *Standing { return e.standing }
