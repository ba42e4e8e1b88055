package detectors

import (
	"fmt"

	"github.com/weirhq/weir/traffic"
)

// FoldAll folds records in order, as Fold does one by one, and appends what they caused to out. It stops at the first
// error and returns how many records were folded before it. It is faster than Fold: the memory that a few dozen records
// will need is asked for together, before the first of them is folded.
func (p *Partition) FoldAll(records []Record, out []Hit) (folded int, hits []Hit, err error) {
	for folded < len(records) {
		group := records[folded:min(folded+prefetchMost, len(records))]
		p.prefetcher.load(group, p)
		for i := range group {
			before := len(out)
			out, err = p.fold(group[i].Appended, &group[i].Keyed, p.prefetcher.of(i), out)
			if err != nil {
				return folded, out, err
			}
			for n := range out[before:] {
				out[before+n].place(group[i].Place, n)
			}
			folded++
		}
	}
	return folded, out, nil
}

// Fold moves the state by one record and appends what it caused to out. appended is the record's append time. On an
// error nothing has changed: *UnknownVersionError (Learn it and fold the record again), *HoleError (the partition is to
// stop), *GenerationError, or a record that names rules its version does not have.
func (p *Partition) Fold(appended traffic.Time, k *Keyed, out []Hit) ([]Hit, error) {
	return p.fold(appended, k, nil, out)
}

// fold is Fold with what was prefetched for the record's rules, nil if nothing was.
func (p *Partition) fold(appended traffic.Time, k *Keyed, known []prefetched, out []Hit) ([]Hit, error) {
	duplicate, err := p.fence.check(k)
	if err == nil && !duplicate {
		err = p.checkRules(k)
	}
	if err != nil {
		return out, err
	}
	p.begin(appended, k)
	switch {
	case duplicate:
		p.counts.Duplicates++
	case k.Kind == KeyedEvent:
		out = p.foldEvent(k, known, out)
	case k.Kind == KeyedTick:
		out = p.foldTick(k, out)
	case k.Kind == KeyedLoss:
		out = p.foldLoss(k, out)
	}
	return out, nil
}

// lostVersions are routing versions that the rule store has lost, of which an event was met.
type lostVersions map[int64]bool

// meet notes an event of a version, and reports whether it is the first. Each is told as a loss once, and once more by
// whoever folds the log again, under the same id.
func (l *lostVersions) meet(version int64) (first bool) {
	if (*l)[version] {
		return false
	}
	if *l == nil {
		*l = lostVersions{}
	}
	(*l)[version] = true
	return true
}

// checkRules refuses an event whose rules are not known here, and a record of a kind that is not.
func (p *Partition) checkRules(k *Keyed) error {
	switch k.Kind {
	case KeyedTick, KeyedLoss:
		return nil
	case KeyedEvent:
	default:
		return fmt.Errorf("%w: kind %d", ErrRecord, k.Kind)
	}
	version := p.routings.get(k.Version)
	if version == nil {
		return &UnknownVersionError{Version: k.Version}
	}
	if version.lost {
		return nil
	}
	bindings := version.bindings
	for i, r := range k.Rules {
		if r >= len(bindings) {
			return fmt.Errorf("%w: rule %d of routing version %d, which has %d", ErrRecord, r, k.Version, len(bindings))
		}
		if tier := k.tier(i); tier > 0 && tier > len(bindings[r].version.Tiers) {
			return fmt.Errorf("%w: tier %d of rule %d of routing version %d, which has %d", ErrRecord, tier, r, k.Version, len(bindings[r].version.Tiers))
		}
	}
	if n := len(k.Reached); n > 0 && k.Reached[n-1] >= len(bindings) {
		return fmt.Errorf("%w: reached rule %d of routing version %d, which has %d", ErrRecord, k.Reached[n-1], k.Version, len(bindings))
	}
	return nil
}

// begin brings fence and watermark to the record's generation, append time and source partition.
func (p *Partition) begin(appended traffic.Time, k *Keyed) {
	if k.Generation > p.fence.generation {
		p.fence.restart(k.Generation)
		p.watermark.restart()
	}
	p.watermark.pass(appended)
	if k.Generation == p.fence.generation {
		p.fence.grow(k.Source)
		p.watermark.grow(k.Source)
		p.format = max(p.format, snapshotFormat(k.format()))
	}
}

