package route

import (
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
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
	FateKeyless               // rules watch it, but none counts it: for want of its key or of what it counts, or since it is let pass
	FateRouted                // rules count it
)

// DeadReasons are all reasons of dead letters of ROUTE.
func DeadReasons() []string { return format.Reasons() }

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
	turned  []turnedAway  // ascending
	targets []eventTarget // ascending by keyed partition
	good    detectors.Good
	verdict traffic.Verdict // of a refusal, where the record format has room for it
}

// watching is a rule that watches the event.
type watching struct {
	rule    int
	behind  bool            // the event is older than the rule's lateness allows, measured at its source partition
	lacking uint8           // bit i: the i-th element of the key is missing
	skipped bool            // for that reason it feeds no window
	why     uncounted       // counted, or why it feeds no window although it has the key
	allowed int32           // index into the version's allow lists, of one that lets the event pass, so that the rule does not count it; or -1
	tier    int             // by whose limit it is judged: 0 for the rule's own
	fault   condition.Fault // why the condition of a tier could not be judged, the first of them; Fine: all could
	may     rules.TierSet   // with a fault: the limits that it may have, of which tier is the greatest
}

// counts reports whether the event feeds the rule's windows.
func (w *watching) counts() bool { return w.allowed < 0 && !w.skipped && w.why == counted }

// eventTarget is a keyed partition that needs the event, and for which rules.
type eventTarget struct {
	partition int
	rules     []int                  // ascending
	units     []int64                // for each of rules, what the event adds to its windows
	summed    bool                   // one of rules counts a sum; units are all 1 if not
	tiers     []int                  // for each of rules, the tier by whose limit the event is judged
	tiered    bool                   // one of tiers is not 0
	extra     []detectors.ExtraValue // what rules need beside the identity, ascending by index
	reached   []int                  // rules that do not count the event, and whose block takes its request; ascending
	beyond    []int                  // of rules, those whose block does not; ascending
	hint      uint64                 // not 0: it gets the event only since its source is known to be good; see hintMemory
}

// eventRouter reads events. It is not safe for concurrent use; each read overwrites the one before.
type eventRouter struct {
	live    bool
	targets *targeter

	request traffic.Request
	event   condition.Event // of request, for conditions and whatever reads attrs
	out     reading
	matched []int
	hashed  []int    // by dimension: target+1, or 0 where it is not yet known
	hashes  []uint64 // by dimension: what hashed is made of
	found   []int    // the dimensions of which hashed knows the target
	apart   []int    // rules whose block's scope, which stands apart, takes the request; ascending
	reached []int
	hints   *hints // nil: each event of a good source tells of it
	extra   extraValues
	judged  []uint8 // by allow list: what it says of the event
	admission
}

