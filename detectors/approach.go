package detectors

import (
	"encoding/binary"
	"slices"

	"github.com/weirhq/weir/traffic"
)

const (
	// maxApproach is how many events of a key are kept from before it is over its limit.
	maxApproach = 3
	// approachShare is which part of the budget for keys the events of all keys may take, beside that budget.
	approachShare = 64
	// approachOverhead is what an event is charged beside its bytes: itself, its places in the queue and in the map.
	approachOverhead = 160
)

// halfway is from which count on a key is on its way to a limit. One event is no way: a flood makes keys of one at will, so of
// rules with a limit of 1 nothing is kept.
func halfway(limit int64) int64 { return max(2, (limit+1)/2) }

// approachKey is a key of a lineage. A lineage that was forgotten and comes back has the same salt.
type approachKey struct {
	key Fingerprint
	of  uint64 // salt of the lineage
}

// approachEvent is an event of a key on its way to its limit. It does not change, so a snapshot under way may share it.
type approachEvent struct {
	of       approachKey
	rule     uint64 // hash of its id: a reset is of the rule, whichever of its lineages are still known
	time     traffic.Time
	until    traffic.Time // from then on no window that holds it is left: it is of no use
	evidence []byte       // as AppendEvidence writes it
	turn     int          // its index in the queue and base together; no part of the state
}

func (e *approachEvent) bytes() int64 { return approachOverhead + int64(len(e.evidence)) }

// earlierWhy is why an episode has no sample from before the limit, as snapshots write it.
type earlierWhy uint8

const (
	earlierUnknown earlierWhy = iota // nobody has looked, or there are some
	earlierNone
	earlierDropped
	numEarlier
)

// mark is text with what is said of it.
func (e earlierWhy) mark(text []byte) []byte {
	switch e {
	case earlierNone:
		text, _ = traffic.MarkSample(text, traffic.SampleEarlierNone)
	case earlierDropped:
		text, _ = traffic.MarkSample(text, traffic.SampleEarlierDropped)
	}
	return text
}

// approaches keep what sources did on their way to a limit: of each key events from half its limit on that were not over. One is kept
// if fewer than maxApproach kept ones of its key lie less than a window before it. They go when an episode of the key takes them, when
// no window holds them any more, and when there is no room, those first that came first.
type approaches struct {
	room  int64
	bytes int64
	keys  map[approachKey][maxApproach]*approachEvent // in the order of coming, nil after the last
	queue []*approachEvent                            // likewise, of all keys; nil for those that were taken or replaced
	base  int                                         // how many left the queue at its front
	live  int                                         // of queue, that are not nil
	// lost is until when the events would have been of use that were dropped for want of room. An episode that begins before may lack some.
	lost traffic.Time
}

func newApproaches(budget int64) approaches {
	if budget <= 0 {
		budget = DefaultBudget
	}
	return approaches{
		room: budget / approachShare, lost: traffic.BeforeTime, keys: map[approachKey][maxApproach]*approachEvent{},
	}
}

// wants reports whether an event of a key at an instant is to be kept.
func (a *approaches) wants(of approachKey, at, window traffic.Time) bool {
	n := 0
	for _, e := range a.keys[of] {
		if e != nil && e.time > earlier(at, window) {
			n++
		}
	}
	return n < maxApproach
}

// keep keeps an event that wants has approved, and returns how many others had to go before their time.
func (a *approaches) keep(e *approachEvent, window, watermark traffic.Time) (dropped int64) {
	for _, old := range a.keys[e.of] {
		if old != nil && old.time <= earlier(e.time, window) {
			a.drop(old)
		}
	}
	a.put(e)
	return a.makeRoom(watermark)
}

// makeRoom lets go what came first: what is of no use by the watermark, and beyond the room the rest, which is counted.
func (a *approaches) makeRoom(watermark traffic.Time) (dropped int64) {
	for ; len(a.queue) > 0; a.queue, a.base = a.queue[1:], a.base+1 {
		old := a.queue[0]
		if old == nil {
			continue
		}
		spent := old.until <= watermark
		if !spent && a.bytes <= a.room {
			break
		}
		if a.drop(old); !spent {
			a.lost = max(a.lost, old.until)
			dropped++
		}
	}
	a.compact()
	return dropped
}

func (a *approaches) put(e *approachEvent) {
	kept := a.keys[e.of]
	kept[slices.Index(kept[:], nil)] = e
	a.keys[e.of] = kept
	e.turn = a.base + len(a.queue)
	a.queue = append(a.queue, e)
	a.bytes += e.bytes()
	a.live++
}

