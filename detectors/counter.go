package detectors

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Counter is one window of one key, driven by hand: the same algorithms that a Partition runs, without Kafka, lateness
// or episodes. weir is compared with other limiters by it, step by step. Nothing is ever too late for it: its watermark
// does not move. It is not safe for concurrent use.
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
	// Remaining is how many more units would pass at the same instant: for windows 0 when over; for buckets the whole units
	// that are free, of which an over event of many units takes none.
	Remaining int64
}

// NewCounter returns the empty window of a rule: of its Algorithm, Count, Limit, Burst and Window; zero values mean
// what they mean in a rules.Document. Nothing else of the document is used.
func NewCounter(d rules.Document) *Counter {
	c := &Counter{rule: rules.Version{Document: d}}
	c.lineage = newLineage(d.ID, 0, &ledger{})
	c.lineage.start(&c.rule, int64(d.Limit))
	return c
}

// SetLimit changes limit and burst, as a new version of the rule in the same lineage does. burst 0 means limit.
func (c *Counter) SetLimit(limit, burst int) { c.rule.Limit, c.rule.Burst = limit, burst }

// Add gives the window an event at the instant at, of so many units: 1 for one event; 0 or fewer adds nothing and only asks.
// value is counted when the rule counts distinct values, and ignored otherwise; there units above 1 mean 1.
func (c *Counter) Add(at traffic.Time, units int64, value string) Verdict {
	ev := &c.event
	ev.begin(at, int64(c.rule.Limit), capacity(&c.rule))
	ev.units, ev.dead = units, traffic.BeforeTime
	if c.rule.Count.Distinct != nil {
		var unkeyed Secret
		ev.value = unkeyed.sum([]byte(value)).Lo
	}
	if units > 0 {
		c.lineage.algorithm.add(&c.cell, ev)
		if c.lineage.ranges != nil && len(ev.exceedances) > 0 {
			c.lineage.ranges.trim(&c.cell, ev)
		}
	}
	v := Verdict{Over: len(ev.exceedances) > 0, Count: c.lineage.algorithm.countAt(&c.cell, at, ev.limit)}
	if b, ok := c.lineage.algorithm.(remainder); ok {
		left := b.remaining(&c.cell, at, ev.limit, ev.burst)
		v.Remaining = max(0, left)
		if v.Over {
			v.Count = plus(v.Count, ev.units)
		}
		v.Over = v.Over || units <= 0 && left < 0
		return v
	}
	if v.Over {
		v.Count = ev.exceedances[len(ev.exceedances)-1].count
	}
	v.Over = v.Over || units <= 0 && v.Count > ev.limit
	v.Remaining = max(0, ev.limit-v.Count)
	return v
}
