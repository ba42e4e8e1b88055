package detectors

import (
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

const (
	// MaxEpisode is where a running episode is cut: it closes, and the next over event opens another.
	MaxEpisode = 24 * time.Hour
	// Cooldown is the least distance, in event time, between two updates of a running episode.
	Cooldown = time.Minute
	// MaxSamples is how many sample events an episode keeps: the first ones over the limit.
	MaxSamples = 3
)

// episode is a run of over events of one key, each less than a window after the one before. It opens at the first over
// event in (time, offset) order and closes one window after the last; its count is the events from the first to the
// last over event, both included.
type episode struct {
	id          string
	rule        *lineage
	ruleVersion int
	limit       int
	subject     traffic.Subject
	block       traffic.Subject
	grouped     bool
	lateness    traffic.Time // of the version under which it opened or was last extended

	first, last entry
	count       int64
	peak        int

	generation int64 // g, p, o of the event at whose arrival it was first seen
	source     int
	offset     int64
	seen       int64 // rank of that arrival in the partition; the lesser id survives a merge

	sent    traffic.Time // last at the newest record sent
	users   distinct
	devices distinct
	samples [][]byte
}

// touches reports whether an over event at t belongs to the episode: less than a window before its first or after its
// last over event. One exactly a window away is outside.
func (ep *episode) touches(t, window traffic.Time) bool {
	return t > ep.first.time-window && t < ep.last.time+window
}

// outlived reports whether the over event x lies so far behind the opening that the episode is to be cut.
func (ep *episode) outlived(x entry) bool {
	return x.time >= later(ep.first.time, traffic.Time(MaxEpisode.Microseconds()))
}

// extend makes the over event x one of the episode's, and counts the events between.
func (ep *episode) extend(x entry, log *slidingLog) {
	switch {
	case x.compare(ep.last) > 0:
		ep.count += log.between(ep.last, x)
		ep.last = x
	case x.compare(ep.first) < 0:
		// Entries in [x, first): between counts (x, first], which is as many.
		ep.count += log.between(x, ep.first)
		ep.first = x
	}
}

// absorb joins other to ep; the events between the two are counted once.
func (ep *episode) absorb(other *episode, log *slidingLog) {
	a, b := ep, other
	if a.first.compare(b.first) > 0 {
		a, b = b, a
	}
	gap := max(0, log.between(a.last, b.first)-1)
	count := a.count + b.count + gap
	first, last := a.first, b.last
	if a.last.compare(b.last) > 0 {
		last = a.last
	}
	ep.first, ep.last, ep.count = first, last, count
	ep.peak = max(ep.peak, other.peak)
	ep.lateness = max(ep.lateness, other.lateness)
	ep.users.merge(&other.users)
	ep.devices.merge(&other.devices)
}

// closes is when the watermark ends the episode: nothing that could still extend it is on time after that.
func (ep *episode) closes() traffic.Time {
	return later(later(ep.last.time, ep.rule.window), ep.lateness)
}

// later is t+d, saturated at the end of time.
func later(t, d traffic.Time) traffic.Time {
	if t > traffic.EndOfTime-d {
		return traffic.EndOfTime
	}
	return t + d
}

// hit describes the episode as a record of the hits topic.
func (ep *episode) hit(phase Phase, keyed int, seen traffic.Time) Hit {
	h := Hit{
		Format: HitFormat, Kind: KindHit, ID: ep.id, Rule: ep.rule.rule, RuleVersion: ep.ruleVersion,
		Lineage: ep.rule.number, Phase: phase, Subject: ep.subject, BlockSubject: ep.block, Grouped: ep.grouped,
		Limit: ep.limit, WindowMS: int64(ep.rule.window) / 1000, Count: ep.count, Peak: ep.peak,
		First: ep.first.time, Last: ep.last.time, Seen: seen,
		Generation: ep.generation, Source: ep.source, Offset: ep.offset, Keyed: keyed,
		Users: ep.users.count(), Devices: ep.devices.count(),
	}
	for _, s := range ep.samples {
		h.Samples = append(h.Samples, string(s))
	}
	return h
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
