package backtest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// event is what is left of a line once it was read: all that windows need. Its texts lie in its block, unless it was
// detached.
type event struct {
	line     int64 // within its block, then within its file
	file     int
	size     int // bytes of the line
	source   int
	own      bool // weir itself refused the request
	good     detectors.Good
	offset   int64
	appended traffic.Time // of a live topic: when Kafka took it; else when the run began
	time     traffic.Time
	progress traffic.Time
	identity traffic.Identity
	sample   []byte
	watched  []watch
	targets  []target
	failed   []route.Failed // rules as given with a condition that could not be judged on it
}

// watch is a rule that watches an event, or whose block may hold it. It is small: each event has one for each rule, and three
// goroutines pass them on.
type watch struct {
	rule      int32 // as given, before a sweep multiplies it
	partition int16 // where the rule's block is simulated for this event
	matched   bool
	held      bool // the rule's block holds such requests, if it has one
	counts    bool
	why       detectors.Uncounted
	*notice   // nil: there is nothing more to say
}

// notice is what sets an event apart under a rule that watches it. Most have none.
type notice struct {
	allowed string // the allow list for which it does not count
	units   int64
	tier    int
	may     rules.TierSet // where its tier could not be judged: the limits that it may have; else 0
}

// more is what is to be said of an event under a rule.
func (w *watch) more() notice {
	if w.notice == nil {
		return notice{units: 1}
	}
	return *w.notice
}

// target is a keyed partition that counts an event.
type target struct {
	partition int
	rules     []int  // as multiplied by a sweep
	hint      uint64 // as route.Target.Hint
	*terms           // nil: of no rule is there anything to say
}

// terms are what rules count an event by, beside its identity. Most events have none, and each worker reads every target.
type terms struct {
	units []int64 // nil: one for each rule
	tiers []int   // nil: each rule's own limit
	extra []detectors.ExtraValue

	reached, beyond []int // as in a record, of rules as multiplied by a sweep
}

// told is what a record says of terms.
func (t *target) told() terms {
	if t.terms == nil {
		return terms{}
	}
	return *t.terms
}

// refusal is a line that is no event.
type refusal struct {
	line           int64
	reason, detail string
	err            error // of decoding; nil: another reason
}

// decoding is what a decoder made of a block's lines.
type decoding struct {
	lines    int64
	events   []event
	refusals []refusal

	// Memory of the events.
	watched []watch
	notices []notice
	targets []target
	terms   []terms
	rules   []int
	units   []int64
	tiers   []int
	samples []byte
	extra   []detectors.ExtraValue
	failed  []route.Failed
}

// decoder reads the lines of blocks. Each goroutine has one.
type decoder struct {
	plan   *plan
	reader *route.Reader
	now    traffic.Time
}

func newDecoder(p *plan) (*decoder, error) {
	r, err := route.NewReader(&p.routing, p.Secret[:], keyedPartitions)
	if err != nil {
		return nil, err
	}
	return &decoder{plan: p, reader: r, now: p.Now()}, nil
}

func (d *decoder) block(b *block) {
	x := &b.decoding
	clear(x.events)
	clear(x.refusals)
	*x = decoding{events: x.events[:0], refusals: x.refusals[:0], watched: x.watched[:0], notices: x.notices[:0], targets: x.targets[:0],
		terms: x.terms[:0], rules: x.rules[:0], units: x.units[:0], tiers: x.tiers[:0], samples: x.samples[:0],
		extra: x.extra[:0], failed: x.failed[:0]}
	if b.text.Oversized > 0 {
		x.lines = 1
		d.oversized(x, b.text.Oversized)
		return
	}
	for i := range b.messages {
		x.lines++
		d.message(x, &b.messages[i])
	}
	if len(b.messages) > 0 {
		return
	}
	for text := b.text.Text; len(text) > 0; {
		var line []byte
		line, text = archive.CutLine(text)
		x.lines++
		d.line(x, line)
	}
}

func (d *decoder) oversized(x *decoding, size int) {
	x.refuse(format.ReasonOversized, fmt.Sprintf("got %d bytes; allowed: %d", size, d.plan.MaxEventBytes), nil)
}

func (x *decoding) refuse(reason, detail string, err error) {
	x.refusals = append(x.refusals, refusal{x.lines, reason, detail, err})
}

