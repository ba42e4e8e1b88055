package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
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
	case c.Distinct != nil, len(c.Tuple) > 0:
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
		if c.Distinct == nil {
			return "{distinct: " + describeKey(c.Tuple) + "}"
		}
		return "{distinct: " + describeKeyField(*c.Distinct) + "}"
	case CountSum:
		return "{sum: " + flowText(c.Sum) + "}"
	}
	return string(CountEvents)
}

func (c Count) equal(o Count) bool {
	if c.Sum != o.Sum || !slices.Equal(c.Tuple, o.Tuple) {
		return false
	}
	if c.Distinct == nil || o.Distinct == nil {
		return c.Distinct == o.Distinct
	}
	return *c.Distinct == *o.Distinct
}

// clone is c without memory that it shares with another document.
func (c Count) clone() Count {
	if c.Distinct != nil {
		field := *c.Distinct
		c.Distinct = &field
	}
	c.Tuple = slices.Clone(c.Tuple)
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
}

// counting checks algorithm, count, burst and cooldown.
func (c *checker) counting() {
	a := c.Counting()
	known := slices.Contains(Algorithms(), a)
	c.say(known, "algorithm", quoteShort(string(c.Algorithm)), allowedAlgorithm())
	kind := c.Count.Kind()
	c.say(kind != CountDistinct || c.Count.Sum == "", "count", "both distinct and sum", allowedCount)
	c.say(c.Count.Distinct == nil || len(c.Count.Tuple) == 0, "count", "both a field and a combination", allowedCount)
	if known && !Legal(a, kind) {
		c.say(false, "count", c.Count.String()+" with algorithm "+string(a), legalCounts(a))
	}
	c.distinct()
	if kind == CountSum && c.Count.Sum != SumBytes && c.Count.Sum != SumLatency {
		_, err := format.ParseAttrPath(c.Count.Sum)
		c.say(err == nil && reading.Printable(c.Count.Sum), "count.sum", quoteShort(c.Count.Sum), allowedSum)
	}
	if known && c.Burst != 0 {
		got := "the number " + strconv.Itoa(c.Burst)
		c.say(a.bucket(), "burst", got+" with algorithm "+string(a), "burst only with token-bucket and leaky-bucket")
		c.say(c.Burst >= 1 && c.Burst <= MaxLimit, "burst", got, allowedBurst)
		c.say(!a.bucket() || c.Limit != 0 || c.Burst < 1, "burst", got+" with limit 0", "no burst, since nothing ever flows out of that bucket")
	}
	if c.Cooldown != 0 {
		c.say(c.Cooldown >= MinCooldown && c.Cooldown <= MaxCooldown && c.Cooldown%time.Second == 0, "cooldown", duration.Format(c.Cooldown), allowedCooldown)
	}
}

// What Count.Sum may name beside a number within attrs.
const (
	SumBytes   = "bytes"      // the size of the answer
	SumLatency = "latency_ms" // how long it took, in whole milliseconds
)

// Summand reads the number that an event adds to a sum. The zero value reads none.
type Summand struct {
	of   string
	path format.AttrPath
}

// Summand is that of a count of kind CountSum.
func (c Count) Summand() (Summand, error) {
	s := Summand{of: c.Sum}
	if c.Sum == SumBytes || c.Sum == SumLatency {
		return s, nil
	}
	var err error
	if s.path, err = format.ParseAttrPath(c.Sum); err != nil {
		return Summand{}, fmt.Errorf("count.sum: %w", err)
	}
	return s, nil
}

// OfAttrs reports whether the number stands within attrs, where it may be of any type.
func (s *Summand) OfAttrs() bool { return s.of != SumBytes && s.of != SumLatency }

// Units is what an event adds: whole bytes, or milliseconds to the nearest whole one, a half up; 0 to format.MaxUnits. An event
// without size, or duration, and one of 0 look alike: both are format.UnitsAbsent. attrs are those of q.
func (s *Summand) Units(q *traffic.Request, attrs *format.AttrIndex) (int64, format.UnitsFault) {
	if s.OfAttrs() {
		return attrs.Units(s.path)
	}
	n := q.Bytes
	if s.of == SumLatency {
		n = q.LatencyUS
	}
	switch {
	case n == 0:
		return 0, format.UnitsAbsent
	case n < 0:
		return 0, format.UnitsNegative
	case s.of == SumLatency:
		n = n/1000 + n%1000/500
	}
	return min(n, format.MaxUnits), format.UnitsFine
}

// distinct refuses to count distinct values of a field of the key: all events of one window have the same one.
func (c *checker) distinct() {
	const place = "count.distinct"
	counted := c.Count.Tuple
	if f := c.Count.Distinct; f != nil {
		counted = []traffic.KeyField{*f}
		if c.keyField(place, *f, true) {
			c.once(place, *f, map[traffic.KeyField]bool{})
		}
	} else if len(counted) > 0 {
		c.say(len(counted) > 1, place, "a combination of one field", "the field itself, or two and more of them")
		c.fields(place, counted, true)
	}
	for _, f := range counted {
		for _, k := range c.Key {
			same := k.Field == f.Field && k.Name == f.Name && f.V4 <= k.V4 && f.V6 <= k.V6
			c.say(!same, place, describeKeyField(f), "a field that differs among the events of one key "+describeKey(c.Key))
		}
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
