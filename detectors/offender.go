package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// offender is a key with episodes. Only such keys have anything to report when time passes, so only they have a timer.
type offender struct {
	key      Fingerprint
	lineage  *lineage
	cell     cell       // of the key, as long as it has episodes
	episodes []*episode // ascending by first, at least a window apart
	cost     int64      // bytes that the ledger was charged for the episodes
	trimmed  place      // the newest event that trim dropped; its time is BeforeTime if it has dropped none

	due  traffic.Time // when the watermark next closes an episode or makes one certain, or earlier
	heap int          // index in the partition's timers
}

// arrival is one on-time event on its way into the episodes of one key.
type arrival struct {
	event   *Keyed
	bound   *binding
	secret  *Secret
	subject []byte // of the rule's key
	grouped bool   // a field of the key is missing
	limit   int64  // of the rule, for the event
	rank    int64  // of the event among all that the partition has folded
	before  *approaches
	at      place
	behind  bool         // the key has had a newer event
	settles traffic.Time // when what is over becomes certain
}

// blockSubject is the identity that a block would hold: that of the block's own key. It is empty where the event lacks a
// field of that key.
func (a *arrival) blockSubject() traffic.Subject {
	if a.grouped || a.bound.version.Block == nil || a.bound.kind == KindNear {
		return ""
	}
	s, missing := traffic.MakeSubject(&a.event.Identity, a.bound.version.Block.Key)
	if missing > 0 {
		return ""
	}
	return s
}

// wideSubject is the identity of the block that stands for all others beyond MaxTuples: that of the rule's own key. It is empty
// where that key is more than an identity, which no block can hold: a wider one is nobody's wish.
func (a *arrival) wideSubject() traffic.Subject {
	if a.grouped || a.bound.version.Block == nil || a.bound.key != nil {
		return ""
	}
	return traffic.Subject(a.subject)
}

// told is the limit that a hit names, of an event that is over: its own, or of a warning the rule's.
func (a *arrival) told(x *exceedance) int {
	switch {
	case a.bound.kind == KindNear:
		return int(a.limit)
	case a.bound.limits != nil:
		return int(x.limit)
	}
	return int(a.bound.limit)
}

// judge gives the arrival, and the events that it put over the limit, to the key's episodes.
func (o *offender) judge(a *arrival, exceedances []exceedance, res *outcome) {
	for i, ep := range o.episodes {
		met := ep.meet(a.at)
		if met {
			res.extend(ep)
		}
		if a.behind && o.hides(ep, a.at, met, i == len(o.episodes)-1) {
			ep.atLeast = true
		}
	}
	for i := range exceedances {
		o.mark(&exceedances[i], a, res)
	}
	o.doubt(a.at)
	o.addEvidence(a)
}

// doubt notes in the newest episode that an event after its last over one may be over too. Something of the event's
// window was dropped, and its limit is greater than those by which that was done: else what was kept would put it over.
func (o *offender) doubt(at place) {
	if o.lineage.ranges == nil || len(o.episodes) == 0 || !o.trimmedWithin(o.lineage.window, at.time) {
		return
	}
	if ep := o.episodes[len(o.episodes)-1]; at.compare(ep.last) > 0 {
		ep.atLeast = true
	}
}

// hides reports whether a late event may change an episode in a way that is not seen. It may put events around it over
// the limit, which shows only where all those less than a window before it are kept.
func (o *offender) hides(ep *episode, at place, met, newest bool) bool {
	window := o.lineage.window
	near := ep.touches(at.time, window) || at.compare(ep.last) < 0
	if o.lineage.ranges == nil {
		return near && !met
	}
	if newest && at.compare(ep.first) >= 0 && o.trimmed.compare(ep.last) < 0 {
		return false // what trim has kept puts over the limit all that follows within a window
	}
	return near && o.trimmedWithin(window, at.time)
}

// trimmedWithin reports whether trim has dropped an event less than span before at, or a newer one.
func (o *offender) trimmedWithin(span, at traffic.Time) bool {
	return o.trimmed.time > earlier(at, span)
}

// miss notes that an event was left out: counts of episodes around it may be too low.
func (o *offender) miss(at place) {
	for _, ep := range o.episodes {
		ep.atLeast = ep.atLeast || at.compare(ep.last) < 0
	}
}

// withdraw forgets episodes that were never certain. Nothing of them was reported.
func (o *offender) withdraw() {
	o.episodes = slices.DeleteFunc(o.episodes, func(ep *episode) bool { return !ep.certain() })
}

