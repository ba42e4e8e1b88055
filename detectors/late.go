package detectors

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

const minute = traffic.Time(time.Minute / time.Microsecond)

// uncountedSums are the sums of the events that were left out in one minute of append time: a sum is over when the minute
// is, and its hit needs no correction. There are at most as many as rules times source partitions times reasons.
type uncountedSums struct {
	minute traffic.Time // of all sums; of no meaning where there are none
	sums   map[uncountedKey]*uncountedSum
}

// uncountedKey names one sum.
type uncountedKey struct {
	lineage *lineage
	source  int
	reason  Uncounted
}

type uncountedSum struct {
	version int // newest rule version that added to it
	count   int64
	latest  traffic.Time // newest event time
	offset  int64        // of the first event added, for the id
}

// leaveOut sums up an event that b's rule does not count.
func (p *Partition) leaveOut(k *Keyed, b *binding, reason Uncounted) {
	b.lineage.uncounted[reason]++
	if reason != UncountedLate && !b.tells {
		return
	}
	// Nothing is left of an earlier minute: the same record has passed flushUncounted before it comes here.
	p.uncounted.minute = p.lateMinute()
	key := uncountedKey{lineage: b.lineage, source: k.Source, reason: reason}
	sum, ok := p.uncounted.sums[key]
	if !ok {
		sum = &uncountedSum{offset: k.Offset, latest: k.Time}
		p.uncounted.sums[key] = sum
	}
	sum.count++
	sum.version = max(sum.version, b.version.Number)
	sum.latest = max(sum.latest, k.Time)
}

// lateMinute is the minute that events are added to that are left out. Append times may step back when a leader changes;
// a minute that was flushed is never opened again, because the stall clock's origin moves on only.
func (p *Partition) lateMinute() traffic.Time {
	p.newest = max(p.newest, p.appended)
	return p.newest - p.newest%minute
}

func compareUncounted(a, b uncountedKey) int {
	return cmp.Or(cmp.Compare(a.lineage.id, b.lineage.id), cmp.Compare(a.source, b.source), cmp.Compare(a.reason, b.reason))
}

// ordered are the keys of all sums in the order in which they are sent and written.
func (u *uncountedSums) ordered() []uncountedKey {
	return slices.SortedFunc(maps.Keys(u.sums), compareUncounted)
}

// flushUncounted sends the sums when their minute is over, or the stream has ended.
func (p *Partition) flushUncounted(out []Hit, ended bool) []Hit {
	if len(p.uncounted.sums) == 0 || p.lateMinute() == p.uncounted.minute && !ended {
		return out
	}
	for _, key := range p.uncounted.ordered() {
		sum := p.uncounted.sums[key]
		h := Hit{
			Format: HitFormat, Kind: KindLate, Rule: key.lineage.rule, RuleVersion: sum.version, Lineage: key.lineage.number,
			Count: sum.count, First: p.uncounted.minute, Last: sum.latest, Seen: p.appended,
			Generation: p.generation, Source: key.source, Offset: sum.offset, Keyed: p.cfg.Keyed,
		}
		if key.reason != UncountedLate {
			h.Kind, h.Reason = KindUncounted, key.reason.String()
		}
		h.ID = p.cfg.Secret.hitID(&h, 0)
		out = append(out, h)
	}
	clear(p.uncounted.sums)
	return out
}