// foldEvent counts one event, under each of its rules. A hint moves time only.
func (p *Partition) foldEvent(k *Keyed, known []prefetched, out []Hit) []Hit {
	if !k.Hint() {
		out = p.passHole(k, out)
		p.fence.accept(k)
	}
	p.counts.Events++
	p.events++
	p.trials.begin(k.Progress)
	out = p.advance(p.watermark.event(k), out)
	version := p.routings.get(k.Version)
	if version.lost {
		p.counts.Lost++ // no rule counts it
		if p.lost.meet(k.Version) {
			out = append(out, p.report.lost(k, &p.watermark))
		}
		return out
	}
	if version.reset > p.resets {
		out = p.applyResets(version.resets, out)
	}
	if k.Verdict.Refused() {
		p.refusals.add(k, p.uncounted.minuteOf(p.watermark.appended))
		return out
	}
	p.fingerprints.begin(known)
	if k.Good == KnownGood {
		p.trials.mark(k, version.blocks)
	}
	for i, r := range k.Rules {
		out = p.count(k, i, &version.bindings[r], out)
	}
	for _, r := range k.Reached {
		p.trials.reach(k, -1, &version.bindings[r])
	}
	if p.events%sweepEvery == 0 {
		p.keys.sweepSome(p.watermark.at)
	}
	return out
}

// count gives the event to the window of one rule, or to the sum of those that the rule leaves out. i is the rule's index
// in k.Rules.
func (p *Partition) count(k *Keyed, i int, b *binding, out []Hit) []Hit {
	refused := p.trials.reach(k, i, b)
	if p.watermark.tooLate(k, b.lateness) {
		p.counts.Late++
		p.uncounted.add(k, b, UncountedLate, p.watermark.appended)
		return out
	}
	ev := &p.event
	limit := b.limitOf(k, i)
	ev.begin(k.Time, limit, b.burstOf(limit))
	ev.most = b.most
	if b.measured && !p.fingerprints.measure(k, i, b, ev) {
		p.counts.MissingValue++
		p.uncounted.add(k, b, UncountedMissingValue, p.watermark.appended)
		return out
	}
	if ev.units == 0 { // a sum is as right without it
		p.counts.Counted++
		b.lineage.counts.counted(b)
		p.trials.counted(k, b)
		return out
	}
	b.lineage.feed(b)
	at := located{form: b.lineage.form}
	at.key, at.missing, at.guess = p.fingerprints.locate(k, i, b)
	p.trials.before(k, b, at, refused)
	out = p.feed(k, b, at, limit, out)
	p.trials.after(k, i, b, at, refused)
	for j := range b.beside {
		other := &b.beside[j]
		refused = p.trials.reach(k, i, other)
		other.lineage.feed(other)
		other.besideEvent(ev, k, i)
		at := at.beside(&p.fingerprints, k, other)
		p.trials.before(k, other, at, refused)
		out = p.feed(k, other, at, limit, out)
		p.trials.after(k, i, other, at, refused)
	}
	return out
}

// located is where the windows of an event's key lie.
type located struct {
	key     Fingerprint
	form    keyForm
	missing int   // fields of the key that the event lacks
	guess   int32 // as in table.put
}

// feed gives p.event to the window of its key, in a lineage that was told of b. limit is the rule's, for the event.
func (p *Partition) feed(k *Keyed, b *binding, at located, limit int64, out []Hit) []Hit {
	ev, l := &p.event, b.lineage
	ev.dead = l.dead(p.watermark.at)
	c, held := l.cellOf(at.key, at.guess)
	l.algorithm.add(c, ev)
	p.trials.follow(b, at.key, c)
	switch {
	case l.role != roleMain: // the rule is told of once
	case ev.left > 0:
		p.counts.OutOfOrder++
		p.uncounted.add(k, b, UncountedOutOfOrder, p.watermark.appended)
	default:
		p.counts.Counted++
		l.counts.counted(b)
	}
	if b.approaches && ev.count >= halfway(ev.burst) && len(ev.exceedances) == 0 {
		p.counts.ApproachDropped += p.keys.approaches.meet(k, b, ev, at.key, c, p.watermark.at)
	}
	if held != nil || len(ev.exceedances) > 0 {
		if held == nil {
			held = l.addOffender(at.key, c)
			if b.above != nil {
				b.lift(at.key, &held.cell, ev)
			}
		}
		if len(ev.exceedances) > 0 && b.kind == KindHit {
			l.counts.told.Over++
		}
		out = p.judge(k, b, held, at.missing > 0, limit, out)
		if b.above != nil {
			b.above.climb(ev, k)
			at.guess = 0
			out = p.feed(k, b.above, at, b.above.limit, out)
		}
	}
	if p.keys.full() {
		out = p.evict(out)
	}
	return out
}

