package oracle

// FirstSeen counts in windows that open with the first step after the one before has ended; a step from before the open
// window counts in it.
func FirstSeen(steps []Step, window int64) []Answer {
	var out []Answer
	open, start, count := false, int64(0), int64(0)
	for _, s := range steps {
		if !open || s.Time >= start+window {
			open, start, count = true, s.Time, 0
		}
		count += s.Units
		out = append(out, Answer{count > s.Limit, count})
	}
	return out
}

// FirstSeenDistinct counts the distinct values of such windows.
func FirstSeenDistinct(steps []Step, window int64) []Answer {
	var out []Answer
	var seen map[string]bool
	start := int64(0)
	for _, s := range steps {
		if seen == nil || s.Time >= start+window {
			seen, start = map[string]bool{}, s.Time
		}
		seen[s.Value] = true
		out = append(out, Answer{int64(len(seen)) > s.Limit, int64(len(seen))})
	}
	return out
}
