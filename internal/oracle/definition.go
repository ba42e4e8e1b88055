package oracle

import (
	"cmp"
	"slices"
)

// Definition says what one rule counts, as docs/windows.md defines it over the time-sorted log of a key: the answer is the
// same in whatever order the events have come. It judges all algorithms and all ways of counting.
type Definition struct {
	Algorithm string // as a rule document names it; sliding is exact here at every limit
	Distinct  bool   // values are counted, else units; with sliding-counter the two sets of `sliding` above 128
	Window    int64
	Capacity  int64 // of a bucket; 0: the step's own limit
}

// Judged is a step with what its definition says of it.
type Judged struct {
	Step
	Answer
}

// Sorted puts steps in order of time; those of one time by their limits, the greatest first, and then as they came.
func Sorted(steps []Step) []Step {
	return slices.SortedStableFunc(slices.Values(steps), func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(b.Limit, a.Limit))
	})
}

// Judge answers every step of one key, in order of time. The steps may be given in any order.
func (d Definition) Judge(steps []Step) []Judged {
	w := d.open()
	out := make([]Judged, 0, len(steps))
	for _, s := range Sorted(steps) {
		out = append(out, Judged{s, w.add(s)})
	}
	return out
}

// Episodes joins the over steps of one key: an episode opens at the first one, ends at the last one that is less than a
// window after the one before it, and is cut when it has lasted longest. Its count is the number of steps from the first to
// the last over one.
func (d Definition) Episodes(judged []Judged, longest int64) []PeakedEpisode {
	var out []PeakedEpisode
	first := 0
	for i, j := range judged {
		if !j.Over {
			continue
		}
		n := len(out)
		if n == 0 || j.Time >= out[n-1].Last+d.Window || j.Time >= out[n-1].First+longest {
			out, first = append(out, PeakedEpisode{Episode: Episode{First: j.Time}}), i
		}
		e := &out[len(out)-1]
		e.Last, e.Count, e.Peak = j.Time, int64(i-first+1), max(e.Peak, j.Answer.Count)
	}
	return out
}

// PeakedEpisode is an episode with the greatest count of its over steps.
type PeakedEpisode struct {
	Episode
	Peak int64
}

// sequence is a window that is given the steps of one key in order of time. A step of no units adds nothing: it asks.
type sequence interface{ add(s Step) Answer }

func (d Definition) open() sequence {
	switch d.Algorithm {
	case "fixed":
		return &alignedWindow{Definition: d}
	case "first-seen":
		return &openedWindow{Definition: d}
	case "sliding-counter":
		return &weightedWindows{Definition: d}
	case "token-bucket", "leaky-bucket":
		if d.Distinct {
			return &valueBucket{Definition: d}
		}
		return &unitBucket{Definition: d}
	}
	return &trueWindow{tally: tally{distinct: d.Distinct}, length: d.Window}
}

// tally is a bag of steps: the sum of their units, or how many values they have.
type tally struct {
	distinct bool
	sum      int64
	values   map[string]int
}

func (t *tally) put(s Step) {
	if s.Units == 0 {
		return
	}
	if t.distinct {
		if t.values == nil {
			t.values = map[string]int{}
		}
		t.values[s.Value]++
		return
	}
	t.sum += s.Units
}

func (t *tally) take(s Step) {
	if s.Units == 0 {
		return
	}
	if !t.distinct {
		t.sum -= s.Units
		return
	}
	if t.values[s.Value]--; t.values[s.Value] == 0 {
		delete(t.values, s.Value)
	}
}

func (t *tally) count() int64 {
	if t.distinct {
		return int64(len(t.values))
	}
	return t.sum
}

func (t *tally) empty() { t.sum, t.values = 0, nil }

func answer(count, limit int64) Answer { return Answer{count > limit, count} }

// trueWindow is what lies in (t-length, t].
type trueWindow struct {
	tally
	length int64
	held   []Step
}

func (w *trueWindow) add(s Step) Answer {
	w.held = append(w.held, s)
	w.put(s)
	for w.held[0].Time <= s.Time-w.length { // never the last: a window is longer than nothing
		w.take(w.held[0])
		w.held = w.held[1:]
	}
	return answer(w.count(), s.Limit)
}

// alignedWindow is what lies in the window of the clock.
type alignedWindow struct {
	Definition
	tally
	number int64
}

func (w *alignedWindow) add(s Step) Answer {
	w.tally.distinct = w.Distinct
	if n := floor(s.Time, w.Window); n != w.number {
		w.empty()
		w.number = n
	}
	w.put(s)
	return answer(w.count(), s.Limit)
}

// openedWindow is what lies in the window that the first step after the one before it has opened.
type openedWindow struct {
	Definition
	tally
	begun bool
	start int64
}

func (w *openedWindow) add(s Step) Answer {
	w.tally.distinct = w.Distinct
	if !w.begun || s.Time >= w.start+w.Window {
		w.empty()
		w.begun, w.start = true, s.Time
	}
	w.put(s)
	return answer(w.count(), s.Limit)
}

// weightedWindows is what lies in the window of the clock, and the share of the one before (of the values that only that one
// has) which lies less than a window back, rounded down.
type weightedWindows struct {
	Definition
	number      int64
	now, before tally
}

func (w *weightedWindows) add(s Step) Answer {
	n := floor(s.Time, w.Window)
	switch {
	case n == w.number+1:
		w.before, w.now = w.now, tally{}
	case n != w.number:
		w.before, w.now = tally{}, tally{}
	}
	w.number, w.now.distinct, w.before.distinct = n, w.Distinct, w.Distinct
	w.now.put(s)
	only := w.before.count()
	for v := range w.now.values {
		if w.before.values[v] > 0 {
			only--
		}
	}
	return answer(w.now.count()+share(only, (n+1)*w.Window-s.Time, w.Window), s.Limit)
}
