package detectors

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

const minute = traffic.Time(time.Minute / time.Microsecond)

// lateKey names one sum of late events: per rule, source partition and minute of append time, so that a sum is over
// when the minute is and its hit needs no correction.
type lateKey struct {
	lineage *lineage
	source  int
	minute  traffic.Time
}

type lateSum struct {
	version int // newest rule version that added to it
	count   int64
	latest  traffic.Time // newest event time
	offset  int64        // of the first event added, for the id
}

// addLate counts an event that came too late for b's rule.
func (p *Partition) addLate(k *Keyed, b *binding) {
	key := lateKey{lineage: b.lineage, source: k.Source, minute: p.lateMinute()}
	sum, ok := p.late[key]
	if !ok {
		sum = &lateSum{offset: k.Offset, latest: k.Time}
		p.late[key] = sum
	}
	sum.count++
	sum.version = max(sum.version, b.version.Number)
	sum.latest = max(sum.latest, k.Time)
}

// lateMinute is the minute that late events are added to. Append times may step back when a leader changes; a minute
// that was flushed is never opened again, because the stall clock's origin moves on only.
func (p *Partition) lateMinute() traffic.Time {
	p.newest = max(p.newest, p.appended)
	return p.newest - p.newest%minute
}

func compareLate(a, b lateKey) int {
	return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.lineage.id, b.lineage.id), cmp.Compare(a.source, b.source))
}

// flushLate sends the sums of minutes that are over; of all when the stream has ended.
func (p *Partition) flushLate(out []Hit, ended bool) []Hit {
	if len(p.late) == 0 {
		return out
	}
	now := p.lateMinute()
	var done []lateKey
	for key := range p.late {
		if ended || key.minute < now {
			done = append(done, key)
		}
	}
	slices.SortFunc(done, compareLate)
	for _, key := range done {
		sum := p.late[key]
		h := Hit{
			Format: HitFormat, Kind: KindLate, Rule: key.lineage.rule, RuleVersion: sum.version, Lineage: key.lineage.number,
			Count: sum.count, First: key.minute, Last: sum.latest, Seen: p.appended,
			Generation: p.generation, Source: key.source, Offset: sum.offset, Keyed: p.cfg.Keyed,
		}
		h.ID = p.cfg.Secret.hitID(&h, 0)
		out = append(out, h)
		delete(p.late, key)
	}
	return out
}
