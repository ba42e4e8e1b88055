package oracle

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// byDefinition is Sliding as its comment says it: each window is counted anew.
func byDefinition(events []Event, window, maxEpisode int64) []Episode {
	sorted := slices.SortedFunc(slices.Values(events), func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(b.Limit, a.Limit), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Offset, b.Offset))
	})
	var out []Episode
	first, last := 0, 0
	for i, e := range sorted {
		count := 0
		for _, before := range sorted[:i+1] {
			if before.Time > e.Time-window {
				count++
			}
		}
		if count <= e.Limit {
			continue
		}
		if len(out) == 0 || e.Time >= sorted[last].Time+window || e.Time >= sorted[first].Time+maxEpisode {
			out = append(out, Episode{First: e.Time})
			first = i
		}
		last = i
		out[len(out)-1].Last = e.Time
		out[len(out)-1].Count = int64(i - first + 1)
	}
	return out
}

func TestSlidingIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Event {
			return Event{
				Time: rapid.Int64Range(-50, 200).Draw(t, "time"), Source: rapid.IntRange(0, 2).Draw(t, "source"),
				Offset: rapid.Int64Range(0, 1000).Draw(t, "offset"), Limit: rapid.IntRange(0, 5).Draw(t, "limit"),
			}
		}), 0, 80).Draw(t, "events")
		window, longest := rapid.Int64Range(1, 60).Draw(t, "window"), rapid.Int64Range(1, 300).Draw(t, "longest")
		if got, want := Sliding(events, window, longest), byDefinition(events, window, longest); !slices.Equal(got, want) {
			t.Fatalf("got %v, by definition %v", got, want)
		}
	})
}
