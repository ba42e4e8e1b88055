package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// kept is a key with episodes: the only keys that have something to say when time passes, and so the only ones that have
// a timer.
type kept struct {
	key      Fingerprint
	lineage  *lineage
	cell     cell       // of the key, while it is kept
	episodes []*episode // ascending by first, at least a window apart
	cost     int64      // what the ledger was charged for it
	trimmed  place      // the newest event that was given up while it might still have been met; its time is BeforeTime if none was

	due  traffic.Time // when the watermark has something to do here, or earlier
	heap int          // index in the partition's timers
}

// arrival is one on-time event on its way into the episodes of one key.
type arrival struct {
	event   *Keyed
	bound   *binding
	secret  *Secret
	subject []byte // of the rule's key
	grouped bool   // a field of the key is missing
	rank    int64  // of the event among all that the partition has folded
	at      place
	behind  bool         // the key has had a newer event
	settles traffic.Time // when what is over becomes certain
}

// blockSubject is the identity that a block would hold, empty where none is possible: a block needs all of its fields.
func (a *arrival) blockSubject() traffic.Subject {
	if a.grouped || a.bound.version.Block == nil {
		return ""
	}
	s, missing := traffic.MakeSubject(&a.event.Identity, a.bound.version.Block.Key)
	if missing > 0 {
		return ""
	}
	return s
}

// wideSubject is the identity that a block holds where there are too many narrow ones: the rule's own key.
func (a *arrival) wideSubject() traffic.Subject {
	if a.grouped || a.bound.version.Block == nil {
		return ""
	}
	return traffic.Subject(a.subject)
}

// judge gives the arrival, and the events that it put over the limit, to the key's episodes.
func (k *kept) judge(a *arrival, overs []over, res *outcome) {
	_, keeps := k.lineage.algorithm.(spanner)
	for _, ep := range k.episodes {
		if ep.meet(a.at) {
			res.extend(ep)
			continue
		}
		// What an event that comes late makes of those around it is known as far as they are kept.
		near := ep.touches(a.at.time, k.lineage.window) || a.at.compare(ep.last) < 0
		if a.behind && near && (!keeps || a.at.compare(k.trimmed) <= 0) {
			ep.atLeast = true
		}
	}
	for i := range overs {
		k.mark(&overs[i], a, res)
	}
	k.witness(a)
}

// miss notes that an event was left out.
func (k *kept) miss(at place) {
	for _, ep := range k.episodes {
		ep.atLeast = ep.atLeast || at.compare(ep.last) < 0
	}
}

// withdraw forgets episodes that were never certain, and so never told of.
func (k *kept) withdraw() {
	k.episodes = slices.DeleteFunc(k.episodes, func(ep *episode) bool { return !ep.certain() })
}

// mark makes an over event part of an episode: of the one that it touches, of all that it joins, or of a new one.
func (k *kept) mark(x *over, a *arrival, res *outcome) {
	window := k.lineage.window
	var into *episode
	for i := 0; i < len(k.episodes); i++ {
		ep := k.episodes[i]
		switch {
		case !ep.touches(x.time, window):
			continue
		case ep.outlived(x.place):
			k.remove(ep)
			res.end(ep, PhaseClosed, true)
			i--
		case into == nil:
			ep.extend(x, a, k)
			into = ep
		default:
			into = k.join(into, ep, a.bound.wide, res)
			i-- // one of the two is gone, and the joined one stands before the next
		}
	}
	if into == nil {
		into = k.open(x, a)
	} else {
		res.extend(into)
	}
	into.peak = max(into.peak, x.count)
	into.lateness = max(into.lateness, a.bound.lateness)
	into.side(x.place, a, res)
	if !into.certain() && a.settles == traffic.BeforeTime {
		into.settles = traffic.BeforeTime
	}
	if into.certain() {
		res.tell(into)
	}
}

// trim has the algorithm give up events that no decision needs, once an event was over.
func (k *kept) trim(ev *event) {
	log, keeps := k.lineage.algorithm.(spanner)
	if !keeps || len(ev.overs) == 0 {
		return
	}
	switch given, equals := log.trim(&k.cell, ev); {
	case equals > 0 && given == k.trimmed.entry:
		k.trimmed.nth += equals
	case equals > 0:
		k.trimmed = place{given, equals - 1}
	}
}

// among is a place as the key's algorithm tells it, by the events that it keeps, among all events.
func (k *kept) among(at place) place {
	if at.entry == k.trimmed.entry {
		at.nth += k.trimmed.nth + 1
	}
	return at
}

// between counts the events x with a < x <= b, of which the algorithm keeps those that were not trimmed.
func (k *kept) between(log spanner, a, b place) int64 {
	n := log.between(&k.cell, a, b)
	if a.entry == k.trimmed.entry && b.entry != a.entry {
		n += int64(k.trimmed.nth) + 1 // equals of a that are kept no more
	}
	return n
}