// read decides everything about m that goes into its records. progress is the greatest event time before m.
func (r *eventRouter) read(v *routingVersion, m *traffic.Message, progress traffic.Time) *reading {
	out := &r.out
	*out = reading{progress: progress, watched: out.watched[:0], turned: out.turned[:0], targets: out.targets[:0]}
	if err := v.decoder.Decode(m.Value, &r.request); err != nil {
		out.fate, out.err, out.reason, out.detail = FateDead, err, format.ReasonMalformed, err.Error()
		if bad := (*format.DecodeError)(nil); errors.As(err, &bad) {
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
	r.event.Reset(&r.request, &out.identity)
	if r.request.Verdict.Refused() {
		out.fate = FateRefusal
		if v.format >= rules.RefusalRecordFormat {
			r.refuse(v)
		}
		return out
	}
	r.matched = v.index.Match(r.matched[:0], r.asked())
	r.begin(v)
	if v.evidence != nil {
		r.splitApart(v)
	}
	if len(v.conditions) > 0 && len(r.matched) > 0 {
		r.judge(v)
	}
	if len(r.matched) > 0 {
		r.aim(v)
	}
	counts := len(out.targets) > 0
	if v.evidence != nil {
		r.tell(v)
	}
	switch {
	case counts:
		out.fate = FateRouted
	case len(out.watched) > 0:
		out.fate = FateKeyless
	default:
		out.fate = FateUnmatched
	}
	return out
}

// refuse sends what a gate refused to the partition of its block, so that all refusals of one meet.
func (r *eventRouter) refuse(v *routingVersion) {
	out := &r.out
	out.good, out.verdict = judgeGood(v.evidence.good, &r.event), r.request.Verdict
	for _, text := range []*string{&out.verdict.Rule, &out.verdict.Block} {
		if len(*text) > mostVerdict { // no gate wrote it
			*text = (*text)[:mostVerdict]
		}
	}
	r.target(r.targets.ofBlock(&out.verdict))
}

// mostVerdict is more than the name of a rule, and the id of a block, are long.
const mostVerdict = 64

// asked is the request as rules are asked about it.
func (r *eventRouter) asked() *rules.Target {
	q := &r.request
	return &rules.Target{Method: q.Method, Path: q.Path, Host: q.Host, Route: q.Route, Status: q.Status}
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
	if len(v.allow) > 0 {
		r.judged = append(r.judged[:0], make([]uint8, len(v.allow))...)
	}
	for _, i := range r.matched {
		rule := &v.rules[i]
		out.watched = append(out.watched, watching{}) // and written in its place: a copy would wait for the writing of it
		w := &out.watched[len(out.watched)-1]
		w.rule, w.allowed, w.behind = i, -1, out.time < out.progress.Add(-rule.lateness)
		if len(rule.allow) > 0 {
			if w.allowed = r.allowedBy(v, rule); w.allowed >= 0 {
				continue
			}
		}
		r.extra.uses = rule.extra
		for at, k := range rule.key {
			if !r.has(k) {
				w.lacking |= 1 << at
			}
		}
		w.skipped = w.lacking != 0 && rule.skip
		var units int64
		if !w.skipped {
			units, w.why = r.amount(&rule.amount)
		}
		if rule.tiers != nil && !w.skipped && w.why == counted {
			r.tierOf(rule, w)
		}
		if w.counts() {
			t := r.target(r.targetOf(v, rule))
			t.rules, t.units = append(t.rules, i), append(t.units, units)
			t.summed = t.summed || rule.amount.sum
			t.tiers, t.tiered = append(t.tiers, w.tier), t.tiered || w.tier != 0
			if len(rule.extra) > 0 {
				t.extra = r.extra.appendTo(t.extra, rule.extra)
			}
		}
	}
}

// begin forgets what was found out about the event before. That costs as much as was found out, however many rules there are.
func (r *eventRouter) begin(v *routingVersion) {
	for _, d := range r.found {
		r.hashed[d] = 0
	}
	r.found = r.found[:0]
	if more := len(v.dimensions) - len(r.hashed); more > 0 {
		r.hashed, r.hashes = append(r.hashed, make([]int, more)...), append(r.hashes, make([]uint64, more)...)
	}
	r.extra.begin(v, &r.request, r.event.Attrs())
}

func (r *eventRouter) targetOf(v *routingVersion, rule *routedRule) int {
	if rule.dimension == ruleDimension {
		return rule.target
	}
	return r.dimensionAt(v, rule.dimension)
}

// dimensionAt is the keyed partition of the event's value of a dimension, by its index.
func (r *eventRouter) dimensionAt(v *routingVersion, dimension int) int {
	if known := r.hashed[dimension]; known != 0 {
		return known - 1
	}
	at := r.dimensionTarget(&v.dimensions[dimension])
	r.hashed[dimension], r.hashes[dimension] = at+1, r.targets.last
	r.found = append(r.found, dimension)
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
	out.targets[last].begin(partition)
	for ; last > at; last-- { // a handful: copying them in one go would need one more beside
		out.targets[last], out.targets[last-1] = out.targets[last-1], out.targets[last]
	}
	return &out.targets[at]
}

// begin makes t the empty target at a partition, with the memory of its lists.
func (t *eventTarget) begin(partition int) {
	t.partition, t.summed, t.tiered = partition, false, false
	t.rules, t.units, t.tiers, t.extra = t.rules[:0], t.units[:0], t.tiers[:0], t.extra[:0]
	t.reached, t.beyond, t.hint = t.reached[:0], t.beyond[:0], 0
}

// extraValues are the values of one event that rules need beside its identity. Each is read when a rule first asks for it.
type extraValues struct {
	fields  []rules.ExtraField
	request *traffic.Request
	attrs   *format.AttrIndex // of request
	known   []extraValue
	found   []int            // the fields that known has read
	uses    []rules.ExtraUse // of the rule at hand
}

type extraValue struct {
	read bool
	text string // empty: missing
}

func (x *extraValues) begin(v *routingVersion, q *traffic.Request, attrs *format.AttrIndex) {
	x.fields, x.request, x.attrs = v.extras, q, attrs
	for _, i := range x.found {
		x.known[i] = extraValue{} // and its text, which holds on to the record of the event
	}
	x.found = x.found[:0]
	if more := len(v.extras) - len(x.known); more > 0 {
		x.known = append(x.known, make([]extraValue, more)...)
	}
}

var _ traffic.Extra = (*extraValues)(nil)

// ExtraValue is the event's value of a field that the rule at hand uses.
func (x *extraValues) ExtraValue(k traffic.KeyField) (string, bool) {
	for _, u := range x.uses {
		if u.Field == k {
			text := x.at(u.Index)
			return text, text != ""
		}
	}
	return "", false
}

func (x *extraValues) at(index int) string {
	v := &x.known[index]
	if !v.read {
		v.read = true
		x.found = append(x.found, index)
		v.text, _ = x.fields[index].Value(x.request, x.attrs)
	}
	return v.text
}

// appendTo adds to the values of a record those that the event has of what one more rule uses.
func (x *extraValues) appendTo(dst []detectors.ExtraValue, uses []rules.ExtraUse) []detectors.ExtraValue {
	for _, u := range uses {
		text := x.at(u.Index)
		at, found := slices.BinarySearchFunc(dst, u.Index, func(v detectors.ExtraValue, index int) int { return v.Index - index })
		if text != "" && !found {
			dst = slices.Insert(dst, at, detectors.ExtraValue{Index: u.Index, Text: text})
		}
	}
	return dst
}

// has reports whether the event has a field that the rule at hand uses.
func (r *eventRouter) has(k traffic.KeyField) bool {
	if k.OfIdentity() {
		return r.out.missing[k.Field] == traffic.Present
	}
	_, ok := r.out.identity.Choose(&r.extra, k)
	return ok
}