// judge brings the episodes of a key up to date with an event that was counted in its window, or left out.
func (p *Partition) judge(k *Keyed, b *binding, held *offender, grouped bool, limit int64, out []Hit) []Hit {
	ev := &p.event
	res := p.outcome.empty()
	if ev.withdraw {
		held.withdraw()
	}
	if ev.left > 0 {
		held.miss(place{entry{ev.time, ev.limit}, 0})
	}
	if ev.left < ev.units {
		a := arrival{
			event: k, bound: b, secret: &p.cfg.Secret, subject: p.fingerprints.text(k, b), grouped: grouped, limit: limit, rank: p.events,
			before: &p.keys.approaches,
			at:     held.among(place{entry{ev.time, ev.limit}, ev.nth}), behind: ev.behind, settles: ev.settles,
		}
		for i := range ev.exceedances {
			ev.exceedances[i].place = held.among(ev.exceedances[i].place)
		}
		held.judge(&a, ev.exceedances, res)
		held.trim(ev)
	}
	return p.reportEpisodes(held, b.cooldown, b.wide, out)
}

// reportEpisodes brings the keyspace up to date with a key's episodes, and appends the hits of what happened to them.
func (p *Partition) reportEpisodes(held *offender, cooldown traffic.Time, wide bool, out []Hit) []Hit {
	p.keys.update(held)
	if held.lineage.rung != nil {
		p.trials.hits = p.report.episodes(&p.outcome, p.watermark.appended, cooldown, wide, p.trials.hits[:0])
		p.trials.obey(held)
		return out
	}
	told := len(out)
	out = p.report.episodes(&p.outcome, p.watermark.appended, cooldown, wide, out)
	if held.lineage.trial == nil {
		return out
	}
	p.trials.running.queue(&p.outcome, held.key)
	return p.trials.say(held.lineage, told, out)
}

// evict forgets keys until the budget is kept. Their episodes are closed: the hits reported so far hold, events that would
// have followed are lost.
func (p *Partition) evict(out []Hit) []Hit {
	end := func(held *offender) {
		held.end(p.outcome.empty())
		out = p.reportEpisodes(held, 0, false, out)
	}
	for p.keys.full() {
		for _, victim := range p.keys.victims(p.watermark.at, p.events) {
			if victim.lineage.cells.get(victim.key) == nil {
				continue // it went with the rung below it
			}
			if held := victim.lineage.offenderOf(victim.key); held != nil {
				end(held)
			}
			victim.lineage.evict(victim.key, victim.events)
			victim.lineage.forgetAbove(victim.key, end)
			p.counts.Evicted[victim.what]++
		}
	}
	return out
}

// foldTick takes a router's word on a source partition.
func (p *Partition) foldTick(k *Keyed, out []Hit) []Hit {
	out = p.passHole(k, out)
	p.counts.Ticks++
	p.trials.begin(p.watermark.newest())
	if k.Idle {
		p.trials.clock = max(p.trials.clock, p.watermark.idleClock(k))
	}
	out = p.advance(p.watermark.tick(k), out)
	p.keys.sweepSome(p.watermark.at)
	return out
}

// foldLoss passes a gap in requests that an operator accepted: no event before k.Offset will ever come that has not come
// yet.
func (p *Partition) foldLoss(k *Keyed, out []Hit) []Hit {
	if lost := p.fence.skip(k); !lost.empty() {
		out = append(out, p.report.gap(k, lost, &p.watermark))
	}
	return out
}

// passHole goes on behind a hole that check let pass, and reports the offsets that are given up.
func (p *Partition) passHole(k *Keyed, out []Hit) []Hit {
	if lost := p.fence.passHole(k); !lost.empty() {
		out = append(out, p.report.hole(k, lost, &p.watermark))
	}
	return out
}

// advance does what is due by append time, and by the watermark if it rose.
func (p *Partition) advance(rose bool, out []Hit) []Hit {
	if p.uncounted.due(p.watermark.appended, p.watermark.survey.ended) {
		out = p.report.uncounted(&p.uncounted, p.fence.generation, p.watermark.appended, out)
	}
	if p.refusals.some() && p.refusals.due(p.uncounted.minuteOf(p.watermark.appended), p.watermark.survey.ended) {
		out = p.report.refusals(&p.refusals, p.fence.generation, p.watermark.appended, out)
	}
	out = p.trials.due(out)
	if rose {
		out = p.expire(out)
	}
	if p.watermark.survey.ended {
		out = p.trials.flush(out)
	}
	return out
}

// expire closes the episodes that are due by the watermark, in (deadline, key) order, and at the end of the stream forgets
// everything.
func (p *Partition) expire(out []Hit) []Hit {
	for {
		held := p.keys.timers.first()
		if held == nil || held.due > p.watermark.at {
			break
		}
		// The deadline kept may be earlier than the real one; only the real one is acted on, which keeps the order.
		if due := held.next(); due > held.due {
			p.keys.timers.set(held, due)
			continue
		}
		if held.lineage.rung == nil {
			held.lineage.cells.get(held.key) // what a snapshot under way needs of it is written before it changes
		}
		held.expire(p.watermark.at, p.outcome.empty())
		out = p.reportEpisodes(held, 0, false, out)
	}
	if p.watermark.at == traffic.EndOfTime {
		p.keys.sweepAll(p.watermark.at)
	}
	return out
}
