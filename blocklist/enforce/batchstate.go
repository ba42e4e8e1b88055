package enforce

import (
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// batchState is one batch on its way.
type batchState struct {
	now     traffic.Time
	again   bool // the records were applied before: that they come late says nothing of this stage
	effects []*effect
	would   []wouldBe                  // of rules in shadow
	last    map[blocklist.Name]*effect // newest planned effect of each key

	deltas    map[int][]blocklist.Delta
	decisions map[int][]blocklist.Decision
	letters   []traffic.DeadLetter
	unwritten int // releases that are told and have no tombstone yet
	ignored   map[string]int
	withheld  map[string]int // by reason, also what was told before
	kinds     map[detectors.Kind]int

	emitted  map[string]bool      // ids in decisions
	observed []string             // ids of those whose latency was observed
	told     func(id string) bool // whether a decision has been acknowledged before
}

func newBatchState(now traffic.Time, told func(id string) bool) *batchState {
	return &batchState{
		now: now, last: map[blocklist.Name]*effect{}, deltas: map[int][]blocklist.Delta{}, decisions: map[int][]blocklist.Decision{},
		ignored: map[string]int{}, withheld: map[string]int{}, kinds: map[detectors.Kind]int{}, emitted: map[string]bool{}, told: told,
	}
}

func (s *batchState) ignore(reason string) { s.ignored[reason]++ }

func (s *batchState) kind(k detectors.Kind) {
	if !slices.Contains(recordKinds(), k) {
		k = otherKind
	}
	s.kinds[k]++
}

// otherKind stands for what this build does not know: kinds come from the log, and a label must not.
const otherKind detectors.Kind = "other"

// recordKinds are all kinds under which records are counted.
func recordKinds() []detectors.Kind {
	return []detectors.Kind{
		detectors.KindHit, detectors.KindNear, detectors.KindCandidate, detectors.KindLate, detectors.KindUncounted,
		detectors.KindStatistics, detectors.KindRunning, detectors.KindRefused, detectors.KindLoss,
		detectors.KindRelease, otherKind,
	}
}

// add plans f. Records of one hit that follow each other become one effect: only the greatest expiry matters.
func (s *batchState) add(f *effect) {
	last := s.last[f.Name]
	if last == nil || last.release || f.release || last.block.Hit != f.block.Hit {
		s.effects = append(s.effects, f)
		s.last[f.Name] = f
		return
	}
	last.extendOnly = last.extendOnly && f.extendOnly
	last.block.Since = min(last.block.Since, f.block.Since)
	last.block.Until = max(last.block.Until, f.block.Until)
	last.record = f.record
	if last.asked == nil || f.asked != nil && f.asked.hit.Last < last.asked.hit.Last {
		last.asked = f.asked
	}
}

// decide words a decision about f.
func (s *batchState) decide(f *effect, action blocklist.Action, reason string) blocklist.Decision {
	h := &f.record.hit
	d := blocklist.Decision{
		Format: blocklist.DecisionFormat, Action: action, Reason: reason, Rule: f.Rule, Subject: f.Subject, Hit: h.ID,
		Generation: f.block.Generation, Since: f.block.Since, Until: f.block.Until, At: s.now,
	}
	request := ""
	if f.ordered != nil && action != blocklist.ActionWithheld {
		d.By, d.Reason = f.ordered.By, f.ordered.Reason
	}
	if f.release {
		d.Hit, d.By, request = f.tombstone.Hit, h.By, h.ID
		d.Generation, d.Since, d.Until = 0, f.tombstone.Released, f.tombstone.Until
	}
	d.Identify(request)
	return d
}

func (s *batchState) emit(f *effect, d blocklist.Decision) {
	p := f.record.message.Partition
	s.decisions[p] = append(s.decisions[p], d)
	s.emitted[d.ID] = true
}

// withhold says why f does not block, once: an episode that goes on brings the same answer with each update.
func (s *batchState) withhold(f *effect, reason string) {
	s.withheld[reason]++
	d := s.decide(f, blocklist.ActionWithheld, reason)
	if s.emitted[d.ID] || s.told(d.ID) {
		s.ignore(ignoredRepeated)
		return
	}
	s.emit(f, d)
}
