package detectors

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/traffic"
)

// minuteKey names a sum: a rule has one for each version, kind of version and minute of event time.
type minuteKey struct {
	of      Kind
	version int
	minute  traffic.Time
}

// minuteSum is what a rule counted of one minute of event time, and what its block would have done, within one minute of append time:
// then it is told and forgotten, so each event is in exactly one sum.
type minuteSum struct {
	limit                                int
	count, reached, refused, refusedGood int64
	silent                               bool  // the block is not tried: what is refused is not known
	limits                               []int // that are tried, ascending from the rule's own
	refusedAt                            []int64
	latest                               traffic.Time
	source                               int // of the first event, for the id
	generation, offset                   int64
}

// sum is the sum that an event of the rule belongs to.
func (r *ruleTrial) sum(k *Keyed, b *binding) *minuteSum {
	key := minuteKey{b.kind, b.version.Number, k.Time - (k.Time%minute+minute)%minute}
	if r.latest != nil && r.newest == key {
		r.latest.latest = max(r.latest.latest, k.Time)
		return r.latest
	}
	s := r.minutes[key]
	if s == nil {
		s = &minuteSum{limit: int(b.limit), latest: k.Time, source: k.Source, generation: k.Generation, offset: k.Offset}
		if b.version.Number == r.version {
			s.limits = r.limits
		}
		r.minutes[key] = s
	}
	s.latest = max(s.latest, k.Time)
	r.latest, r.newest = s, key
	return s
}

// refuse counts a request that is refused at steps.
func (s *minuteSum) refuse(r *ruleTrial, refused uint32) {
	s.refused += int64(refused & 1)
	if len(s.limits) != len(r.limits) {
		return
	}
	if s.refusedAt == nil {
		s.refusedAt = make([]int64, len(s.limits))
	}
	for step := range s.refusedAt {
		s.refusedAt[step] += int64(refused >> step & 1)
	}
}

// counted notes that a rule has counted an event.
func (t *trials) counted(k *Keyed, b *binding) {
	if r := t.of(b); r != nil {
		r.sum(k, b).count++
	}
}

// due tells what is due by append time: sums once their minute is over, running counts once a second.
func (t *trials) due(out []Hit) []Hit {
	if !t.used {
		return out
	}
	appended := t.p.watermark.appended
	if at := appended - appended%second; at > t.running.second {
		t.running.second = at
		out = t.tellRunning(out)
	}
	if at := appended - appended%minute; at > t.minute {
		t.minute = at
		out = t.flush(out)
	}
	return out
}

const second = traffic.Time(time.Second / time.Microsecond)

// flush tells all sums and begins new ones, and forgets what has passed.
func (t *trials) flush(out []Hit) []Hit {
	for _, l := range t.p.keys.ordered {
		if r := l.trial; r != nil {
			out = r.tell(out)
		}
	}
	left := t.kept[:0]
	for _, x := range t.kept {
		switch r := x.trial; {
		case x.key != nil:
			r.retire(x.key, t.p.watermark.at)
		case x.block != nil:
			if x.block.waits() {
				out = append(out, t.late(r, x.block))
			}
			r.retireBlock(x.block, t.p.watermark.at)
		}
		if x.key != nil || x.block != nil {
			left = append(left, x)
		}
	}
	for _, l := range t.p.keys.ordered {
		if !l.trial.busy() {
			l.trial = nil
		}
	}
	t.good.forget(t.now)
	clear(t.kept[len(left):])
	t.kept, t.oldest = left, 0
	return out
}

// tell appends the sums, by minute, version and kind.
func (r *ruleTrial) tell(out []Hit) []Hit {
	for _, key := range r.ordered() {
		out = append(out, r.statistics(key, r.minutes[key]))
	}
	clear(r.minutes)
	r.latest, r.evicted = nil, false
	return out
}

func (r *ruleTrial) statistics(key minuteKey, s *minuteSum) Hit {
	p := r.all.p
	h := Hit{
		Format: HitFormat, Kind: KindStatistics, Rule: r.lineage.rule, RuleVersion: key.version, Lineage: r.lineage.number, Limit: s.limit,
		Count: s.count, AtLeast: r.evicted || s.silent, First: key.minute, Last: s.latest, Seen: p.watermark.appended,
		Generation: s.generation, Source: s.source, Offset: s.offset, Keyed: p.cfg.Keyed,
		Trial: &Trial{Of: key.of, Reached: s.reached, Refused: s.refused, RefusedGood: s.refusedGood},
	}
	if s.refusedAt != nil && len(s.limits) > 1 {
		h.Trial.Limits, h.Trial.RefusedAt = s.limits, s.refusedAt
	}
	h.ID = p.cfg.Secret.hitID(&h, int(bit(key.of == KindCandidate)))
	return h
}

// runningCounts are the episodes of which the running count is to be told.
type runningCounts struct {
	second traffic.Time // of append time, when it was told last
	list   []waiting
}

// waiting is an episode whose running count is to be told, and its key.
type waiting struct {
	ep  *episode
	key Fingerprint
}

// maxRunning is how many hits' running counts are told in a second, at most.
const maxRunning = 64

// queue notes the episodes of a key that an event has changed.
func (c *runningCounts) queue(o *outcome, key Fingerprint) {
	for _, ep := range o.extended {
		if ep.told && !ep.waits && ep.kind != KindNear && ep.targets[0].opened != 0 {
			ep.waits = true
			c.list = append(c.list, waiting{ep, key})
		}
	}
}

// tellRunning tells how far the episodes are that have grown, the worst first.
func (t *trials) tellRunning(out []Hit) []Hit {
	list := slices.DeleteFunc(t.running.list, func(w waiting) bool { return w.ep.over })
	slices.SortFunc(list, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(b.ep.count, a.ep.count), cmp.Compare(a.ep.targets[0].id, b.ep.targets[0].id))
	})
	said := 0
	for _, w := range list {
		ep := w.ep
		ep.rule.cells.get(w.key) // what a snapshot under way needs of it is written before it changes
		if ep.waits = false; ep.count <= ep.running {
			continue
		}
		for _, target := range ep.targets {
			switch {
			case target.sent == traffic.BeforeTime:
				continue
			case said == maxRunning:
				t.p.counts.RunningLeftOut++
				continue
			}
			h := ep.hit(target, PhaseUpdate, t.p.cfg.Keyed, t.p.watermark.appended)
			h.Kind, h.Samples = KindRunning, nil
			out = append(out, h)
			if ep.rule.trial != nil {
				out = t.say(ep.rule, len(out)-1, out)
			}
			ep.running = ep.count
			said++
		}
	}
	clear(t.running.list[:cap(t.running.list)])
	t.running.list = t.running.list[:0]
	return out
}
