package detectors

import (
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// lineage is what all windows of one lineage of a rule share.
type lineage struct {
	rule   string
	number int
	id     string // rules.Version.LineageID
	window traffic.Time
}

// window is the state of one key: its log and the episodes that run on it.
type window struct {
	key      Fingerprint
	rule     *lineage
	lateness traffic.Time // greatest of the versions that fed it: entries live that much longer
	log      slidingLog
	episodes []*episode // ascending by first, at least a window apart

	due  traffic.Time // when the watermark has something to do here, or earlier
	heap int          // index in the partition's timers
}

// arrival is one on-time event on its way into one window.
type arrival struct {
	event     *Keyed
	version   *rules.Version
	subject   []byte // of the rule's key
	grouped   bool   // a field of the key is missing
	watermark traffic.Time
	rank      int64 // of the event among all that the partition has folded
}

// dead is the instant whose past is of no use to w any more: no on-time event lies before it.
func (a *arrival) dead(w *window) traffic.Time {
	if a.watermark == traffic.BeforeTime {
		return traffic.BeforeTime
	}
	return a.watermark - w.lateness
}

// blockSubject is the identity that a block would hold, empty where none is possible: a block needs all of its fields.
func (a *arrival) blockSubject() traffic.Subject {
	if a.grouped || a.version.Block == nil {
		return ""
	}
	s, missing := traffic.MakeSubject(&a.event.Identity, a.version.Block.Key)
	if missing > 0 {
		return ""
	}
	return s
}

// outcome collects what an arrival did to a window's episodes.
type outcome struct {
	opened, extended []*episode
	ended            []ending
}

// ending is an episode that is over: closed, cut or merged into another.
type ending struct {
	ep    *episode
	phase Phase
	cut   bool
	into  string
}

// insert counts the arrival and judges every window that it lies in.
func (w *window) insert(a *arrival, secret *Secret, res *outcome) {
	e := entry{
		time: a.event.Time, source: int32(a.event.Source), offset: a.event.Offset, limit: int32(a.version.Limit),
	}
	w.log.expire(w.rule.window, a.dead(w), 1+len(w.log.entries)/2)
	at := w.log.insert(e)
	for _, ep := range w.episodes {
		// Strictly inside: an event beyond the last over event counts only once an over event follows it.
		if e.compare(ep.first) > 0 && e.compare(ep.last) < 0 {
			ep.count++
			res.extend(ep)
		}
	}
	overNewest := false
	for j := at; j < len(w.log.entries) && w.log.entries[j].time < e.time+w.rule.window; j++ {
		if w.log.over(j, w.rule.window) {
			w.mark(j, a, secret, res)
			overNewest = j == len(w.log.entries)-1
		}
	}
	w.witness(a, secret)
	if overNewest {
		w.log.saturate()
	}
}

// mark makes the over event at index j part of an episode: of the one that it touches, of all that it joins, or of a
// new one.
func (w *window) mark(j int, a *arrival, secret *Secret, res *outcome) {
	x, peak := w.log.entries[j], w.log.peak(j, w.rule.window)
	var into *episode
	for i := 0; i < len(w.episodes); i++ {
		ep := w.episodes[i]
		switch {
		case !ep.touches(x.time, w.rule.window):
			continue
		case ep.outlived(x):
			res.end(ending{ep: ep, phase: PhaseClosed, cut: true})
			w.remove(ep)
			i--
		case into == nil:
			ep.extend(x, &w.log)
			into = ep
		default:
			into = w.join(into, ep, res)
			i-- // one of the two is gone, and the joined one stands before the next
		}
	}
	if into == nil {
		into = w.open(x, a, secret)
		res.opened = append(res.opened, into)
	} else {
		res.extend(into)
	}
	into.peak = max(into.peak, peak)
	into.lateness = max(into.lateness, traffic.Time(a.version.Lateness.Microseconds()))
}

// join makes one episode of two. The id that arrived first stays.
func (w *window) join(a, b *episode, res *outcome) *episode {
	if b.seen < a.seen {
		a, b = b, a
	}
	a.absorb(b, &w.log)
	w.remove(b)
	res.end(ending{ep: b, phase: PhaseMerged, into: a.id})
	return a
}

func (w *window) open(x entry, a *arrival, secret *Secret) *episode {
	ep := &episode{
		rule: w.rule, ruleVersion: a.version.Number, limit: a.version.Limit,
		subject: traffic.Subject(a.subject), block: a.blockSubject(), grouped: a.grouped,
		first: x, last: x, count: 1,
		generation: a.event.Generation, source: a.event.Source, offset: a.event.Offset, seen: a.rank,
		sent: traffic.BeforeTime,
	}
	h := ep.hit(PhaseOpen, 0, 0)
	ep.id = secret.hitID(&h)
	at := 0
	for at < len(w.episodes) && w.episodes[at].first.compare(x) < 0 {
		at++
	}
	w.episodes = slices.Insert(w.episodes, at, ep)
	return ep
}

// witness adds the arriving event to the evidence of the episode that it lies in.
func (w *window) witness(a *arrival, secret *Secret) {
	for _, ep := range w.episodes {
		if a.event.Time < ep.first.time || a.event.Time > ep.last.time {
			continue
		}
		ep.users.add(secret, a.event.Identity.User)
		ep.devices.add(secret, a.event.Identity.Device)
		if len(ep.samples) < MaxSamples && len(a.event.Sample) > 0 {
			ep.samples = append(ep.samples, slices.Clone(a.event.Sample))
		}
	}
}

func (w *window) remove(ep *episode) {
	w.episodes = slices.DeleteFunc(w.episodes, func(x *episode) bool { return x == ep })
}

// expire closes the episodes that the watermark has passed and drops dead entries. It reports whether the window is
// empty and may be forgotten.
func (w *window) expire(watermark traffic.Time, res *outcome) (empty bool) {
	for _, ep := range slices.Clone(w.episodes) {
		if watermark >= ep.closes() {
			w.remove(ep)
			res.end(ending{ep: ep, phase: PhaseClosed})
		}
	}
	if watermark == traffic.EndOfTime {
		w.log.entries = nil
	} else {
		w.log.expire(w.rule.window, watermark-w.lateness, 1)
	}
	return len(w.log.entries) == 0 && len(w.episodes) == 0
}

// next is when the watermark next has something to do for this window, given that it holds something.
func (w *window) next() traffic.Time {
	due := traffic.EndOfTime
	if len(w.log.entries) > 0 {
		due = later(later(w.log.newest(), w.rule.window), w.lateness)
	}
	for _, ep := range w.episodes {
		due = min(due, ep.closes())
	}
	return due
}

// empty forgets what o held, but keeps its memory.
func (o *outcome) empty() *outcome {
	clear(o.opened)
	clear(o.extended)
	clear(o.ended)
	o.opened, o.extended, o.ended = o.opened[:0], o.extended[:0], o.ended[:0]
	return o
}

func (o *outcome) extend(ep *episode) {
	if !slices.Contains(o.extended, ep) && !slices.Contains(o.opened, ep) {
		o.extended = append(o.extended, ep)
	}
}

// end notes that an episode is over; one that opened or grew by the same arrival is reported as ended only, unless it
// was never sent: then its opening is sent first.
func (o *outcome) end(e ending) {
	o.extended = slices.DeleteFunc(o.extended, func(x *episode) bool { return x == e.ep })
	if i := slices.Index(o.opened, e.ep); i >= 0 {
		// It opened and ended by one arrival: nobody has heard of it, so it never was.
		o.opened = slices.Delete(o.opened, i, i+1)
		if e.phase == PhaseMerged {
			return
		}
	}
	o.ended = append(o.ended, e)
}
