package route

import (
	"errors"
	"time"

	"github.com/weirhq/weir/traffic"
)

// FutureTolerance is how far an event of a live stream may be later than Kafka's append time. A later one gets the
// append time: a wrong clock in the future would make everything that follows late. Old times are never moved forward,
// since that would squeeze a backlog into one window.
const FutureTolerance = 5 * time.Second

// Fate is what becomes of an event.
type Fate int

// The fates of events.
const (
	FateDead      Fate = iota // it cannot be used: dead letter
	FateEndMark               // the end of a replay's partition
	FateRefusal               // weir itself refused this request
	FateUnmatched             // no rule watches it
	FateKeyless               // rules watch it, but none has its key and what it counts
	FateRouted                // it has keyed records
)

// reading is what one event means under one routing version. It is a function of the event, the version and the
// progress before it, and of nothing else, so that whoever routes the event again writes the same records.
type reading struct {
	fate           Fate
	reason, detail string // of a dead letter
	err            error  // that made it one

	told     traffic.Time // the time that the event itself gives; with timeless 0
	time     traffic.Time
	timeless bool // it carried no time
	future   bool // its time was corrected
	progress traffic.Time
	unknown  int
	identity traffic.Identity
	missing  traffic.Missing

	watched []watching
	targets []eventTarget // ascending by keyed partition
}

// watching is a rule that watches the event.
type watching struct {
	rule    int
	behind  bool      // the event is older than the rule's lateness allows, measured at its source partition
	lacking uint8     // bit f: field f of the key is missing
	skipped bool      // for that reason it feeds no window
	why     uncounted // counted, or why it feeds no window although it has the key
}

// eventTarget is a keyed partition that needs the event, and for which rules.
type eventTarget struct {
	partition int
	rules     []int   // ascending
	units     []int64 // for each of rules, what the event adds to its windows
	summed    bool    // one of rules counts a sum; units are all 1 if not
}

// eventRouter reads events. It is not safe for concurrent use; each read overwrites the one before.
type eventRouter struct {
	live    bool
	targets *targeter

	request traffic.Request
	out     reading
	matched []int
	hashed  []int // by dimension: target+1, or 0 where it is not yet known
}

// read decides everything about m that goes into its records. progress is the greatest event time before m.
func (r *eventRouter) read(v *routingVersion, m *traffic.Message, progress traffic.Time) *reading {
	out := &r.out
	*out = reading{progress: progress, watched: out.watched[:0], targets: out.targets[:0]}
	if err := v.decoder.Decode(m.Value, &r.request); err != nil {
		out.fate, out.err, out.reason, out.detail = FateDead, err, traffic.ReasonMalformed, err.Error()
		if bad := (*traffic.DecodeError)(nil); errors.As(err, &bad) {
			out.reason, out.detail = bad.Reason, bad.Detail
		}
		return out
	}
	if r.request.Control != "" {
		out.fate, out.progress = FateEndMark, traffic.EndOfTime
		return out
	}
	r.decideTime(m)
	out.unknown = r.request.UnknownFields
	out.identity, out.missing = v.identifier.FromEvent(&r.request)
	if r.request.Verdict.Refused() {
		out.fate = FateRefusal
		return out
	}
	r.matched = v.index.Match(r.matched[:0], r.request.Method, r.request.Path)
	if len(r.matched) == 0 {
		out.fate = FateUnmatched
		return out
	}
	r.aim(v)
	out.fate = FateRouted
	if len(out.targets) == 0 {
		out.fate = FateKeyless
	}
	return out
}

// decideTime fixes the event's time once and for all.
func (r *eventRouter) decideTime(m *traffic.Message) {
	out := &r.out
	out.told = r.request.Time
	switch {
	case !r.request.HasTime:
		r.request.Time, out.told, out.timeless = m.Appended, 0, true
	case r.live && r.request.Time > m.Appended.Add(FutureTolerance):
		r.request.Time, out.future = m.Appended, true
	}
	out.time = r.request.Time
	out.progress = max(out.progress, out.time)
}

// aim finds the keyed partitions of the matched rules.
func (r *eventRouter) aim(v *routingVersion) {
	out := &r.out
	r.hashed = append(r.hashed[:0], make([]int, len(v.dimensions))...)
	for _, i := range r.matched {
		rule := &v.rules[i]
		w := watching{rule: i, behind: out.time < out.progress.Add(-rule.lateness)}
		for _, k := range rule.key {
			if out.missing[k.Field] != traffic.Present {
				w.lacking |= 1 << k.Field
			}
		}
		w.skipped = w.lacking != 0 && rule.skip
		var units int64
		if !w.skipped {
			units, w.why = rule.amount.of(&r.request, &out.missing)
		}
		out.watched = append(out.watched, w)
		if !w.skipped && w.why == counted {
			t := r.target(r.targetOf(v, rule))
			t.rules, t.units = append(t.rules, i), append(t.units, units)
			t.summed = t.summed || rule.amount.sum
		}
	}
}

func (r *eventRouter) targetOf(v *routingVersion, rule *routedRule) int {
	if rule.dimension == ruleDimension {
		return rule.target
	}
	if known := r.hashed[rule.dimension]; known != 0 {
		return known - 1
	}
	field := v.dimensions[rule.dimension]
	value, present := r.out.identity.Value(field)
	at := r.targets.ofValue(field, value, !present)
	r.hashed[rule.dimension] = at + 1
	return at
}

// target is the event's target at this partition, a new one in its place if there is none.
func (r *eventRouter) target(partition int) *eventTarget {
	out := &r.out
	at := 0
	for at < len(out.targets) && out.targets[at].partition < partition {
		at++
	}
	if at < len(out.targets) && out.targets[at].partition == partition {
		return &out.targets[at]
	}
	last := len(out.targets)
	if last < cap(out.targets) {
		out.targets = out.targets[:last+1] // with the memory of lists that an earlier event left there
	} else {
		out.targets = append(out.targets, eventTarget{})
	}
	free := out.targets[last]
	copy(out.targets[at+1:], out.targets[at:])
	out.targets[at] = eventTarget{partition: partition, rules: free.rules[:0], units: free.units[:0]}
	return &out.targets[at]
}
