package detectors

import (
	"github.com/weirhq/weir/traffic"
)

// sharedKey is the fingerprint of a key that several rules of one event have.
type sharedKey struct {
	group   int
	print   Fingerprint
	missing int
}

// count gives the event to the window of one rule, or to the sum of those that the rule leaves out. i is the rule's place
// in k.Rules.
func (p *Partition) count(k *Keyed, i int, b *binding, out []Hit) []Hit {
	if p.tooLate(k, b.lateness) {
		p.counts.Late++
		p.leaveOut(k, b, UncountedLate)
		return out
	}
	ev := &p.event
	ev.begin(k.Time, b.limit, b.burst)
	if !p.measure(k, i, b, ev) {
		p.counts.MissingValue++
		p.leaveOut(k, b, UncountedMissingValue)
		return out
	}
	if ev.units == 0 { // a sum is as right without it
		p.counts.Counted++
		return out
	}
	l := b.lineage
	l.feed(b)
	ev.dead = l.dead(p.watermark)
	key, missing, at := p.place(k, i, b)
	c, held := l.cellOf(key, at)
	l.algorithm.add(c, ev)
	if ev.left > 0 {
		p.counts.OutOfOrder++
		p.leaveOut(k, b, UncountedOutOfOrder)
	} else {
		p.counts.Counted++
	}
	if held != nil || len(ev.overs) > 0 {
		out = p.judge(k, b, c, held, key, missing > 0, out)
	}
	if p.cfg.Budget > 0 && p.ledger.bytes > p.room {
		out = p.makeRoom(out)
	}
	return out
}

// measure says what the event adds; false when it lacks what the rule counts.
func (p *Partition) measure(k *Keyed, i int, b *binding, ev *event) bool {
	switch c := &b.version.Count; {
	case c.Distinct != nil:
		var ok bool
		ev.value, p.scratch, ok = p.cfg.Secret.value(p.scratch, &k.Identity, *c.Distinct)
		return ok
	case c.Sum != "":
		if i < len(k.Units) {
			ev.units = min(k.Units[i], 1<<40)
		}
	}
	return true
}

// place is the event's key under a rule, how many of its fields the event lacks, and where the key probably stands.
func (p *Partition) place(k *Keyed, i int, b *binding) (key Fingerprint, missing int, at int32) {
	if i < len(p.known) && p.known[i].known {
		x := &p.known[i]
		return x.print, int(x.missing), x.at
	}
	key, missing = p.key(k, b)
	return key, missing, 0
}

// key is the fingerprint of the event's key under a rule, and how many of its fields the event lacks.
func (p *Partition) key(k *Keyed, b *binding) (key Fingerprint, missing int) {
	if b.lineage.form == keyText {
		p.subject, missing = traffic.AppendSubject(p.subject[:0], &k.Identity, b.version.Key)
		key, p.scratch = p.cfg.Secret.textKey(p.scratch, b.lineage.id, p.subject)
		return key, missing
	}
	for i := range p.keys {
		if p.keys[i].group == b.group {
			return p.keys[i].print, p.keys[i].missing
		}
	}
	key, missing, p.scratch = p.cfg.Secret.binaryKey(p.scratch, &k.Identity, b.version.Key)
	p.keys = append(p.keys, sharedKey{b.group, key, missing})
	return key, missing
}

// judge brings the episodes of a key up to date with an event that was counted in c, or left out.
func (p *Partition) judge(k *Keyed, b *binding, c *cell, held *kept, key Fingerprint, grouped bool, out []Hit) []Hit {
	ev := &p.event
	res := p.outcome.empty()
	if held == nil {
		held = b.lineage.keep(key, c)
	}
	if ev.withdraw {
		held.withdraw()
	}
	if ev.left > 0 {
		held.miss(place{entry{ev.time, ev.limit}, 0})
	}
	if ev.left < ev.units {
		p.subject, _ = traffic.AppendSubject(p.subject[:0], &k.Identity, b.version.Key)
		a := arrival{
			event: k, bound: b, secret: &p.cfg.Secret, subject: p.subject, grouped: grouped, rank: p.events,
			at: held.among(place{entry{ev.time, ev.limit}, ev.nth}), behind: ev.behind, settles: ev.settles,
		}
		for i := range ev.overs {
			ev.overs[i].place = held.among(ev.overs[i].place)
		}
		held.judge(&a, ev.overs, res)
		held.trim(ev)
	}
	p.settle(held)
	return p.report(res, b.cooldown, out)
}

// settle brings ledger and timer up to date with a key's episodes.
func (p *Partition) settle(k *kept) {
	if len(k.episodes) == 0 {
		p.charge(k, 0)
		if k.heap >= 0 {
			p.timers.remove(k)
		}
		k.lineage.letGo(k)
		return
	}
	p.charge(k, k.bytes())
	p.timers.set(k, k.next())
}

func (p *Partition) charge(k *kept, cost int64) {
	p.ledger.bytes += cost - k.cost
	p.ledger.kept += cost - k.cost
	k.cost = cost
}

// report turns what happened to episodes into hits: endings first, so that a cut episode is closed before the next one
// opens.
func (p *Partition) report(res *outcome, cooldown traffic.Time, out []Hit) []Hit {
	for _, e := range res.ended {
		h := e.ep.hit(e.party, e.phase, p.cfg.Keyed, p.appended)
		h.Cut, h.IntoID = e.cut, e.into
		out = append(out, h)
	}
	for _, n := range res.opened {
		n.party.sent = n.party.last
		out = append(out, n.ep.hit(n.party, PhaseOpen, p.cfg.Keyed, p.appended))
	}
	for _, ep := range res.extended {
		for _, y := range ep.parties {
			if y.sent != traffic.BeforeTime && y.last >= later(y.sent, cooldown) {
				y.sent = y.last
				out = append(out, ep.hit(y, PhaseUpdate, p.cfg.Keyed, p.appended))
			}
		}
	}
	return out
}