func (a *approaches) drop(e *approachEvent) {
	var rest [maxApproach]*approachEvent
	n := 0
	for _, x := range a.keys[e.of] {
		if x != nil && x != e {
			rest[n] = x
			n++
		}
	}
	if n == 0 {
		delete(a.keys, e.of)
	} else {
		a.keys[e.of] = rest
	}
	a.queue[e.turn-a.base] = nil
	a.bytes -= e.bytes()
	a.live--
}

// compact closes the gaps of the queue once they are most of it.
func (a *approaches) compact() {
	if len(a.queue) < 16 || a.live > len(a.queue)/2 {
		return
	}
	a.queue, a.base = slices.DeleteFunc(a.queue, func(e *approachEvent) bool { return e == nil }), 0
	for i, e := range a.queue {
		e.turn = i
	}
}

// reset drops the events of a key under all lineages of a rule.
func (a *approaches) reset(rule string, key Fingerprint) {
	of := hashText(rule)
	for _, e := range a.queue {
		if e != nil && e.of.key == key && e.rule == of {
			a.drop(e)
		}
	}
}

// forget drops the events of a key.
func (a *approaches) forget(of approachKey) {
	for _, e := range a.keys[of] {
		if e != nil {
			a.drop(e)
		}
	}
}

// of are the events of a key after one instant and up to another, in the order of their times.
func (a *approaches) of(of approachKey, after, upTo traffic.Time) (out []*approachEvent) {
	for _, e := range a.keys[of] {
		if e != nil && e.time > after && e.time <= upTo {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(x, y *approachEvent) int { return int(min(1, max(-1, x.time-y.time))) })
	return out
}

// read takes the evidence apart. The texts of id, and sample, alias it.
func (e *approachEvent) read() (id traffic.Identity, sample []byte, err error) {
	r := reader{b: e.evidence}
	readIdentity(&r, &id)
	sample = r.bytes()
	return id, sample, r.done(ErrRecord)
}

// text is the sample of the event, marked as one from before the limit; false where that cannot be said of it.
func (e *approachEvent) text() (marked []byte, ok bool) {
	id, sample, err := e.read()
	if err != nil {
		return nil, false
	}
	return traffic.MarkSample(traffic.AppendSampleText(nil, sample, e.time, &id), traffic.SampleBefore)
}

// meet keeps the event ev, of the record k and in the cell c of a key, if that is on its way to its limit, and returns how many others had to
// go. The count that the algorithm has noted may be too high, of a log that holds events older than the window.
// Keys that a snapshot of a first build has named by texts are left out: their fingerprints are others for a reset.
func (a *approaches) meet(k *Keyed, b *binding, ev *event, key Fingerprint, c *cell, watermark traffic.Time) (dropped int64) {
	l := b.lineage
	of := approachKey{key, l.salt}
	if l.form != keyBinary || !a.wants(of, ev.time, l.window) || l.algorithm.countAt(c, ev.time, ev.limit) < halfway(ev.burst) {
		return 0
	}
	return a.keep(&approachEvent{
		of: of, rule: l.ruleHash, time: ev.time, until: later(later(ev.time, l.window), b.lateness),
		evidence: AppendEvidence(make([]byte, 0, evidenceBound(k)), k),
	}, l.window, watermark)
}

// evidenceBound is at least as much as AppendEvidence writes.
func evidenceBound(k *Keyed) int {
	const numbers = 1 + 1 + 16 + 5*binary.MaxVarintLen32
	id := &k.Identity
	return numbers + len(id.Device) + len(id.User) + len(id.APIKey) + len(id.Session) + len(k.Sample)
}

// begin gives the episode, which opens with x, what its key did on its way to the limit. Plans of windows under trial do not ask for it.
func (ep *episode) begin(x *exceedance, a *arrival, key Fingerprint) {
	if !a.bound.approaches {
		return
	}
	upTo := x.time
	if x.place != a.at {
		upTo-- // of the events at that instant it is not known which is over
	}
	of := approachKey{key, ep.rule.salt}
	for _, e := range a.before.of(of, earlier(x.time, ep.rule.window), upTo) {
		if text, ok := e.text(); ok {
			ep.samples = append(ep.samples, text)
		}
	}
	ep.before = len(ep.samples)
	switch {
	case ep.before > 0:
	case x.time < a.before.lost:
		ep.earlier = earlierDropped
	default:
		ep.earlier = earlierNone
	}
	a.before.forget(of)
}
