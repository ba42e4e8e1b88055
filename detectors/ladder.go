package detectors

import (
	"slices"

	"github.com/weirhq/weir/rules"
)

// A ladder is several rules of one routing version that watch the same events and differ in nothing but their limits: what a
// backtest tries in one pass. The rung with the least limit counts every event. Each higher one counts a key only
// while the one below it has episodes of that key, and begins with a copy of the log below.
//
// That is exact. Who is over a limit is over every lower one, so a rung has episodes only while the rung below has some. And as
// long as a key has no episodes its log holds every event that can still matter to it, since only a log that is over is
// trimmed, and what is trimmed is older than an over event: with the episode it is dead.
//
// A partition with ladders is not to be written down: a snapshot does not hold them.

// Shares reports whether two rules that watch the same events may stand on one ladder.
func Shares(a, b *rules.Version) bool {
	return climbs(a) && climbs(b) && slices.Equal(a.Key, b.Key) && a.Window == b.Window && a.Lateness == b.Lateness && a.Missing == b.Missing
}

// climbs reports whether the rule's state is a log, and its limit the same for all events.
func climbs(v *rules.Version) bool {
	return kindOf(v, int64(v.Limit)) == kind{kindSlidingLog, countEvents} && len(v.Tiers) == 0 && v.Near == 0 && v.Candidate == nil && v.Raised == nil && !v.Pending
}

// LearnLadders is Learn, where each of ladders lists rules of r that share windows (Shares), by index in the order of their
// limits. Records are to name the first of each alone. What became of events, in Counts and TakeRuleEvents, is told of the first.
func (p *Partition) LearnLadders(r *rules.Routing, ladders [][]int) {
	plan := NewPlan(r)
	for i := range plan.rules { // a backtest tries blocks itself, and keeps samples of what is over alone
		plan.rules[i].tries, plan.rules[i].approaches = nil, false
		for j := range plan.rules[i].beside {
			plan.rules[i].beside[j].tries, plan.rules[i].beside[j].approaches = nil, false
		}
	}
	p.Learn(plan)
	bindings := p.routings.get(r.Number).bindings
	for _, ladder := range ladders {
		for i := range ladder[1:] {
			low, high := &bindings[ladder[i]], &bindings[ladder[i+1]]
			low.above, low.lineage.above = high, high.lineage
		}
	}
}

// lift begins to count a key on the rung above: it has just been over on this one. c is the key's cell here, which has counted ev.
func (b *binding) lift(key Fingerprint, c *cell, ev *event) {
	low, high := b.lineage, b.above.lineage
	high.feed(b.above)
	from, _ := low.algorithm.(*slidingLog)
	to, _ := high.algorithm.(*slidingLog)
	log, _ := from.entries(c)
	to.scratch = to.scratch[:0]
	skipped := false
	for i := range log {
		if !skipped && log[i].time == ev.time {
			skipped = true // the event itself, or one that cannot be told from it, comes by itself
			continue
		}
		to.scratch = append(to.scratch, logEntry{entry{log[i].time, b.above.limit}, int64(len(to.scratch)) + 1})
	}
	high.restart(key)
	if len(to.scratch) == 0 {
		return
	}
	fresh, _ := high.cellOf(key, 0)
	to.take(fresh, to.scratch)
}

// climb makes ev, which was given to the window of a key below, an arrival on b's rung.
func (b *binding) climb(ev *event, k *Keyed) {
	ev.begin(k.Time, b.limit, b.burst)
	ev.most = b.most
}

// restart forgets what a rung knows of a key from an earlier time.
func (l *lineage) restart(key Fingerprint) {
	s := l.cells.get(key)
	if s == nil {
		return
	}
	l.forget(&s.cell)
	l.cells.drop(key)
}

// take makes log the entries of an empty cell.
func (s *slidingLog) take(c *cell, log []logEntry) {
	packed := len(log) <= packedMost
	for i := range log {
		packed = packed && packable(log[i].entry, 1)
	}
	if packed {
		s.packed.put(c, log)
		return
	}
	s.putOverflow(c, slices.Clone(log))
}

// forgetAbove forgets a key on all higher rungs, as it was on this one: nobody would feed it there any more. Before, its episodes
// on a rung are given to end.
func (l *lineage) forgetAbove(key Fingerprint, end func(*offender)) {
	for l = l.above; l != nil; l = l.above {
		s := l.cells.get(key)
		if s == nil {
			continue
		}
		if _, held := l.contents(s); held != nil {
			end(held)
		}
		l.restart(key)
	}
}
