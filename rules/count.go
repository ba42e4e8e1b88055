package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/traffic/format"
)

// CountKind is what a window adds up, without the field or the number that it is about.
type CountKind string

// The kinds of counting.
const (
	CountEvents   CountKind = "events"   // each event is one
	CountDistinct CountKind = "distinct" // each value of a field is one, however often it comes
	CountSum      CountKind = "sum"      // each event is as much as a whole number that it carries
)

// CountKinds lists every kind of counting, the default first.
func CountKinds() []CountKind { return []CountKind{CountEvents, CountDistinct, CountSum} }

// Kind is what c adds up.
func (c Count) Kind() CountKind {
	switch {
	case c.Distinct != nil:
		return CountDistinct
	case c.Sum != "":
		return CountSum
	}
	return CountEvents
}

// String is c as a rule document writes it.
func (c Count) String() string {
	switch c.Kind() {
	case CountDistinct:
		return "{distinct: " + describeKeyField(*c.Distinct) + "}"
	case CountSum:
		return "{sum: " + flowText(c.Sum) + "}"
	}
	return string(CountEvents)
}

func (c Count) equal(o Count) bool {
	if c.Distinct == nil || o.Distinct == nil {
		return c.Distinct == o.Distinct && c.Sum == o.Sum
	}
	return *c.Distinct == *o.Distinct && c.Sum == o.Sum
}

// clone is c without memory that it shares with another document.
func (c Count) clone() Count {
	if c.Distinct != nil {
		field := *c.Distinct
		c.Distinct = &field
	}
	return c
}

// Algorithms lists every algorithm, the default first and then in the order of the reference.
func Algorithms() []Algorithm {
	return []Algorithm{AlgorithmSliding, AlgorithmFixed, AlgorithmFirstSeen, AlgorithmSlidingCounter, AlgorithmSlidingLog,
		AlgorithmTokenBucket, AlgorithmLeakyBucket}
}

// Counts lists the kinds of counting that go with a, none for a name that is no algorithm. This is the table of legal
// pairs; that of docs/rules.md is held to it by a test.
//
// Events and sums go with every algorithm: each adds numbers up. Distinct values need a set that begins and ends as a whole:
// fixed and first-seen have one per window, a leaky bucket has one for its life, and sliding keeps sets of its own kind. Three
// algorithms are defined in a way that no set can follow: sliding-log finds the same sources in any order of events, and a set
// knows each value by its newest event only; sliding-counter takes a share of the window before, and values that both windows
// have are no share; token-bucket gives tokens back, and no token belongs to a value.
func (a Algorithm) Counts() []CountKind {
	switch a {
	case AlgorithmSliding, AlgorithmFixed, AlgorithmFirstSeen, AlgorithmLeakyBucket:
		return CountKinds()
	case AlgorithmSlidingCounter, AlgorithmSlidingLog, AlgorithmTokenBucket:
		return []CountKind{CountEvents, CountSum}
	}
	return nil
}

// Legal reports whether a may count this kind.
func Legal(a Algorithm, kind CountKind) bool { return slices.Contains(a.Counts(), kind) }

// bucket reports whether a fills and drains by a rate, and so has a capacity of its own: Burst.
func (a Algorithm) bucket() bool { return a == AlgorithmTokenBucket || a == AlgorithmLeakyBucket }

// SlidingExact is the greatest limit at which sliding is exact: up to it, it is a sliding-log. Above, it counts slices of the
// window, or, of distinct values, is a sliding-counter.
const SlidingExact = 128

// monotone reports whether leaving an event out can never put another event over the limit: d's windows hold what they hold,
// however the events before went on and in whatever order they came. With other algorithms an event less can move a window's
// start, leave room in a bucket, or have a late event counted that came too late; with sets of values, estimates of fewer
// values are not always lower.
func (d *Document) monotone() bool {
	switch a := d.Counting(); {
	case d.Count.Kind() == CountDistinct:
		return false
	default:
		return a == AlgorithmFixed || a == AlgorithmSlidingLog || a == AlgorithmSliding
	}
}

// Counting is the document's algorithm with the default filled in.
func (d *Document) Counting() Algorithm {
	if d.Algorithm == "" {
		return AlgorithmSliding
	}
	return d.Algorithm
}

