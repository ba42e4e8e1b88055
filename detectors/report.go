package detectors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// outcome collects what one event, or the passing of time, did to a key's episodes.
type outcome struct {
	opened   []notice
	extended []*episode
	ended    []notice
}

// notice is a block target about which there is something to report.
type notice struct {
	ep     *episode
	target *blockTarget
	phase  Phase
	cut    bool
	into   string
	reason string
}

// empty clears the outcome but keeps its memory.
func (o *outcome) empty() *outcome {
	clear(o.opened)
	clear(o.extended)
	clear(o.ended)
	o.opened, o.extended, o.ended = o.opened[:0], o.extended[:0], o.ended[:0]
	return o
}

func (o *outcome) extend(ep *episode) {
	if !slices.Contains(o.extended, ep) {
		o.extended = append(o.extended, ep)
	}
}

// tell notes that an episode is certain: its targets that were not reported yet open.
func (o *outcome) tell(ep *episode) {
	if ep.muted {
		return
	}
	for _, t := range ep.targets {
		if t.sent == traffic.BeforeTime && !slices.ContainsFunc(o.opened, func(n notice) bool { return n.target == t }) {
			o.opened = append(o.opened, notice{ep: ep, target: t, phase: PhaseOpen})
		}
	}
}

// end notes that an episode is over.
func (o *outcome) end(ep *episode, phase Phase, cut bool) {
	for _, t := range ep.targets {
		o.endTarget(notice{ep: ep, target: t, phase: phase, cut: cut})
	}
}

// endTarget notes that a target is over. One that was never reported is dropped silently: it was not certain, or the same
// arrival opened and merged it. One that the same arrival opened and cut is reported as opened first.
func (o *outcome) endTarget(n notice) {
	o.extended = slices.DeleteFunc(o.extended, func(x *episode) bool { return x == n.ep })
	if i := slices.IndexFunc(o.opened, func(x notice) bool { return x.target == n.target }); i >= 0 {
		opening := o.opened[i]
		o.opened = slices.Delete(o.opened, i, i+1)
		if n.phase == PhaseMerged {
			return
		}
		o.ended = append(o.ended, opening)
	} else if n.target.sent == traffic.BeforeTime {
		return
	}
	o.ended = append(o.ended, n)
}

// knows reports whether the outcome has a hit of this id already.
func (o *outcome) knows(id string) bool {
	has := func(n notice) bool { return n.target.id == id }
	return slices.ContainsFunc(o.opened, has) || slices.ContainsFunc(o.ended, has)
}

// move notes that a target belongs to another episode now.
func (o *outcome) move(from *episode, t *blockTarget, to *episode) {
	for i := range o.opened {
		if o.opened[i].target == t {
			o.opened[i].ep = to
		}
	}
	o.extended = slices.DeleteFunc(o.extended, func(x *episode) bool { return x == from })
	o.extend(to)
}

// report writes hits: all of a partition's hits have its number, and ids under its secret.
type report struct {
	keyed  int
	secret *Secret
}

// episodes appends the hits of what happened to episodes: endings first, so that a cut episode is closed before the next
// one opens. seen is the append time of the record that caused it; an update about a target is sent once cooldown has
// passed since the record before it; wide says that the episode's targets are tuples of the block's key.
func (r *report) episodes(o *outcome, seen, cooldown traffic.Time, wide bool, out []Hit) []Hit {
	o.mute()
	for _, e := range o.ended {
		if e.ep.muted {
			continue
		}
		if e.phase == PhaseOpen && !e.ep.told { // the same arrival opened and cut it
			e.ep.opens()
			e.ep.ends()
		}
		h := e.ep.hit(e.target, e.phase, r.keyed, seen)
		h.Cut, h.IntoID, h.Reason = e.cut, e.into, e.reason
		out = append(out, h)
	}
	for _, n := range o.opened {
		if n.ep.muted {
			continue
		}
		n.ep.opens()
		n.target.sent = n.target.last
		out = append(out, n.ep.hit(n.target, PhaseOpen, r.keyed, seen))
	}
	for _, ep := range o.extended {
		for _, t := range ep.targets {
			at := t.last
			if wide { // of one that is over no more while others go on, too: its closing hit comes with theirs, too late to act on
				at = ep.last.time
			}
			if t.sent != traffic.BeforeTime && t.last > t.sent && at >= later(t.sent, cooldown) {
				t.sent = at
				out = append(out, ep.hit(t, PhaseUpdate, r.keyed, seen))
			}
		}
	}
	return out
}