// mark makes an over event part of the episode that it touches; of two that it touches it makes one; where there is none it
// opens one.
func (o *offender) mark(x *exceedance, a *arrival, res *outcome) {
	window := o.lineage.window
	if a.bound.kind == KindCandidate && o.offends(x) {
		return
	}
	var into *episode
	for i := 0; i < len(o.episodes); i++ {
		ep := o.episodes[i]
		switch {
		case !ep.touches(x.time, window):
			continue
		case ep.outlived(x.place), ep.kind != a.bound.kind:
			o.remove(ep)
			res.end(ep, PhaseClosed, ep.kind == a.bound.kind)
			i--
		case into == nil:
			ep.extend(x, a, o)
			into = ep
		default:
			into = o.join(into, ep, a.bound.wide, res)
			i-- // one of the two is gone, and the joined one stands before the next
		}
	}
	if into == nil {
		into = o.open(x, a)
	} else {
		res.extend(into)
	}
	into.peak = max(into.peak, x.count)
	into.lateness = max(into.lateness, a.bound.lateness)
	into.attribute(x.place, a, res)
	if !into.certain() && a.settles == traffic.BeforeTime {
		into.settles = traffic.BeforeTime
	}
	if into.certain() {
		res.tell(into)
	}
}

// offends reports whether an over event lies in an episode of the live version. One that comes late and was routed when the
// version was pending still has no part in it, nor ends it.
func (o *offender) offends(x *exceedance) bool {
	return slices.ContainsFunc(o.episodes, func(ep *episode) bool { return ep.kind == KindHit && ep.touches(x.time, o.lineage.window) })
}

// trim has the algorithm drop events that no decision needs, once an event was over.
func (o *offender) trim(ev *event) {
	if o.lineage.ranges == nil || len(ev.exceedances) == 0 {
		return
	}
	switch given, equals := o.lineage.ranges.trim(&o.cell, ev); {
	case equals > 0 && given == o.trimmed.entry:
		o.trimmed.nth += equals
	case equals > 0:
		o.trimmed = place{given, equals - 1}
	}
}

// among converts a place among the events that the algorithm keeps into one among all events of the key.
func (o *offender) among(at place) place {
	if at.entry == o.trimmed.entry {
		at.nth += o.trimmed.nth + 1
	}
	return at
}

// between counts the events x with a < x <= b, for a lineage that can count ranges: what the algorithm still keeps, and the
// trimmed equals of a.
func (o *offender) between(a, b place) int64 {
	n := o.lineage.ranges.between(&o.cell, a, b)
	if a.entry == o.trimmed.entry && b.entry != a.entry {
		n += int64(o.trimmed.nth) + 1 // equals of a that are kept no more
	}
	return n
}

// attribute assigns the exceedance x to a block target. Only the arriving event's identity is known: earlier events that it
// pushed over the limit are attributed to the rule's key. An episode of such events alone has a hit that blocks nobody, since
// the arriving event's identity has done nothing.
func (ep *episode) attribute(x place, a *arrival, res *outcome) {
	if !a.bound.wide {
		ep.attributeNarrow(x, a, res)
		return
	}
	if x != a.at {
		if len(ep.targets) == 0 {
			ep.addTarget(&blockTarget{last: x.time}, a, res)
		}
		return
	}
	block := a.blockSubject()
	t := ep.target(block)
	if t == nil && len(ep.targets) >= MaxTuples {
		block = a.wideSubject()
		if t = ep.target(block); t == nil {
			t = ep.addTarget(&blockTarget{block: block, last: x.time}, a, res)
		}
	} else if t == nil {
		t = ep.addTarget(&blockTarget{block: block, last: x.time}, a, res)
	}
	t.last, t.good = max(t.last, x.time), max(t.good, a.event.Good)
}

// attributeNarrow is attribute where the block's key has no fields beyond the rule's, so that there is one target a version.
// A version edited while the episode runs may bring another block, which has a hit of its own from then on.
func (ep *episode) attributeNarrow(x place, a *arrival, res *outcome) {
	t := ep.under(a.bound.version.Number)
	if t == nil {
		block := a.blockSubject()
		if t = ep.target(block); t == nil && len(ep.targets) <= MaxTuples {
			t = ep.addTarget(&blockTarget{block: block, last: x.time}, a, res)
		}
	}
	if t == nil {
		t = ep.targets[0]
	}
	t.last = ep.last.time
	if x == a.at {
		t.good = max(t.good, a.event.Good)
	}
}

