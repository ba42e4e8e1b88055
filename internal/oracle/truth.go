package oracle

import (
	"math"
	"slices"
	"sort"
)

// Truth says whether a key was over at a time, of all its events. It accuses who flags a key that was not: it is made so that
// leaving events out can never make a key over that is not over by all of them, for who leaves events out must not be
// wrong. For windows whose bounds the events themselves decide, that is less than the definition over the sorted log:
//
//   - first-seen: an event that comes later can open a window before the one that stands, and cut that in two. No judge who
//     does not wait can know. What is always true: so many events lay within one window's length of each other.
//   - buckets: an event that comes later can take the room of one that was let in. Always true: more units (or values) came in a
//     stretch of time than a bucket that was empty before it could take.
//
// Of all others it is the definition.
type Truth struct {
	definition Definition
	judged     []Judged // by the definition, or by what is said of it above
	sorted     []Step
	least      int64 // limit
	bucket     bool
}

// NewTruth judges the steps of one key.
func NewTruth(d Definition, steps []Step) *Truth {
	t := &Truth{definition: d, sorted: Sorted(steps), least: math.MaxInt64}
	for _, s := range steps {
		t.least = min(t.least, s.Limit)
	}
	switch d.Algorithm {
	case "token-bucket", "leaky-bucket":
		t.bucket = true
		return t
	case "first-seen":
		t.definition.Algorithm = "sliding"
	}
	t.judged = t.definition.Judge(steps)
	return t
}

// Over reports whether the key was over at the instant at: whether one of its events of that time was, or where it has none,
// whether a window that ends then holds more than the least limit.
func (t *Truth) Over(at int64) bool {
	if t.bucket {
		return t.poured(at)
	}
	from := sort.Search(len(t.judged), func(i int) bool { return t.judged[i].Time >= at })
	if from < len(t.judged) && t.judged[from].Time == at {
		return slices.ContainsFunc(t.judged[from:], func(j Judged) bool { return j.Time == at && j.Over })
	}
	if from == 0 {
		return false
	}
	w := t.definition.open()
	for _, j := range t.judged[:from] {
		w.add(j.Step)
	}
	return w.add(Step{Time: at, Limit: t.least}).Over
}

// poured reports whether in a stretch of time that ends at the instant at more has come than a bucket takes.
func (t *Truth) poured(at int64) bool {
	capacity := t.definition.Capacity
	if capacity == 0 {
		capacity = t.least
	}
	come := tally{distinct: t.definition.Distinct}
	for i := len(t.sorted) - 1; i >= 0; i-- {
		s := t.sorted[i]
		if s.Time > at {
			continue
		}
		come.put(s)
		if come.count()*t.definition.Window > capacity*t.definition.Window+t.least*(at-s.Time) {
			return true
		}
	}
	return false
}

// Held is how many events have their time in [from, to].
func (t *Truth) Held(from, to int64) int64 {
	search := func(x int64) int {
		return sort.Search(len(t.sorted), func(i int) bool { return t.sorted[i].Time >= x })
	}
	return int64(search(to+1) - search(from))
}