// uncounted appends the sums of events left out, and forgets them.
func (r *report) uncounted(u *uncountedSums, generation int64, seen traffic.Time, out []Hit) []Hit {
	for _, key := range u.ordered() {
		sum := u.sums[key]
		h := Hit{
			Format: HitFormat, Kind: KindLate, Rule: key.lineage.rule, RuleVersion: sum.version, Lineage: key.lineage.number,
			Count: sum.count, First: u.minute, Last: sum.latest, Seen: seen,
			Generation: generation, Source: key.source, Offset: sum.offset, Keyed: r.keyed,
		}
		if key.reason != UncountedLate {
			h.Kind, h.Reason = KindUncounted, key.reason.String()
		}
		h.ID = r.secret.hitID(&h, 0)
		out = append(out, h)
	}
	clear(u.sums)
	return out
}

// gapAccepted begins the reason of a gap in requests.
const gapAccepted = "gap in requests accepted"

// Shared reports whether h is a loss that all keyed partitions tell of, under one id: a gap in requests that an operator accepted.
func (h *Hit) Shared() bool { return h.Kind == KindLoss && strings.HasPrefix(h.Reason, gapAccepted) }

// gap is the hit of a gap in requests that an operator accepted. All keyed partitions meet it: it is one loss, of one id.
func (r *report) gap(k *Keyed, lost offsetRange, w *watermark) Hit {
	h := r.loss(k, lost, w, gapAccepted)
	h.ID = r.secret.hitID(&h, 0)
	return h
}

// hole is the hit of a hole in the keyed log that an operator accepted.
func (r *report) hole(k *Keyed, lost offsetRange, w *watermark) Hit {
	h := r.loss(k, lost, w, "hole in the keyed log accepted")
	h.ID = r.ownLossID(h, 0)
	return h
}

func (r *report) loss(k *Keyed, lost offsetRange, w *watermark, what string) Hit {
	return Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: r.keyed, Generation: k.Generation, Source: k.Source, Offset: k.Offset,
		Count: lost.end - lost.first, Seen: w.appended, First: w.at, Last: w.at,
		Reason: fmt.Sprintf("%s: offsets %d to %d of source partition %d", what, lost.first, lost.end-1, k.Source),
	}
}

// rebase is the hit of keyed records that will not be folded.
func (r *report) rebase(lost Unfolded, generation int64, w *watermark) Hit {
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: r.keyed, Generation: generation, Source: GapInKeyed,
		Offset: lost.To, Count: lost.To - lost.From, Seen: w.appended, First: w.at, Last: w.at,
		Reason: fmt.Sprintf("keyed offsets %d to %d %s", lost.From, lost.To-1, lost.Why),
	}
	nth := 0
	if lost.Anew {
		h.Source, h.Offset, h.Count = KeyedAnew, lost.From, 0
		h.Reason = fmt.Sprintf("keyed offsets from %d on %s", lost.From, lost.Why)
		nth = int(w.appended) // before the same offset of another log it is another loss
	}
	h.ID = r.ownLossID(h, nth)
	return h
}

// lost is the hit of the events of a routing version that the rule store has lost. How many they are is not known at
// the first one.
func (r *report) lost(k *Keyed, w *watermark) Hit {
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: r.keyed, Generation: k.Generation, Source: GapInKeyed,
		Offset: -k.Version,
		Seen:   w.appended, First: w.at, Last: w.at,
		Reason: fmt.Sprintf("the rule store has lost routing version %d: no rule counts the events that were routed by "+
			"it", k.Version),
	}
	h.ID = r.ownLossID(h, 0) // other losses are before offsets of the log, which are not negative
	h.Offset = 0
	return h
}

// ownLossID is the id of a loss of this keyed partition alone; nth tells apart what is lost at one place.
func (r *report) ownLossID(h Hit, nth int) string {
	h.Source = -1 - r.keyed
	return r.secret.hitID(&h, nth)
}
