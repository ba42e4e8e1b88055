package route

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// Reader reads single events as the routers of a replay read them under one routing version, and tells what would go into
// their records. It writes nothing, and may read any format. It is not safe for concurrent use.
type Reader struct {
	version *routingVersion
	reader  eventRouter
	out     Reading
	// reach finds the rules whose blocks hold other requests than they watch: apart are these.
	reach   *rules.Index
	apart   []int
	reached []int
}

// NewReader makes a Reader for a routing version and the deployment's secret, of a stream with so many keyed partitions. It
// returns an error for a version that this build could not route by.
func NewReader(r *rules.Routing, secret []byte, keyedPartitions int) (*Reader, error) {
	// Live to compile, so that any format is allowed and no event is an end mark; not live to read, so that times stand.
	v, err := compile(r, &Options{Live: true, Secret: secret, SecretID: r.SecretID, KeyedPartitions: keyedPartitions})
	if err != nil {
		return nil, err
	}
	out := &Reader{version: v, reader: eventRouter{targets: newTargeter(secret, keyedPartitions)}}
	var apart []rules.Version
	for i := range r.Rules {
		if d := &r.Rules[i].Document; d.HoldsApart() {
			out.apart = append(out.apart, i)
			apart = append(apart, rules.Version{Document: rules.Document{Match: d.Reach()}})
		}
	}
	out.reach = rules.NewIndex(apart)
	return out, nil
}

// Reading is what routers make of one event, but for what the events before it decide: its offset and its partition's
// progress. It is valid until the next Read.
type Reading struct {
	Fate           Fate
	Reason, Detail string // with FateDead
	Err            error  // with FateDead

	Request  *traffic.Request
	Identity *traffic.Identity
	Good     detectors.Good // what known_good says of it
	Watched  []Watched      // the rules that watch the event, ascending
	Targets  []Target       // the keyed partitions that get a record of it, ascending
	Failed   []Failed       // the rules with a condition that could not be judged on the event
	// Held are the rules, ascending, whose block would hold the request, of those whose block holds other requests than the rule
	// watches (rules.Document.HoldsApart). The blocks of all others hold what the rule watches.
	Held []Held
}

// Held is a rule whose block would hold a request.
type Held struct {
	Rule      int
	Partition int // as Watched.Partition
}

// Watched is a rule that watches an event.
type Watched struct {
	Rule      int
	Partition int // the keyed partition of the rule's dimension for this event, counted or not
	Counts    bool
	Why       detectors.Uncounted // of an event that does not count and is not let pass: missing field or value
	Allowed   string              // the allow list that lets the event pass, so that it does not count; empty for none
	// May are the limits that the event may have where the condition of a tier could not be judged, so that it is judged by the
	// greatest; 0 where it could.
	May rules.TierSet
}

// Target is a keyed partition that gets a record, with the rules that it names and what the event adds under each of them.
type Target struct {
	Partition int
	// Hint is not 0 where the record only tells of a good source. Routers write no other with the same number, while they remember it.
	Hint    uint64
	Rules   []int
	Reached []int                  // as Keyed.Reached; valid as Reading is
	Beyond  []int                  // as Keyed.Beyond; valid as Reading is
	Units   []int64                // nil: one for each
	Tiers   []int                  // by which limit the event is judged under each of Rules, see detectors.Keyed; nil: each rule's own
	Extra   []detectors.ExtraValue // what Rules need beside the identity; valid as Reading is
}

// Read reads one event.
func (r *Reader) Read(value []byte) *Reading { return r.read(&traffic.Message{Value: value}) }

// ReadLive reads one event as the routers of the live stream read it: m says when Kafka took it, which decides the time of an
// event that has none, or one in the future.
func (r *Reader) ReadLive(m *traffic.Message) *Reading {
	r.reader.live = true
	defer func() { r.reader.live = false }()
	return r.read(m)
}

func (r *Reader) read(m *traffic.Message) *Reading {
	got := r.reader.read(r.version, m, traffic.BeforeTime)
	out := &r.out
	*out = Reading{
		Fate: got.fate, Reason: got.reason, Detail: got.detail, Err: got.err, Request: &r.reader.request, Identity: &got.identity,
		Watched: out.Watched[:0], Targets: out.Targets[:0], Held: out.Held[:0],
		Failed: out.Failed[:0], Good: got.good,
	}
	for _, t := range got.turned {
		if t.fault != condition.Fine {
			out.Failed = append(out.Failed, Failed{Rule: t.rule, Fault: t.fault})
		}
	}
	unjudged := false
	for i := range got.watched {
		w := &got.watched[i]
		unjudged = unjudged || w.may != 0
		out.Watched = append(out.Watched, Watched{}) // and written in its place: a copy would wait for the writing of it
		x := &out.Watched[len(out.Watched)-1]
		x.Rule, x.May, x.Partition, x.Counts = w.rule, w.may, r.reader.targetOf(r.version, &r.version.rules[w.rule]), w.counts()
		switch {
		case w.allowed >= 0:
			x.Allowed = r.version.allow[w.allowed].id
		case w.skipped:
			x.Why = detectors.UncountedMissingField
		case !x.Counts:
			x.Why = detectors.UncountedMissingValue
		}
		if w.fault != condition.Fine {
			out.Failed = append(out.Failed, Failed{Rule: w.rule, Fault: w.fault, Tier: true})
		}
	}
	for i := range got.targets {
		t := &got.targets[i]
		out.Targets = append(out.Targets, Target{})
		x := &out.Targets[len(out.Targets)-1]
		x.Partition, x.Rules, x.Extra, x.Reached, x.Beyond = t.partition, t.rules, t.extra, t.reached, t.beyond
		x.Hint = t.hint
		if t.summed {
			x.Units = t.units
		}
		if t.tiered || unjudged {
			x.Tiers = t.tiers
		}
	}
	if len(r.apart) > 0 {
		r.hold(out)
	}
	return out
}

// hold finds out.Held.
func (r *Reader) hold(out *Reading) {
	switch out.Fate {
	case FateUnmatched, FateKeyless, FateRouted:
	default:
		return // no request, or one that weir itself has refused
	}
	r.reached = r.reach.Match(r.reached[:0], r.reader.asked())
	for _, i := range r.reached {
		rule := r.apart[i]
		out.Held = append(out.Held, Held{Rule: rule, Partition: r.reader.targetOf(r.version, &r.version.rules[rule])})
	}
}

// PartitionOfRule is the keyed partition that all events of a rule would meet in if it had no key.
func (r *Reader) PartitionOfRule(rule int) int { return r.version.rules[rule].target }
