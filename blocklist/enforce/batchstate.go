package enforce

import (
	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// batchState is one batch on its way.
type batchState struct {
	now     traffic.Time
	effects []*effect
	last    map[blocklist.Name]*effect // newest planned effect of each key

	deltas    map[int][]blocklist.Delta
	decisions map[int][]blocklist.Decision
	letters   []traffic.DeadLetter
	ages      []float64 // seconds, of the evidence of what was written
	unwritten int       // releases that are told and have no tombstone yet
	ignored   map[string]int
	kinds     map[detectors.Kind]int

	emitted map[string]bool      // ids in decisions
	told    func(id string) bool // whether a decision has been acknowledged before
}

func newBatchState(now traffic.Time, told func(id string) bool) *batchState {
	return &batchState{
		now: now, last: map[blocklist.Name]*effect{}, deltas: map[int][]blocklist.Delta{}, decisions: map[int][]blocklist.Decision{},
		ignored: map[string]int{}, kinds: map[detectors.Kind]int{}, emitted: map[string]bool{}, told: told,
	}
}

func (w *batchState) ignore(reason string) { w.ignored[reason]++ }

func (w *batchState) kind(k detectors.Kind) {
	switch k {
	case detectors.KindHit, detectors.KindLate, detectors.KindUncounted, detectors.KindLoss, detectors.KindRelease:
		w.kinds[k]++
	default:
		w.kinds["other"]++ // kinds come from the log, and a label must not
	}
}

// add plans f. Records of one hit that follow each other become one effect: only the greatest expiry matters.
func (w *batchState) add(f *effect) {
	last := w.last[f.Name]
	if last == nil || last.release || f.release || last.block.Hit != f.block.Hit {
		w.effects = append(w.effects, f)
		w.last[f.Name] = f
		return
	}
	last.extendOnly = last.extendOnly && f.extendOnly
	last.block.Since = min(last.block.Since, f.block.Since)
	last.block.Until = max(last.block.Until, f.block.Until)
	last.record = f.record
}

// decide words a decision about f.
func (w *batchState) decide(f *effect, action blocklist.Action, reason string) blocklist.Decision {
	h := &f.record.hit
	d := blocklist.Decision{
		Format: blocklist.DecisionFormat, Action: action, Reason: reason, Rule: f.Rule, Subject: f.Subject, Hit: h.ID,
		Generation: f.block.Generation, Since: f.block.Since, Until: f.block.Until, At: w.now,
	}
	request := ""
	if f.release {
		d.Hit, d.By, request = f.tombstone.Hit, h.By, h.ID
		d.Generation, d.Since, d.Until = 0, f.tombstone.Released, f.tombstone.Until
	}
	d.Identify(request)
	return d
}

func (w *batchState) emit(f *effect, d blocklist.Decision) {
	p := f.record.message.Partition
	w.decisions[p] = append(w.decisions[p], d)
	w.emitted[d.ID] = true
}

// withhold says why f does not block, once: an episode that goes on brings the same answer with each update.
func (w *batchState) withhold(f *effect, reason string) {
	d := w.decide(f, blocklist.ActionWithheld, reason)
	if w.emitted[d.ID] || w.told(d.ID) {
		w.ignore(ignoredRepeated)
		return
	}
	w.emit(f, d)
}