// Capacity is how much the document's bucket holds: Burst, or where that is 0 the limit. It is 0 for algorithms without
// a bucket.
func (d *Document) Capacity() int {
	switch {
	case !d.Counting().bucket():
		return 0
	case d.Burst == 0:
		return d.Limit
	}
	return d.Burst
}

// UpdateEvery is the document's cooldown with the default filled in.
func (d *Document) UpdateEvery() time.Duration {
	if d.Cooldown == 0 {
		return DefaultCooldown
	}
	return d.Cooldown
}

// defaultLateness is what a document that names no lateness gets: windows aligned to the clock need to stay open no
// longer than one more of them, so that at most two are open.
func defaultLateness(a Algorithm, window time.Duration) time.Duration {
	if a == AlgorithmFixed {
		return min(DefaultLateness, window)
	}
	return DefaultLateness
}

// fillCounting writes out what the document leaves to the defaults of algorithm, burst and cooldown.
func (d *Document) fillCounting() {
	d.Algorithm, d.Burst, d.Cooldown = d.Counting(), d.Capacity(), d.UpdateEvery()
}

// plainCounting leaves out what is the default anyway. A document that uses nothing of algorithm, count, burst and
// cooldown then has the stored form, and the fingerprint, that it had before there were any.
func (d *Document) plainCounting() {
	if d.Burst == d.Limit {
		d.Burst = 0
	}
	if d.Algorithm == AlgorithmSliding {
		d.Algorithm = ""
	}
	if d.Cooldown == DefaultCooldown {
		d.Cooldown = 0
	}
	d.Count = d.Count.clone()
}

// checkCounting checks algorithm, count, burst and cooldown.
func (d *Document) checkCounting(say func(ok bool, field, got, allowed string)) {
	a := d.Counting()
	known := slices.Contains(Algorithms(), a)
	say(known, "algorithm", quoteShort(string(d.Algorithm)), allowedAlgorithm())
	kind := d.Count.Kind()
	say(d.Count.Distinct == nil || d.Count.Sum == "", "count", "both distinct and sum", allowedCount)
	if known && !Legal(a, kind) {
		say(false, "count", d.Count.String()+" with algorithm "+string(a), legalCounts(a))
	}
	d.checkDistinct(say)
	if kind == CountSum {
		_, err := format.ParseAttrPath(d.Count.Sum)
		say(err == nil && printable(d.Count.Sum), "count.sum", quoteShort(d.Count.Sum), allowedSum)
	}
	if known && d.Burst != 0 {
		got := "the number " + strconv.Itoa(d.Burst)
		say(a.bucket(), "burst", got+" with algorithm "+string(a), "burst only with token-bucket and leaky-bucket")
		say(d.Burst >= 1 && d.Burst <= MaxLimit, "burst", got, allowedBurst)
		say(!a.bucket() || d.Limit != 0 || d.Burst < 1, "burst", got+" with limit 0", "no burst, since nothing ever flows out of that bucket")
	}
	if d.Cooldown != 0 {
		say(d.Cooldown >= MinCooldown && d.Cooldown <= MaxCooldown && d.Cooldown%time.Second == 0, "cooldown", duration.Format(d.Cooldown), allowedCooldown)
	}
}

// checkDistinct refuses to count distinct values of a field of the key: all events of one window have the same one.
func (d *Document) checkDistinct(say func(ok bool, field, got, allowed string)) {
	f := d.Count.Distinct
	if f == nil {
		return
	}
	checkKeyField("count.distinct", *f, say)
	for _, k := range d.Key {
		same := k.Field == f.Field && f.V4 <= k.V4 && f.V6 <= k.V6
		say(!same, "count.distinct", describeKeyField(*f), "a field that differs among the events of one key "+describeKey(d.Key))
	}
}

func allowedAlgorithm() string {
	names := make([]string, 0, len(Algorithms()))
	for _, a := range Algorithms() {
		names = append(names, string(a))
	}
	return strings.Join(names, ", ")
}

// legalCounts says what a may count, and which algorithms may count more.
func legalCounts(a Algorithm) string {
	kinds := make([]string, 0, len(CountKinds()))
	for _, k := range a.Counts() {
		kinds = append(kinds, string(k))
	}
	var able []string
	for _, other := range Algorithms() {
		if len(other.Counts()) == len(CountKinds()) {
			able = append(able, string(other))
		}
	}
	return strings.Join(kinds, " or ") + " with " + string(a) + "; any count with " + strings.Join(able, ", ")
}
