// Package oracle says, slowly and plainly, what the answer is. It judges the detectors and therefore shares no code
// with them: it imports nothing of weir.
package oracle

import (
	"cmp"
	"slices"
)

// Event is one event of one key. Times are in any unit, the same everywhere.
type Event struct {
	Time   int64
	Source int
	Offset int64
	Limit  int
	Trial  bool // its limit is on trial: over it is over in trial episodes only
}

// Episode is a run of over events, each less than a window after the one before.
type Episode struct {
	First, Last int64 // times of the first and the last over event
	Count       int64 // events from the first to the last over event, both included
	Trial       bool
}

// Sliding gives the episodes of one key under the sliding log: an event is over when more than its limit events lie in
// (time-window, time], of those that come before it in the order of time or are it; of one time, the greatest limit comes
// first, then it goes by source and offset. An episode that has
// lasted maxEpisode is cut: the next over event opens another. Where a limit is no longer on trial, the next event over it opens
// another, too, which an event on trial that comes late has no part in.
func Sliding(events []Event, window, maxEpisode int64) []Episode {
	sorted := slices.SortedFunc(slices.Values(events), func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(b.Limit, a.Limit), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Offset, b.Offset))
	})
	var out []Episode
	firstIndex, lastIndex, oldest := 0, 0, 0
	for i, e := range sorted {
		for sorted[oldest].Time <= e.Time-window { // never passes i: a window is longer than nothing
			oldest++
		}
		if inWindow := i - oldest + 1; inWindow <= e.Limit {
			continue
		}
		running := len(out) > 0 && e.Time < sorted[lastIndex].Time+window && e.Time < sorted[firstIndex].Time+maxEpisode
		if running && e.Trial && !out[len(out)-1].Trial {
			continue
		}
		if !running || e.Trial != out[len(out)-1].Trial {
			out = append(out, Episode{First: e.Time, Trial: e.Trial})
			firstIndex = i
		}
		lastIndex = i
		out[len(out)-1].Last = e.Time
		out[len(out)-1].Count = int64(i - firstIndex + 1)
	}
	return out
}