// addTarget adds a block target, which opens a hit.
func (ep *episode) addTarget(t *blockTarget, a *arrival, res *outcome) *blockTarget {
	t.version = a.bound.version.Number
	t.generation, t.source, t.offset = a.event.Generation, a.event.Source, a.event.Offset
	t.sent = traffic.BeforeTime
	if a.bound.tries != nil {
		t.opened, t.good = a.event.Time, a.event.Good
	}
	h := ep.hit(t, PhaseOpen, 0, 0)
	// One arrival can open two episodes of a key, when the second cuts the first: they are two offences.
	for nth := 0; nth == 0 || res.knows(t.id); nth++ {
		t.id = a.secret.hitID(&h, nth)
	}
	ep.targets = append(ep.targets, t)
	return t
}

func (o *offender) open(x *exceedance, a *arrival) *episode {
	ep := &episode{
		rule: o.lineage, kind: a.bound.kind, limit: a.told(x), subject: traffic.Subject(a.subject), grouped: a.grouped,
		first: x.place, last: x.place, count: 1, seen: a.rank, settles: a.settles,
		atLeast: a.behind && o.mayBeginBefore(x),
	}
	ep.begin(x, a, o.key)
	at := 0
	for at < len(o.episodes) && o.episodes[at].first.compare(x.place) < 0 {
		at++
	}
	o.episodes = slices.Insert(o.episodes, at, ep)
	return ep
}

// mayBeginBefore reports whether an episode that a late event opens at x may have begun earlier, unseen.
func (o *offender) mayBeginBefore(x *exceedance) bool {
	if o.lineage.ranges != nil {
		// An event over the limit, less than a window before x, with a window of which something is not kept.
		return o.trimmedWithin(2*o.lineage.window, x.time)
	}
	// The newest event of a window is its first over one if there is room for all others. Else it may be any.
	return x.how != overEvent || x.count != x.limit+1 || o.lineage.kind.count == countDistinct
}

// join makes one episode of two. The one seen first goes on, with its targets; a target of the other whose block it has, or
// has no room for, is reported as merged.
func (o *offender) join(a, b *episode, wide bool, res *outcome) *episode {
	if b.seen < a.seen {
		a, b = b, a
	}
	a.absorb(b, o)
	a.muted = a.muted && b.muted
	o.remove(b)
	for _, t := range b.targets {
		stays := a.target(t.block)
		if wide && stays == nil && len(a.targets) < MaxTuples {
			a.targets = append(a.targets, t)
			res.move(b, t, a)
			continue
		}
		if stays == nil {
			stays = a.targets[0]
		}
		stays.last = max(stays.last, t.last)
		res.endTarget(notice{ep: b, target: t, phase: PhaseMerged, into: stays.id})
	}
	return a
}

// addEvidence adds the arriving event to the users, devices and samples of the episode that it lies in.
func (o *offender) addEvidence(a *arrival) {
	if o.lineage.rung != nil { // nobody is told of its episodes
		return
	}
	for _, ep := range o.episodes {
		if a.at.time < ep.first.time || a.at.time > ep.last.time {
			continue
		}
		ep.users.add(a.secret, a.event.Identity.User)
		ep.devices.add(a.secret, a.event.Identity.Device)
		if len(ep.samples) < ep.before+maxSamples && len(a.event.Sample) > 0 {
			text := traffic.AppendSampleText(nil, a.event.Sample, a.event.Time, &a.event.Identity)
			if len(ep.samples) == 0 {
				text = ep.earlier.mark(text)
			}
			ep.samples = append(ep.samples, text)
		}
	}
}

func (o *offender) remove(ep *episode) {
	ep.ends()
	o.episodes = slices.DeleteFunc(o.episodes, func(x *episode) bool { return x == ep })
}

// expire reports the episodes that the watermark has made certain, and closes those that it has passed.
func (o *offender) expire(watermark traffic.Time, res *outcome) {
	for _, ep := range slices.Clone(o.episodes) {
		if !ep.certain() && o.lineage.dead(watermark) >= ep.settles {
			ep.settles = traffic.BeforeTime
			res.tell(ep)
		}
		if watermark >= ep.closes() {
			o.remove(ep)
			res.end(ep, PhaseClosed, false)
		}
	}
}

// end closes all episodes before their time: the key is evicted.
func (o *offender) end(res *outcome) {
	for _, ep := range o.episodes {
		ep.ends()
		res.end(ep, PhaseClosed, false)
	}
	o.episodes = nil
}

// next is when the watermark next makes an episode certain or closes one.
func (o *offender) next() traffic.Time {
	due := traffic.EndOfTime
	for _, ep := range o.episodes {
		due = min(due, ep.closes())
		if !ep.certain() {
			due = min(due, later(ep.settles, o.lineage.lateness))
		}
	}
	return due
}

// bytes is what the episodes take, beside the key's slot.
func (o *offender) bytes() int64 {
	n := int64(184)
	for _, ep := range o.episodes {
		n += ep.bytes()
	}
	return n
}
