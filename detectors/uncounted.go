package detectors

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Uncounted is why a rule did not count an event that it watches.
type Uncounted uint8

// The reasons. An event has at most one of them for a rule. ROUTE leaves out events that lack a field or a value, and
// those beyond the budget of conditions, and keeps count of them: they cost no keyed records. A Partition leaves out
// the others.
const (
	UncountedLate         Uncounted = iota // more than the rule's lateness behind its source partition, or the watermark
	UncountedOutOfOrder                    // on time, but older than what the algorithm's memory of its key can still place
	UncountedMissingField                  // without a field of the rule's key, under on_missing: skip
	UncountedMissingValue                  // without the number or the value that the rule counts
	UncountedBudget                        // of which match.when was not judged: conditions have a budget together
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
	case UncountedBudget:
		return "budget"
	}
	return "unknown"
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

// tellsUncounted reports whether all readers of the hits of a routing version know KindUncounted. Where they may not, events
// left out for such a reason are counted in metrics only.
func tellsUncounted(r *rules.Routing) bool { return r.RecordFormat >= rules.UncountedRecordFormat }

const minute = traffic.Time(time.Minute / time.Microsecond)

// uncountedSums are the sums of the events that were left out in one minute of append time: a sum is over when the minute
// is, and its hit needs no correction. There are at most as many as rules times source partitions times reasons.
type uncountedSums struct {
	newest traffic.Time // greatest append time seen by the sums
	minute traffic.Time // of all sums; of no meaning where there are none
	sums   map[uncountedKey]*uncountedSum
}

// uncountedKey names one sum.
type uncountedKey struct {
	lineage *lineage
	source  int
	reason  Uncounted
}

type uncountedSum struct {
	version int // newest rule version that added to it
	count   int64
	latest  traffic.Time // newest event time
	offset  int64        // of the first event added, for the id
}

func newUncountedSums() uncountedSums {
	return uncountedSums{newest: traffic.BeforeTime, sums: map[uncountedKey]*uncountedSum{}}
}

// add sums up an event, appended at the time given, that b's rule does not count. What a pending version does not count is
// not told: the rule is the live one.
func (u *uncountedSums) add(k *Keyed, b *binding, reason Uncounted, appended traffic.Time) {
	if b.kind != KindHit {
		return
	}
	b.lineage.counts.told.Uncounted[reason]++
	if reason != UncountedLate && !b.tells {
		return
	}
	// No sum of an earlier minute is left: the same record has passed due before it comes here.
	u.minute = u.minuteOf(appended)
	key := uncountedKey{lineage: b.lineage, source: k.Source, reason: reason}
	sum, ok := u.sums[key]
	if !ok {
		sum = &uncountedSum{offset: k.Offset, latest: k.Time}
		u.sums[key] = sum
	}
	sum.count++
	sum.version = max(sum.version, b.version.Number)
	sum.latest = max(sum.latest, k.Time)
}

// due reports whether there are sums to be sent: their minute is over by the append time, or the stream has ended.
func (u *uncountedSums) due(appended traffic.Time, ended bool) bool {
	return len(u.sums) > 0 && (u.minuteOf(appended) != u.minute || ended)
}

// minuteOf is the minute of an append time. Append times may step back when a leader changes; then it is the minute of the
// greatest one, so that a minute that was sent is never opened again.
func (u *uncountedSums) minuteOf(appended traffic.Time) traffic.Time {
	u.newest = max(u.newest, appended)
	return u.newest - u.newest%minute
}

// ordered are the keys of all sums in the order in which they are sent and written.
func (u *uncountedSums) ordered() []uncountedKey {
	return slices.SortedFunc(maps.Keys(u.sums), func(a, b uncountedKey) int {
		return cmp.Or(cmp.Compare(a.lineage.id, b.lineage.id), cmp.Compare(a.source, b.source), cmp.Compare(a.reason, b.reason))
	})
}

// lineages are the lineages of which there is a sum.
func (u *uncountedSums) lineages() map[*lineage]bool {
	out := map[*lineage]bool{}
	for key := range u.sums {
		out[key.lineage] = true
	}
	return out
}
