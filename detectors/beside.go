package detectors

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// role is what the windows of a lineage are for. A rule's windows that only warn, or try a limit, stand beside those of its
// limit: they are counted as those of a rule of their own with the other limit would be, whatever the algorithm, and nothing
// that they hold touches the others but the budget.
type role uint8

const (
	roleMain      role = iota // the rule's limit
	roleNear                  // warnings: the share of the limit
	roleCandidate             // the candidate's limit
	numRoles
)

// suffix is what a role adds to the id of its lineage.
func (r role) suffix() string {
	switch r {
	case roleNear:
		return "~near"
	case roleCandidate:
		return "~candidate"
	}
	return ""
}

// planBeside are the windows beside a rule's own. A pending version has none: it is one on trial as a whole.
func planBeside(v *rules.Version) (out []planned) {
	if v.Pending {
		return nil
	}
	if v.Near > 0 {
		b := plan(v, roleNear)
		// A warning leads to no block, and so is one for a key.
		b.kind, b.wide, b.cooldown = KindNear, false, traffic.EndOfTime
		out = append(out, b)
	}
	if v.Candidate != nil {
		b := plan(v, roleCandidate)
		b.kind = KindCandidate
		out = append(out, b)
	}
	return out
}

// besideEvent makes ev, which was given to the windows of the rule's limit, an arrival at b's, beside them.
func (b *binding) besideEvent(ev *event, k *Keyed, i int) {
	units, value, limit := ev.units, ev.value, b.limitOf(k, i)
	ev.begin(k.Time, limit, b.burstOf(limit))
	ev.units, ev.value, ev.most = units, value, b.most
}

// beside is where the windows of b lie, beside those at which at was found.
func (at located) beside(f *fingerprinter, k *Keyed, b *binding) located {
	if at.guess = 0; at.form != b.lineage.form { // one of the two was restored from a snapshot of another form
		at.key, at.missing = f.key(k, b)
	}
	return at
}

// MaxNearOpenings is how many warnings one rule may open in one keyed partition and minute of append time. What would be
// more is not told, and counted as RuleEvents.NearLeftOut.
const MaxNearOpenings = 100

// admits reports whether a lineage of warnings may open another one in a minute.
func (l *lineage) admits(minute traffic.Time) bool {
	if l.minute != minute {
		l.minute, l.openings = minute, 0
	}
	if l.openings >= MaxNearOpenings {
		l.counts.told.NearLeftOut++
		return false
	}
	l.openings++
	return true
}

// bounds reports whether the openings that l has counted matter still: their minute is not over.
func (l *lineage) bounds(minute traffic.Time) bool { return l.openings > 0 && l.minute >= minute }

// mute leaves out what the bound of openings does not admit. An episode that is not told once is never told.
func (r *report) mute(o *outcome, seen traffic.Time) {
	opening := func(n notice) {
		if n.phase == PhaseOpen && n.ep.kind == KindNear && !n.ep.rule.admits(r.minutes.minuteOf(seen)) {
			n.ep.muted = true
		}
	}
	for _, n := range o.ended { // those that one arrival opened and cut
		opening(n)
	}
	for _, n := range o.opened {
		opening(n)
	}
}