func (d *decoder) line(x *decoding, line []byte) {
	switch {
	case len(line) == 0:
		x.refuse(format.ReasonEmpty, "the line is empty", nil)
		return
	case len(line) > d.plan.MaxEventBytes:
		d.oversized(x, len(line))
		return
	}
	got := d.reader.Read(line)
	switch {
	case got.Fate == route.FateDead:
		x.refuse(got.Reason, got.Detail, got.Err)
	case !got.Request.HasTime:
		x.refuse(reasonNoTime, "the event has no time, and a backtest takes times from nowhere else", nil)
	case got.Request.Time > d.now:
		x.refuse(reasonFuture, fmt.Sprintf("time %s is later than now, %s", got.Request.Time, d.now), nil)
	default:
		e := d.keep(x, got, len(line))
		e.appended = d.plan.began
		if d.plan.Partitions > 1 {
			e.source = sourceOf(got.Request.IP, d.plan.Partitions)
		}
	}
}

// message reads an event of a live topic.
func (d *decoder) message(x *decoding, m *traffic.Message) {
	got := d.reader.ReadLive(m)
	if got.Fate == route.FateDead {
		x.refuse(got.Reason, got.Detail, got.Err)
		return
	}
	e := d.keep(x, got, len(m.Value))
	e.source, e.offset, e.appended = m.Partition, m.Offset, m.Appended
}

// keep notes an event. Events that no rule watches are noted too: time passes by them.
func (d *decoder) keep(x *decoding, got *route.Reading, size int) *event {
	q := got.Request
	x.events = append(x.events, event{})
	e := &x.events[len(x.events)-1]
	e.line, e.size, e.time, e.own, e.good = x.lines, size, q.Time, got.Fate == route.FateRefusal, got.Good
	from := len(x.failed)
	x.failed = append(x.failed, got.Failed...)
	e.failed = x.failed[from:len(x.failed):len(x.failed)]
	if len(got.Watched)+len(got.Held)+len(got.Targets) == 0 {
		return e
	}
	e.identity = *got.Identity
	if len(got.Targets) > 0 {
		at := len(x.samples)
		x.samples = traffic.AppendPackedSample(x.samples, q, got.Identity)
		e.sample = x.samples[at:len(x.samples):len(x.samples)]
	}
	at := len(x.targets)
	for i := range got.Targets {
		x.targets = append(x.targets, target{})
		d.target(&x.targets[len(x.targets)-1], x, &got.Targets[i], got.Watched)
	}
	e.targets = x.targets[at:len(x.targets):len(x.targets)]
	at = len(x.watched)
	for i := range got.Watched {
		x.watched = append(x.watched, watch{})
		d.watch(&x.watched[len(x.watched)-1], x, &got.Watched[i], got)
	}
	for _, h := range got.Held {
		if !slices.ContainsFunc(got.Watched, func(w route.Watched) bool { return w.Rule == h.Rule }) {
			x.watched = append(x.watched, watch{rule: int32(h.Rule), partition: d.whereHeld(h.Rule, h.Partition), held: true})
		}
	}
	e.watched = x.watched[at:len(x.watched):len(x.watched)]
	return e
}

// target makes of out, which is zero, t with the rules that a sweep makes of each, of a ladder the first.
func (d *decoder) target(out *target, x *decoding, t *route.Target, watched []route.Watched) {
	out.partition, out.hint = t.Partition, t.Hint
	plain := t.Units == nil && t.Tiers == nil && len(t.Extra)+len(t.Reached)+len(t.Beyond) == 0
	if len(t.Rules) == 1 && plain {
		out.rules = d.plan.named[t.Rules[0]]
		return
	}
	named, units, tiers := len(x.rules), len(x.units), len(x.tiers)
	for i, r := range t.Rules {
		may := rules.TierSet(0)
		if t.Tiers != nil {
			if at, found := slices.BinarySearchFunc(watched, r, func(w route.Watched, r int) int { return w.Rule - r }); found {
				may = watched[at].May
			}
		}
		for _, counted := range d.plan.named[r] {
			x.rules = append(x.rules, counted)
			if t.Units != nil {
				x.units = append(x.units, t.Units[i])
			}
			if t.Tiers != nil {
				x.tiers = append(x.tiers, d.plan.tierOf(counted, t.Tiers[i], may))
			}
		}
	}
	out.rules = x.rules[named:len(x.rules):len(x.rules)]
	if plain {
		return
	}
	x.terms = append(x.terms, terms{})
	out.terms = &x.terms[len(x.terms)-1]
	if t.Units != nil {
		out.units = x.units[units:len(x.units):len(x.units)]
	}
	if t.Tiers != nil {
		out.tiers = x.tiers[tiers:len(x.tiers):len(x.tiers)]
	}
	if len(t.Extra) > 0 {
		at := len(x.extra)
		x.extra = append(x.extra, t.Extra...)
		out.extra = x.extra[at:len(x.extra):len(x.extra)]
	}
	out.reached, out.beyond = d.multiplied(x, t.Reached), d.multiplied(x, t.Beyond)
}

