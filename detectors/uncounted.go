package detectors

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Uncounted is why a rule did not count an event that it watches.
type Uncounted uint8

// The reasons. An event has at most one of them for a rule. ROUTE leaves out what is missing and keeps the figures of it,
// so that such events cost no keyed records; a Partition leaves out the others.
const (
	UncountedLate         Uncounted = iota // more than the rule's lateness behind its source partition, or the watermark
	UncountedOutOfOrder                    // on time, but older than what the algorithm's memory of its key can still place
	UncountedMissingField                  // without a field of the rule's key, under on_missing: skip
	UncountedMissingValue                  // without the number or the value that the rule counts
	NumUncounted
)

// String is the reason as hits, tables and labels write it.
func (u Uncounted) String() string {
	switch u {
	case UncountedLate:
		return "late"
	case UncountedOutOfOrder:
		return "out_of_order"
	case UncountedMissingField:
		return "missing_field"
	case UncountedMissingValue:
		return "missing_value"
	}
	return "unknown"
}

// RuleUncounted is how many events a rule left out for one reason.
type RuleUncounted struct {
	Rule   string
	Reason Uncounted
	Events int64
}

// RoutedUncounted is how many events one router left out of a rule, for one reason, in one minute.
type RoutedUncounted struct {
	Router string // its name, which no other router has
	Rule   string
	Reason Uncounted
	Minute traffic.Time // by the router's clock, when it had routed what it did not leave out
	Seen   traffic.Time // when the sum was taken
	Events int64
}

// tellsUncounted reports whether whoever reads the hits of a routing version knows KindUncounted. Events of an older
// version that are left out for such a reason are counted in metrics only.
func tellsUncounted(r *rules.Routing) bool { return r.RecordFormat >= rules.UncountedRecordFormat }

// TakeUncounted appends what was left out since it was last called, by rule and reason, late events included. It is for
// metrics: what it tells is no part of the state.
func (p *Partition) TakeUncounted(dst []RuleUncounted) []RuleUncounted {
	for _, l := range p.ordered {
		if l.uncounted == ([NumUncounted]int64{}) {
			continue
		}
		for reason, n := range l.uncounted {
			if n > 0 {
				dst = append(dst, RuleUncounted{Rule: l.rule, Reason: Uncounted(reason), Events: n})
			}
		}
		l.uncounted = [NumUncounted]int64{}
	}
	return dst
}
