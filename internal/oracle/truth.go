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
	come := tally{distinct: t.definition.Distinct}
	for i := len(t.sorted) - 1; i >= 0; i-- {
		s := t.sorted[i]
		if s.Time > at {
			continue
		}
		come.put(s)
		if come.count()*t.definition.Window > t.capacity()*t.definition.Window+t.least*(at-s.Time) {
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

// OverTimes are the times of events at which the key was over, ascending.
func (t *Truth) OverTimes() []int64 {
	switch {
	case t.bucket && t.definition.Distinct:
		return t.pouredValues()
	case t.bucket:
		return t.pouredUnits()
	}
	var out []int64
	for _, j := range t.judged {
		if n := len(out); j.Over && (n == 0 || out[n-1] != j.Time) {
			out = append(out, j.Time)
		}
	}
	return out
}

// pouredUnits is poured at all events at once: what the fullest stretch that ends at an event has come to, less what a bucket
// has lost meanwhile, is a bucket into which all fits.
func (t *Truth) pouredUnits() []int64 {
	var out []int64
	level := int64(0)
	for i, s := range t.sorted {
		if i > 0 {
			level = max(0, level-t.least*(s.Time-t.sorted[i-1].Time))
		}
		level += s.Units * t.definition.Window
		last := i == len(t.sorted)-1 || t.sorted[i+1].Time > s.Time
		if last && level > t.capacity()*t.definition.Window {
			out = append(out, s.Time)
		}
	}
	return out
}

// pouredValues is poured at all events, but not beyond the stretch in which a bucket loses as many values as there are.
func (t *Truth) pouredValues() []int64 {
	values := map[string]bool{}
	for _, s := range t.sorted {
		values[s.Value] = true
	}
	spare := (int64(len(values)) - t.capacity()) * t.definition.Window
	if spare <= 0 {
		return nil
	}
	var out []int64
	for i, s := range t.sorted {
		if i+1 < len(t.sorted) && t.sorted[i+1].Time == s.Time {
			continue
		}
		come := tally{distinct: true}
		for k := i; k >= 0 && t.least*(s.Time-t.sorted[k].Time) < spare; k-- {
			come.put(t.sorted[k])
			if come.count()*t.definition.Window > t.capacity()*t.definition.Window+t.least*(s.Time-t.sorted[k].Time) {
				out = append(out, s.Time)
				break
			}
		}
	}
	return out
}

func (t *Truth) capacity() int64 {
	if t.definition.Capacity == 0 {
		return t.least
	}
	return t.definition.Capacity
}
