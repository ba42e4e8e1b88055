package blocklist

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// work is one batch on its way.
type work struct {
	now     traffic.Time
	effects []*effect
	last    map[held]*effect // newest planned effect of each key

	deltas    map[int][]delta
	decisions map[int][]Decision
	letters   []traffic.DeadLetter
	ages      []float64 // seconds, of the evidence of what was written
	unwritten int       // releases that are told and have no tombstone yet
	ignored   map[string]int
	kinds     map[detectors.Kind]int

	emitted map[string]bool      // ids in decisions
	told    func(id string) bool // whether a decision has been acknowledged before
}

func newWork(now traffic.Time, told func(id string) bool) *work {
	return &work{
		now: now, last: map[held]*effect{}, deltas: map[int][]delta{}, decisions: map[int][]Decision{},
		ignored: map[string]int{}, kinds: map[detectors.Kind]int{}, emitted: map[string]bool{}, told: told,
	}
}

func (w *work) ignore(reason string) { w.ignored[reason]++ }

func (w *work) kind(k detectors.Kind) {
	switch k {
	case detectors.KindHit, detectors.KindLate, detectors.KindUncounted, detectors.KindLoss, detectors.KindRelease:
		w.kinds[k]++
	default:
		w.kinds["other"]++ // kinds come from the log, and a label must not
	}
}

// add plans f. Records of one hit that follow each other become one effect: only the greatest expiry matters.
func (w *work) add(f *effect) {
	last := w.last[f.held]
	if last == nil || last.release || f.release || last.block.Hit != f.block.Hit {
		w.effects = append(w.effects, f)
		w.last[f.held] = f
		return
	}
	last.extendOnly = last.extendOnly && f.extendOnly
	last.block.Since = min(last.block.Since, f.block.Since)
	last.block.Until = max(last.block.Until, f.block.Until)
	last.ask = f.ask
}

// decide words a decision about f.
func (w *work) decide(f *effect, action Action, reason string) Decision {
	h := &f.ask.hit
	d := Decision{
		Format: DecisionFormat, Action: action, Reason: reason, Rule: f.rule, Subject: f.subject, Hit: h.ID,
		Generation: f.block.Generation, Since: f.block.Since, Until: f.block.Until, At: w.now,
	}
	request := ""
	if f.release {
		d.Hit, d.By, request = f.tombstone.Hit, h.By, h.ID
		d.Generation, d.Since, d.Until = 0, f.tombstone.Released, f.tombstone.Until
	}
	d.identify(request)
	return d
}

func (w *work) emit(f *effect, d Decision) {
	p := f.ask.message.Partition
	w.decisions[p] = append(w.decisions[p], d)
	w.emitted[d.ID] = true
}

// withhold says why f does not block, once: an episode that goes on brings the same answer with each update.
func (w *work) withhold(f *effect, reason string) {
	d := w.decide(f, ActionWithheld, reason)
	if w.emitted[d.ID] || w.told(d.ID) {
		w.ignore(ignoredRepeated)
		return
	}
	w.emit(f, d)
}