// multiplied are the rules that a sweep makes of some.
func (d *decoder) multiplied(x *decoding, given []int) []int {
	at := len(x.rules)
	for _, r := range given {
		x.rules = append(x.rules, d.plan.named[r]...)
	}
	return x.rules[at:len(x.rules):len(x.rules)]
}

// watch makes out say what w says.
func (d *decoder) watch(out *watch, x *decoding, w *route.Watched, got *route.Reading) {
	*out = watch{rule: int32(w.Rule), partition: d.whereHeld(w.Rule, w.Partition), matched: true, why: w.Why, counts: w.Counts}
	out.held = !d.plan.apart[w.Rule] || slices.ContainsFunc(got.Held, func(h route.Held) bool { return h.Rule == w.Rule })
	units, tier := int64(1), 0
	for i := range got.Targets {
		t := &got.Targets[i]
		if !w.Counts || t.Units == nil && t.Tiers == nil {
			continue
		}
		if at, found := slices.BinarySearch(t.Rules, w.Rule); found {
			if t.Units != nil {
				units = t.Units[at]
			}
			if t.Tiers != nil {
				tier = t.Tiers[at]
			}
		}
	}
	if w.Allowed != "" || w.May != 0 || units != 1 || tier != 0 {
		x.notices = append(x.notices, notice{w.Allowed, units, tier, w.May})
		out.notice = &x.notices[len(x.notices)-1]
	}
}

// whereHeld is the partition in which a rule's block is simulated for an event, whose partition of the rule's dimension is given.
func (d *decoder) whereHeld(rule, partition int) int16 {
	if d.plan.whole[rule] {
		partition = d.reader.PartitionOfRule(rule)
	}
	return int16(partition) //nolint:gosec // below keyedPartitions
}

// sourceOf is the source partition that weir ingest gives an address.
func sourceOf(ip string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(ip)) // a hash takes everything
	return int(h.Sum32() % uint32(n))
}

// detached is a copy of e that needs none of its block's memory.
func (e *event) detached() *event {
	c := *e
	c.identity.Device, c.identity.User = strings.Clone(c.identity.Device), strings.Clone(c.identity.User)
	c.identity.APIKey, c.identity.Session = strings.Clone(c.identity.APIKey), strings.Clone(c.identity.Session)
	c.sample = bytes.Clone(c.sample)
	c.watched = slices.Clone(c.watched)
	for i := range c.watched {
		if w := &c.watched[i]; w.notice != nil {
			w.notice = &notice{strings.Clone(w.allowed), w.units, w.tier, w.may}
		}
	}
	c.targets = slices.Clone(c.targets)
	c.failed = slices.Clone(c.failed)
	for i := range c.targets {
		t := &c.targets[i]
		t.rules = slices.Clone(t.rules)
		if t.terms == nil {
			continue
		}
		t.terms = &terms{
			units: slices.Clone(t.units), tiers: slices.Clone(t.tiers), extra: slices.Clone(t.extra), reached: slices.Clone(t.reached), beyond: slices.Clone(t.beyond),
		}
		for j := range t.extra {
			t.extra[j].Text = strings.Clone(t.extra[j].Text)
		}
	}
	return &c
}

// bytes is about what a detached event takes.
func (e *event) bytes() int {
	n := 320 + len(e.sample) + len(e.identity.Device) + len(e.identity.User) + len(e.identity.APIKey) + len(e.identity.Session) + 24*len(e.watched) + 24*len(e.failed)
	for i := range e.targets {
		told := e.targets[i].told()
		n += 112 + 8*len(e.targets[i].rules) + 8*len(told.units) + 8*len(told.tiers) + 8*len(told.reached) + 8*len(told.beyond)
		for _, x := range told.extra {
			n += 24 + len(x.Text)
		}
	}
	return n
}
