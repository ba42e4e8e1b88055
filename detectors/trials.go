package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// trials are what the blocks of rules would have done, each as if it alone blocked: beside the windows that find offenders, a second
// set that only requests feed which are not refused. Until the first hold of a key the two sets are one, so a key costs nothing here
// before it is over its limit.
//
// Time is that of the events. A hit of the second set holds its block's subject from the event that brings it until
// what ENFORCE writes as the block's end (package holding); a request is refused if it lies within that time and comes
// after that event in the log. Whom ENFORCE never blocks, and how many blocks an address may have, is not asked. The
// same is done for other limits of the rule (LimitLadder), each by itself.
//
// All of it is moved by the log alone, and part of the state.
type trials struct {
	p      *Partition
	used   bool // a rule's block has been tried
	room   int64
	minute traffic.Time // of append time, when sums were told last
	made   int64        // keys and blocks so far, which gives their order
	kept   []*kept      // in the order of making, those that were dropped included until the next clean-up
	oldest int          // in kept, all before which were dropped

	good    goodTable
	running runningCounts

	// Of the event that is folded.
	now, at traffic.Time // the newest event time, and the event's own
	clock   traffic.Time // now, or what the clock shows where nothing comes
	key     *tried       // its key, if it is under trial
	raw     event        // what the rule's own windows answered
	tall    tallWindows
	hits    []Hit // of windows of a trial
	scratch []byte
	over    []exceedance
}

// kindTrial is the kind of episodes among requests that were not refused. No hit of it leaves the partition.
const kindTrial Kind = "trial"

// trialShare is which part of the keys' budget trials may take.
const trialShare = 8

func newTrials(p *Partition) trials {
	return trials{p: p, room: max(0, p.keys.evictor.room) / trialShare, good: newGoodTable(p.cfg.Budget)}
}

// ruleTrial is the trial of one rule's block, or of that of a version or limit on trial.
type ruleTrial struct {
	all     *trials
	lineage *lineage // whose windows find offenders
	version int      // the newest that has fed it: its limits and its block are tried
	limits  []int    // ascending from the rule's own
	block   trialBlock
	kind    kind
	window  traffic.Time
	rungs   []*rung // of each limit
	tall    *lineage
	slices  *lineage
	keys    map[Fingerprint]*tried
	blocks  map[Fingerprint]*blocked
	minutes map[minuteKey]*minuteSum
	latest  *minuteSum // that was added to last
	newest  minuteKey  // its key
	evicted bool       // since the last sums were told, something of it was forgotten
}

// rung is one limit of a trial, with what its windows share.
type rung struct {
	trial   *ruleTrial
	step    int
	lineage *lineage
	binding binding
	plan    planned
}

// kept is a key or a block under trial, in the order of making.
type kept struct {
	trial *ruleTrial
	made  int64
	key   *tried   // nil: it is a block
	block *blocked // nil: it is a key, or was dropped
}

// busy reports whether anything is held for the trial. One that is not ends with the next flush and at no other time: until then its block
// and version matter, so it is in snapshots, too.
func (r *ruleTrial) busy() bool {
	return r != nil && len(r.keys)+len(r.blocks)+len(r.minutes) > 0
}

// begin takes the next record: now is the greatest event time of its source partition, or of all of them.
func (t *trials) begin(now traffic.Time) { t.now, t.at, t.clock, t.key = now, now, now, nil }

func newRuleTrial(t *trials, l *lineage) *ruleTrial {
	return &ruleTrial{all: t, lineage: l, keys: map[Fingerprint]*tried{}, blocks: map[Fingerprint]*blocked{}, minutes: map[minuteKey]*minuteSum{}}
}

// of is the trial beside windows, nil where their block is not tried.
func (t *trials) of(b *binding) *ruleTrial {
	if b.tries == nil {
		return nil
	}
	r := b.lineage.trial
	if r == nil {
		r = newRuleTrial(t, b.lineage)
		b.lineage.trial = r
		t.used = true
	}
	if b.version.Number > r.version {
		r.align(b)
	}
	return r
}

