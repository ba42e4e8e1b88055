package detectors

import (
	"cmp"
	"encoding/binary"
	"slices"

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

// MaxNearOpenings is how many warnings one rule may open in one keyed partition and minute of event time: of the first events
// over of their episodes. What would be more is not told, and counted as RuleEvents.NearLeftOut.
const MaxNearOpenings = 100

// maxNearMinutes is for how many minutes openings are counted: the newest in which there were any. Sources lie apart and events
// come late, so several are open at once; what opens before all of them is not told, since it is forgotten how many were.
const maxNearMinutes = 64

// openings are the warnings that a lineage has opened, by minute: ascending, at most maxNearMinutes, and only as many if none was
// forgotten.
type openings []minuteOpenings

type minuteOpenings struct {
	minute traffic.Time // its first instant
	opened int          // 1 to MaxNearOpenings
}

// admit counts a warning that opens at an instant, and reports whether it may.
func (o *openings) admit(at traffic.Time) bool {
	minute := at - at%minute
	all := *o
	i, known := slices.BinarySearchFunc(all, minute, func(m minuteOpenings, t traffic.Time) int { return cmp.Compare(m.minute, t) })
	switch {
	case known && all[i].opened >= MaxNearOpenings:
		return false
	case known:
		all[i].opened++
		return true
	case len(all) < maxNearMinutes:
		*o = slices.Insert(all, i, minuteOpenings{minute, 1})
		return true
	case i == 0:
		return false
	}
	copy(all, all[1:i])
	all[i-1] = minuteOpenings{minute, 1}
	return true
}

// matter reports whether an event that is on time at a watermark may still open a warning in one of the minutes, under whatever
// version of the rule. Where keys wait to be told of, their lineage is kept for them.
func (o openings) matter(watermark traffic.Time) bool {
	return len(o) > 0 && later(o[len(o)-1].minute, minute+traffic.Time(rules.MaxLateness.Microseconds())) > watermark
}

// append writes the newest minute with its openings, and how many others there are, and then these, each by how many minutes it
// comes before.
func (o openings) append(dst []byte) []byte {
	if len(o) == 0 {
		return append(dst, 0, 0)
	}
	newest := o[len(o)-1]
	dst = binary.AppendVarint(dst, int64(newest.minute))
	dst = binary.AppendUvarint(dst, uint64(newest.opened+openingsUnit*(len(o)-1)))
	for i := len(o) - 2; i >= 0; i-- {
		dst = binary.AppendUvarint(dst, uint64((o[i+1].minute-o[i].minute)/minute))
		dst = binary.AppendUvarint(dst, uint64(o[i].opened))
	}
	return dst
}

const (
	openingsUnit = 128     // above every number of openings
	mostMinutes  = 1 << 36 // between two, in microseconds still no overflow
)

func restoreOpenings(r *reader) openings {
	newest := traffic.Time(r.varint())
	packed := int(r.upTo(maxNearMinutes*openingsUnit-1, "openings of warnings"))
	if r.err != nil || packed == 0 {
		return nil
	}
	out := make(openings, 1+packed/openingsUnit)
	at, opened := newest, packed%openingsUnit
	for i := len(out) - 1; ; i-- {
		if r.err == nil && (at%minute != 0 || opened == 0 || opened > MaxNearOpenings) {
			r.fail("%d openings of warnings in the minute %d, allowed: 1 to %d in a whole one", opened, at, MaxNearOpenings)
		}
		if r.err != nil {
			return nil
		}
		if out[i] = (minuteOpenings{at, opened}); i == 0 {
			return out
		}
		between := r.upTo(mostMinutes, "minutes between warnings")
		if r.err == nil && between == 0 {
			r.fail("a minute of warnings twice")
		}
		at = earlier(at, traffic.Time(between)*minute)
		opened = int(r.upTo(MaxNearOpenings, "openings of warnings"))
	}
}

// mute leaves out what the bound of openings does not admit. An episode that is not told once is never told.
func (o *outcome) mute() {
	opening := func(n notice) {
		if l := n.ep.rule; n.phase == PhaseOpen && n.ep.kind == KindNear && !n.ep.told && !l.openings.admit(n.ep.first.time) {
			n.ep.muted = true
			l.counts.told.NearLeftOut++
		}
	}
	for _, n := range o.ended { // those that one arrival opened and cut
		opening(n)
	}
	for _, n := range o.opened {
		opening(n)
	}
}
