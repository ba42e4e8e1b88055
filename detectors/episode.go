package detectors

import (
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

const (
	// MaxEpisode is where a running episode is cut: it closes, and the next over event opens another.
	MaxEpisode = 24 * time.Hour
	// maxSamples is how many sample events over the limit an episode keeps: the first ones.
	maxSamples = 3
	// MaxTuples is how many different blocks one episode may lead to, where a block's key tells apart what the rule's key
	// does not. Beyond, one for the rule's own key stands for all others.
	MaxTuples = 64
)

// episode is a run of over events of one key, each less than a window after the one before. It opens at the first over
// event in the order of time and closes one window after the last; its count is the events from the first to the last
// over event, both included.
type episode struct {
	rule     *lineage
	kind     Kind // under which it opened: of its hits
	limit    int
	subject  traffic.Subject
	grouped  bool
	lateness traffic.Time // of the version under which it opened or was last extended

	first, last place
	count       int64
	pending     int64 // events after last: they count once an over event follows. Not used with a rangeCounter, which counts them then
	peak        int64
	// atLeast says that count may be too low, and first and last not those of the events in order of time: a late event met
	// state that was trimmed, or that the algorithm does not keep, or the limit rose above what was kept.
	atLeast bool
	// settles is when the episode becomes certain, as of event.settles. It is not reported before.
	settles traffic.Time
	seen    int64 // rank of the event at whose arrival the episode was first seen; of two that merge, the lesser

	targets []*blockTarget // at least one, at most MaxTuples+1
	told    bool           // a hit of it was sent: it is among the open episodes of its rule
	over    bool           // it is closed, or part of another
	waits   bool           // it has changed since its running count was told, and is among those that wait for that
	running int64          // the count that was told last, of a hit or between hits
	muted   bool           // a warning beyond the bound of openings: no hit of it is sent
	users   distinct
	devices distinct
	samples [][]byte
	before  int        // of samples, the first so many came before the limit
	earlier earlierWhy // why that is 0, which the first sample says
}

// blockTarget is one block that an episode leads to, with a hit of its own. Where the block's key has no fields beyond the
// rule's there is one.
type blockTarget struct {
	id    string
	block traffic.Subject // empty: no block is possible

	version int // of the rule, which said that this is the block

	opened traffic.Time // time of the event at whose arrival it was opened; 0: before rules.EvidenceRecordFormat
	good   Good         // the most that an event over the limit has said of it

	generation int64 // g, p, o of the event at whose arrival it was first seen
	source     int
	offset     int64
	last       traffic.Time // its own last over event
	sent       traffic.Time // last at the newest record sent; of an update about one of several tuples, the episode's last
}

// touches reports whether an over event at t belongs to the episode: less than a window before its first or after its
// last over event. One exactly a window away is outside.
func (ep *episode) touches(t, window traffic.Time) bool {
	return t > earlier(ep.first.time, window) && t < later(ep.last.time, window)
}

// outlived reports whether the over event x lies so far behind the opening that the episode is to be cut.
func (ep *episode) outlived(x place) bool {
	return x.time >= later(ep.first.time, traffic.Time(MaxEpisode.Microseconds()))
}

// meet counts an event of the key that may or may not be over. It reports whether the event lies within the episode.
func (ep *episode) meet(x place) bool {
	switch {
	case x.compare(ep.last) >= 0:
		ep.pending++
		return false
	case x.compare(ep.first) >= 0:
		ep.count++
		return true
	}
	return false
}

// extend takes the over event x into the episode, and counts the events between x and the bounds so far.
func (ep *episode) extend(x *exceedance, a *arrival, o *offender) {
	keeps := o.lineage.ranges != nil
	after, before := x.compare(ep.last), x.compare(ep.first)
	switch {
	case after == 0 && x.place != a.at: // the last over event, judged again
	case keeps && after >= 0:
		ep.count += o.between(ep.last, x.place)
		ep.last = x.place
	case keeps && before < 0:
		// Events in [x, first): between counts (x, first], which is as many.
		ep.count += max(1, o.between(x.place, ep.first))
		ep.first = x.place
	case keeps:
	case after >= 0 && !a.behind:
		ep.count, ep.pending, ep.last = ep.count+ep.pending, 0, x.place
	case after >= 0:
		// Of the events after the last one it is not known which come before x. They count when one in order is over.
		ep.last, ep.atLeast = x.place, true
	case before < 0:
		if x.how != overNear {
			ep.count++
		}
		if x.how == overEvent {
			ep.first = x.place
		}
		ep.atLeast = true
	}
}

// absorb joins other to ep; the events between the two are counted once.
func (ep *episode) absorb(other *episode, o *offender) {
	a, b := ep, other
	if a.first.compare(b.first) > 0 {
		a, b = b, a
	}
	gap := int64(0)
	if o.lineage.ranges != nil {
		gap = max(0, o.between(a.last, b.first)-1)
	} else {
		ep.atLeast = true // how many events lie between the two is not known
	}
	count := a.count + b.count + gap
	first, last, pending := a.first, b.last, b.pending
	if a.last.compare(b.last) > 0 {
		last, pending = a.last, a.pending
	}
	ep.first, ep.last, ep.count, ep.pending = first, last, count, pending
	ep.peak = max(ep.peak, other.peak)
	ep.atLeast = ep.atLeast || other.atLeast
	ep.settles = min(ep.settles, other.settles)
	ep.lateness = max(ep.lateness, other.lateness)
	ep.users.merge(&other.users)
	ep.devices.merge(&other.devices)
}

// certain reports whether the episode may be reported.
func (ep *episode) certain() bool { return ep.settles == traffic.BeforeTime }

// closes is the watermark that ends the episode: no event that is on time after it could extend the episode.
func (ep *episode) closes() traffic.Time {
	return later(later(ep.last.time, ep.rule.window), ep.lateness)
}

// target is the one of a block, nil if there is none.
func (ep *episode) target(block traffic.Subject) *blockTarget {
	for _, t := range ep.targets {
		if t.block == block {
			return t
		}
	}
	return nil
}

// under is the target that a version of the rule has brought, nil if there is none. It is asked only where the block's key is
// not wider than the rule's.
func (ep *episode) under(version int) *blockTarget {
	for _, t := range ep.targets {
		if t.version == version {
			return t
		}
	}
	return nil
}

// hit describes the episode as a record of the hits topic, for one of its block targets.
func (ep *episode) hit(t *blockTarget, phase Phase, keyed int, seen traffic.Time) Hit {
	h := Hit{
		Format: HitFormat, Kind: ep.kind, ID: t.id, Rule: ep.rule.rule, RuleVersion: t.version,
		Lineage: ep.rule.number, Phase: phase, Subject: ep.subject, BlockSubject: t.block, Grouped: ep.grouped,
		Opened: t.opened, Good: t.good, Limit: ep.limit, WindowMS: int64(ep.rule.window) / 1000, Count: ep.count, Peak: int(ep.peak),
		AtLeast: ep.atLeast, First: ep.first.time, Last: t.last, Seen: seen,
		Generation: t.generation, Source: t.source, Offset: t.offset, Keyed: keyed,
		Users: ep.users.count(), Devices: ep.devices.count(),
	}
	for _, s := range ep.samples {
		h.Samples = append(h.Samples, string(s))
	}
	return h
}

// bytes is what the episode takes, as a function of what it holds.
func (ep *episode) bytes() int64 {
	n := 352 + int64(len(ep.subject)) + 8*int64(len(ep.users.seen)+len(ep.devices.seen))
	for _, t := range ep.targets {
		n += 160 + int64(len(t.block))
	}
	for _, s := range ep.samples {
		n += 24 + int64(len(s))
	}
	return n
}

// distinct counts different values up to MaxDistinct, by a 64-bit hash of each: two values are taken for one with a
// chance below 2^-50.
type distinct struct{ seen []uint64 }

func (d *distinct) add(secret *Secret, value string) {
	if value == "" {
		return
	}
	d.put(secret.sum([]byte(value)).Lo)
}

func (d *distinct) put(h uint64) {
	if len(d.seen) >= MaxDistinct {
		return
	}
	if at, found := slices.BinarySearch(d.seen, h); !found {
		d.seen = slices.Insert(d.seen, at, h)
	}
}

func (d *distinct) merge(other *distinct) {
	for _, h := range other.seen {
		d.put(h)
	}
}

func (d *distinct) count() int { return len(d.seen) }