// align makes a version's limits and block those that are tried. Where the limits are others, the trial of all but the rule's own
// begins anew; where the block is for another key, the whole.
func (r *ruleTrial) align(b *binding) {
	block := newTrialBlock(b)
	if !r.block.alike(&block) {
		r.dropKeys()
		r.dropBlocks()
	}
	r.version, r.block = b.version.Number, block
	if limits := b.tries.limits; len(r.limits) == 0 || !slices.Equal(limits[1:], r.limits[1:]) {
		r.dropOthers(limits)
	}
	r.limits = slices.Clone(b.tries.limits)
}

// dropOthers forgets what was tried at other limits than the rule's own, and makes room for as many as limits has.
func (r *ruleTrial) dropOthers(limits []int) {
	for _, x := range r.keys {
		for step := 1; step < len(x.stands); step++ {
			r.dropStand(x, step)
		}
		x.resize(r, len(limits))
	}
	for _, x := range r.blocks {
		x.resize(r, 1)
	}
	r.rungs = r.rungs[:min(len(r.rungs), 1)]
}

// settle makes the windows of the trial of the kind that the rule's own have, once a key is to be tried.
func (r *ruleTrial) settle() {
	l := r.lineage
	if len(r.rungs) == len(r.limits) && r.kind == l.kind && r.window == l.window {
		return
	}
	if r.kind != l.kind || r.window != l.window {
		r.dropKeys()
		r.rungs, r.tall, r.slices = r.rungs[:0], nil, nil
	}
	r.kind, r.window = l.kind, l.window
	if l.kind == (kind{kindSlidingLog, countEvents}) && r.limits[0] > SlidingExact { // a limit that was raised while keys were held
		r.dropOthers(r.limits[:1])
		r.limits = r.limits[:1]
	}
	for step := len(r.rungs); step < len(r.limits); step++ {
		r.rungs = append(r.rungs, r.newRung(step))
	}
	r.startTall()
}

// startTall makes the windows above the rule's limit, where they are needed and not there: keys may have state in them, which an edit of
// the limits leaves.
func (r *ruleTrial) startTall() {
	if r.tall == nil && r.logs() {
		r.tall, r.slices = r.windows("~tall", kind{kindSlidingLog, countEvents}), r.windows("~slices", kind{kindSlices, countEvents})
	}
}

// logs reports whether the rule's own windows keep no more than its limit needs, so that others are needed for what is above.
func (r *ruleTrial) logs() bool { return r.kind == kind{kindSlidingLog, countEvents} }

// windows makes a lineage that no key of the partition's tables is of.
func (r *ruleTrial) windows(suffix string, k kind) *lineage {
	l := &lineage{rule: r.lineage.rule, number: r.lineage.number, id: r.lineage.id + suffix, ledger: r.ledger()}
	l.begin(k, r.window, r.lineage.form)
	return l
}

// ledger is that of all trials.
func (r *ruleTrial) ledger() *ledger { return &r.all.p.keys.tried }

func (r *ruleTrial) newRung(step int) *rung {
	k := r.kind
	if step > 0 && r.logs() && r.limits[step] > SlidingExact {
		k.algorithm = kindSlices
	}
	g := &rung{trial: r, step: step, lineage: r.windows(rungName(step), k)}
	g.lineage.rung = g
	return g
}

func rungName(step int) string { return "~trial" + string(rune('a'+step)) }

// under is how a version's events are judged at the rung.
func (g *rung) under(b *binding) *binding {
	if g.plan.version != b.version {
		g.plan = b.tries.at(g.step, g.trial.limits[g.step])
		g.binding = binding{planned: &g.plan, lineage: g.lineage}
	}
	l := g.lineage
	l.lateness = max(l.lateness, b.lateness)
	l.limit, l.burst = g.plan.limit, g.plan.burst
	l.greatest = max(l.greatest, g.plan.most)
	return &g.binding
}

// before takes an event that a rule counts, and of which the block would have refused the request at the steps in refused, before the
// rule's own windows do.
func (t *trials) before(k *Keyed, b *binding, at located, refused uint32) {
	t.key = nil
	if refused == 0 {
		return
	}
	r := b.lineage.trial
	r.settle()
	x := r.keys[at.key]
	if x == nil {
		x = t.add(r, at.key)
	}
	for step := range x.stands {
		if refused>>step&1 == 0 {
			continue
		}
		if x.stands[step] == nil {
			t.lift(r, x, step)
		}
		x.stands[step].refused = max(x.stands[step].refused, k.Time)
	}
}

