package oracle

// Step is one event of one key on its way into a window, in order of arrival.
type Step struct {
	Time  int64
	Units int64
	Value string // what is counted, when distinct values are
	Limit int64
}

// Answer is what a window says of a step.
type Answer struct {
	Over  bool
	Count int64
}

// Fixed counts each step's units in the window of the clock that its time lies in, whatever came before.
func Fixed(steps []Step, window int64) []Answer {
	var out []Answer
	counts := map[int64]int64{}
	for _, s := range steps {
		n := floor(s.Time, window)
		counts[n] += s.Units
		out = append(out, Answer{counts[n] > s.Limit, counts[n]})
	}
	return out
}

// FixedDistinct counts the distinct values of each window of the clock.
func FixedDistinct(steps []Step, window int64) []Answer {
	var out []Answer
	seen := map[int64]map[string]bool{}
	for _, s := range steps {
		n := floor(s.Time, window)
		if seen[n] == nil {
			seen[n] = map[string]bool{}
		}
		seen[n][s.Value] = true
		count := int64(len(seen[n]))
		out = append(out, Answer{count > s.Limit, count})
	}
	return out
}

// floor is the number of the window that t lies in.
func floor(t, window int64) int64 {
	n := t / window
	if n*window > t {
		n--
	}
	return n
}
