package oracle

import "math/big"

// SlidingCounter counts a step at the key's newest time: the units of the clock's window then, and of those of the one
// before the share of it that lies less than a window back, rounded down.
func SlidingCounter(steps []Step, window int64) []Answer {
	var out []Answer
	counts := map[int64]int64{}
	clock := clockOf(steps)
	for i, s := range steps {
		n := floor(clock[i], window)
		counts[n] += s.Units
		count := counts[n] + share(counts[n-1], (n+1)*window-clock[i], window)
		out = append(out, Answer{count > s.Limit, count})
	}
	return out
}

// RotatingDistinct is SlidingCounter for values: those of the window, and the share of those that only the one before has.
func RotatingDistinct(steps []Step, window int64) []Answer {
	var out []Answer
	seen := map[int64]map[string]bool{}
	clock := clockOf(steps)
	for i, s := range steps {
		n := floor(clock[i], window)
		if seen[n] == nil {
			seen[n] = map[string]bool{}
		}
		seen[n][s.Value] = true
		only := int64(0)
		for v := range seen[n-1] {
			if !seen[n][v] {
				only++
			}
		}
		count := int64(len(seen[n])) + share(only, (n+1)*window-clock[i], window)
		out = append(out, Answer{count > s.Limit, count})
	}
	return out
}

// LogDistinct counts the values whose newest time lies less than a window before the key's newest.
func LogDistinct(steps []Step, window int64) []Answer {
	var out []Answer
	newest := map[string]int64{}
	clock := clockOf(steps)
	for i, s := range steps {
		if t, ok := newest[s.Value]; !ok || t < s.Time {
			newest[s.Value] = s.Time
		}
		count := int64(0)
		for _, t := range newest {
			if t > clock[i]-window {
				count++
			}
		}
		out = append(out, Answer{count > s.Limit, count})
	}
	return out
}

// clockOf is the greatest time so far, at each step.
func clockOf(steps []Step) []int64 {
	out := make([]int64, len(steps))
	for i, s := range steps {
		out[i] = s.Time
		if i > 0 && out[i-1] > s.Time {
			out[i] = out[i-1]
		}
	}
	return out
}

// share is n x part / whole, rounded down.
func share(n, part, whole int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(part))
	return product.Quo(product, big.NewInt(whole)).Int64()
}