// follow takes the event that the rule's own window of its key, c, has just counted.
func (t *trials) follow(b *binding, key Fingerprint, c *cell) {
	t.key = nil
	if b.tries == nil {
		return
	}
	r, ev := b.lineage.trial, &t.p.event
	var x *tried
	if len(r.keys) > 0 {
		x = r.keys[key]
	}
	if x == nil && len(ev.exceedances) == 0 {
		return
	}
	r.settle()
	if x == nil || r.keys[key] != x {
		if len(ev.exceedances) == 0 {
			return
		}
		x = t.add(r, key)
	}
	if x.tall {
		t.tall.add(r, x, ev)
	} else if r.logs() {
		t.tall.start(r, x, c, ev)
	} else {
		t.tall.none()
	}
	t.key, t.raw.exceedances = x, append(t.raw.exceedances[:0], ev.exceedances...)
	exceeded := t.raw.exceedances
	t.raw = *ev
	t.raw.exceedances = exceeded
}

// after gives the event to the windows of the trial that it is not refused by. A limit at which nothing was refused has none: the
// rule's own tell whether it is over there, and are copied once it is.
func (t *trials) after(k *Keyed, i int, b *binding, at located, refused uint32) {
	if b.tries == nil {
		return
	}
	if t.p.event.left == 0 {
		b.lineage.trial.sum(k, b).count++
	}
	x := t.key
	if t.key = nil; x == nil || !b.tries.blocks {
		return
	}
	r := b.lineage.trial
	t.at = k.Time
	for step := range x.stands {
		switch s := x.stands[step]; {
		case refused>>step&1 == 1:
		case s != nil:
			t.feed(k, i, r.rungs[step].under(b), s, at.missing > 0)
		case t.exceeds(r, step):
			t.lift(r, x, step)
			t.judge(k, r.rungs[step].under(b), x.stands[step], at.missing > 0)
		}
	}
	t.at = t.now
	t.bound()
}

// bound forgets the keys and blocks that were made first, while trials take more than their share.
func (t *trials) bound() {
	for ledger := &t.p.keys.tried; t.room > 0 && ledger.bytes > t.room && t.oldest < len(t.kept); t.oldest++ {
		switch x := t.kept[t.oldest]; {
		case x.key != nil:
			x.trial.drop(x.key)
		case x.block != nil:
			x.trial.release(x.block)
		default:
			continue
		}
		t.kept[t.oldest].trial.evicted = true
		t.p.counts.TrialsEvicted++
	}
}

// exceeds reports whether the event has put the rule's own windows over the limit of a step, and leaves in t.over where.
func (t *trials) exceeds(r *ruleTrial, step int) bool {
	t.over = t.over[:0]
	if step == 0 {
		t.over = append(t.over, t.raw.exceedances...)
		return len(t.over) > 0
	}
	limit := int64(r.limits[step])
	from := t.raw.exceedances
	if r.logs() {
		from = t.tall.over(limit)
	}
	for i := range from {
		if x := from[i]; x.count > limit {
			x.limit = limit
			t.over = append(t.over, x)
		}
	}
	return len(t.over) > 0
}

// feed counts the event in a window of a trial.
func (t *trials) feed(k *Keyed, i int, b *binding, s *stand, grouped bool) {
	ev, limit := &t.p.event, b.limitOf(k, i)
	ev.begin(k.Time, limit, b.burstOf(limit))
	ev.units, ev.value, ev.most = t.raw.units, t.raw.value, b.most
	ev.dead = b.lineage.dead(t.p.watermark.at)
	b.lineage.algorithm.add(&s.held.cell, ev)
	if len(s.held.episodes) > 0 || len(ev.exceedances) > 0 {
		t.p.judge(k, b, s.held, grouped, limit, nil)
	}
}

// judge tells a window of a trial that was copied from the rule's own what the event did there.
func (t *trials) judge(k *Keyed, b *binding, s *stand, grouped bool) {
	ev := &t.p.event
	exceeded := ev.exceedances
	*ev = t.raw
	ev.exceedances = append(exceeded[:0], t.over...)
	if r := b.lineage.rung; r.step > 0 {
		ev.limit, ev.most, ev.burst = b.limit, b.limit, b.limit
		if r.trial.logs() {
			ev.nth = t.tall.nth
		}
	}
	t.p.judge(k, b, s.held, grouped, ev.limit, nil)
}
