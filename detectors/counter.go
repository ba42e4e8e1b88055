package detectors

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Counter is one window of one key, driven by hand: the same algorithms that a Partition runs, without Kafka, lateness
// or episodes. It is for tests that compare weir with other limiters step by step, and for `weir rules test`.
// Nothing is ever too late for it: its watermark does not move. It is not safe for concurrent use.
type Counter struct {
	rule    rules.Version
	lineage *lineage
	cell    cell
	event   event
}

// Verdict is what a window says of one event.
type Verdict struct {
	Over bool // the window reports more than the limit
	// Count is what the window holds with this event: events, units or distinct values; a bucket's level is rounded up, the
	// weighted window of sliding-counter down. An over event of a bucket is in Count but adds nothing to the bucket.
	// A sliding log that has been over keeps no more than it needs, and Count saturates above the limit.
	Count int64
	// Remaining is how many more units the same instant would let pass: 0 when over for windows; for buckets what is free,
	// whole units, which an over event of many units does not take.
	Remaining int64
}

// NewCounter returns the empty window of a rule: of its Algorithm, Count, Limit, Burst and Window; zero values mean
// what they mean in a rules.Document. Nothing else of the document is used.
func NewCounter(d rules.Document) *Counter {
	c := &Counter{rule: rules.Version{Document: d}}
	c.lineage = newLineage(d.ID, 0, &ledger{})
	c.lineage.start(&c.rule)
	return c
}

// SetLimit changes limit and burst, as a new version of the rule in the same lineage does. burst 0 means limit.
func (c *Counter) SetLimit(limit, burst int) { c.rule.Limit, c.rule.Burst = limit, burst }

// Add gives the window an event at the instant at, of so many units (1 for one event; 0 asks without adding). value is
// what is counted when the rule counts distinct values, and ignored otherwise; there units above 1 mean no more than 1.
// Negative units are taken for 0.
func (c *Counter) Add(at traffic.Time, units int64, value string) Verdict {
	ev := &c.event
	*ev = event{
		time: at, units: max(units, 0), limit: int64(c.rule.Limit), burst: capacity(&c.rule), dead: traffic.BeforeTime, exact: true,
		overs: ev.overs[:0],
	}
	if c.rule.Count.Distinct != nil {
		var unkeyed Secret
		ev.value = unkeyed.sum([]byte(value)).Lo
	}
	c.lineage.algorithm.add(&c.cell, ev)
	if log, ok := c.lineage.algorithm.(spanner); ok && len(ev.overs) > 0 {
		log.trim(&c.cell, ev)
	}
	over := len(ev.overs) > 0 || ev.units == 0 && ev.count > ev.limit
	v := Verdict{Over: over, Count: ev.count, Remaining: max(0, ev.limit-ev.count)}
	if b, ok := c.lineage.algorithm.(roomy); ok {
		v.Remaining = b.room(&c.cell, ev)
		v.Over = len(ev.overs) > 0
	}
	return v
}