// side notes which block the over event x speaks for. Only the arriving event's own tuple is known: of those that it put
// over the limit after the fact, all that is known is that they are of this key. An episode of such events alone has a
// hit that blocks nobody: the arriving event's tuple has done nothing.
func (ep *episode) side(x place, a *arrival, res *outcome) {
	if !a.bound.wide {
		ep.sideNarrow(x, a, res)
		return
	}
	if x != a.at {
		if len(ep.parties) == 0 {
			ep.admit(&party{last: x.time}, a, res)
		}
		return
	}
	block := a.blockSubject()
	y := ep.party(block)
	if y == nil && len(ep.parties) >= MaxTuples {
		block = a.wideSubject()
		if y = ep.party(block); y == nil {
			y = ep.admit(&party{block: block, last: x.time}, a, res)
		}
	} else if y == nil {
		y = ep.admit(&party{block: block, last: x.time}, a, res)
	}
	y.last = max(y.last, x.time)
}

// sideNarrow is side where the rule's key tells the block. The rule may have been edited since the episode opened: a block
// that it has got, or another one, has a hit of its own from then on.
func (ep *episode) sideNarrow(x place, a *arrival, res *outcome) {
	y := ep.under(a.bound.version.Number)
	if y == nil {
		block := a.blockSubject()
		if y = ep.party(block); y == nil && len(ep.parties) <= MaxTuples {
			y = ep.admit(&party{block: block, last: x.time}, a, res)
		}
	}
	if y == nil {
		y = ep.parties[0]
	}
	y.last = ep.last.time
}

// admit adds a party, which opens a hit.
func (ep *episode) admit(y *party, a *arrival, res *outcome) *party {
	y.version = a.bound.version.Number
	y.generation, y.source, y.offset = a.event.Generation, a.event.Source, a.event.Offset
	y.sent = traffic.BeforeTime
	h := ep.hit(y, PhaseOpen, 0, 0)
	// One arrival can open two episodes of a key, when the second cuts the first: they are two offences.
	for nth := 0; nth == 0 || res.knows(y.id); nth++ {
		y.id = a.secret.hitID(&h, nth)
	}
	ep.parties = append(ep.parties, y)
	return y
}

func (k *kept) open(x *over, a *arrival) *episode {
	v := a.bound.version
	_, keeps := k.lineage.algorithm.(spanner)
	ep := &episode{
		rule: k.lineage, limit: v.Limit, subject: traffic.Subject(a.subject), grouped: a.grouped,
		first: x.place, last: x.place, count: 1, seen: a.rank, settles: a.settles,
		// The newest event of a window is its first over one if there is room for all others. Else it may be any.
		atLeast: a.behind && !keeps && (x.how != overEvent || x.count != x.limit+1 || k.lineage.kind.count == countDistinct),
	}
	at := 0
	for at < len(k.episodes) && k.episodes[at].first.compare(x.place) < 0 {
		at++
	}
	k.episodes = slices.Insert(k.episodes, at, ep)
	return ep
}

// join makes one episode of two. The id that arrived first stays; where both lead to the same block, so does its party.
func (k *kept) join(a, b *episode, wide bool, res *outcome) *episode {
	if b.seen < a.seen {
		a, b = b, a
	}
	a.absorb(b, k)
	k.remove(b)
	for _, y := range b.parties {
		stays := a.party(y.block)
		if wide && stays == nil && len(a.parties) < MaxTuples {
			a.parties = append(a.parties, y)
			res.move(b, y, a)
			continue
		}
		if stays == nil {
			stays = a.parties[0]
		}
		stays.last = max(stays.last, y.last)
		res.endParty(notice{ep: b, party: y, phase: PhaseMerged, into: stays.id})
	}
	return a
}

// witness adds the arriving event to the evidence of the episode that it lies in.
func (k *kept) witness(a *arrival) {
	for _, ep := range k.episodes {
		if a.at.time < ep.first.time || a.at.time > ep.last.time {
			continue
		}
		ep.users.add(a.secret, a.event.Identity.User)
		ep.devices.add(a.secret, a.event.Identity.Device)
		if len(ep.samples) < MaxSamples && len(a.event.Sample) > 0 {
			ep.samples = append(ep.samples, traffic.AppendSampleText(nil, a.event.Sample, a.event.Time, &a.event.Identity))
		}
	}
}

func (k *kept) remove(ep *episode) {
	k.episodes = slices.DeleteFunc(k.episodes, func(x *episode) bool { return x == ep })
}

// expire tells of the episodes that the watermark has made certain, and closes those that it has passed.
func (k *kept) expire(watermark traffic.Time, res *outcome) {
	for _, ep := range slices.Clone(k.episodes) {
		if !ep.certain() && k.lineage.dead(watermark) >= ep.settles {
			ep.settles = traffic.BeforeTime
			res.tell(ep)
		}
		if watermark >= ep.closes() {
			k.remove(ep)
			res.end(ep, PhaseClosed, false)
		}
	}
}

// end closes all episodes before their time: the key is evicted.
func (k *kept) end(res *outcome) {
	for _, ep := range k.episodes {
		res.end(ep, PhaseClosed, false)
	}
	k.episodes = nil
}

// next is when the watermark next has something to do for this key.
func (k *kept) next() traffic.Time {
	due := traffic.EndOfTime
	for _, ep := range k.episodes {
		due = min(due, ep.closes())
		if !ep.certain() {
			due = min(due, later(ep.settles, k.lineage.lateness))
		}
	}
	return due
}

// bytes is what keeping the key takes, beside its cell.
func (k *kept) bytes() int64 {
	n := int64(184)
	for _, ep := range k.episodes {
		n += ep.bytes()
	}
	return n
}
