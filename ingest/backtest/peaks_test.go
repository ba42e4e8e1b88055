package backtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The distribution agrees with the table, has no gaps, and is never below the truth nor above that of windows an eighth longer.
func TestPeaks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const window = 40
		times := map[int][]int64{}
		var text bytes.Buffer
		now := int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 3, 9, 60}).Draw(t, "after")
			who := rapid.IntRange(1, 5).Draw(t, "who")
			times[who] = append(times[who], now)
			text.WriteString(lineOf(begin.Add(time.Duration(now)*time.Second), fmt.Sprintf("192.0.2.%d", who), "", "", "/a"))
		}
		most := func(all []int64, span int64) int {
			n := 0
			for i, at := range all {
				first, _ := slices.BinarySearch(all, at-span+1)
				n = max(n, i-first+1)
			}
			return n
		}
		limits := []int{3, 7, 30}
		o := Options{Format: "weir", Rules: parseRules(t, fmt.Sprintf("id: r\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 5\nwindow: %ds\n", window)), Sweep: Sweep{Field: SweepLimit, Limits: limits}}
		for _, r := range run1(t, o, inMemory("log", text.Bytes())).Rules {
			next, sum := 1, int64(0)
			for _, b := range r.Peaks {
				if b.From != next || b.To < b.From || b.Sources < 0 {
					t.Fatalf("buckets %v", r.Peaks)
				}
				next, sum = b.To+1, sum+b.Sources
				least, greatest := int64(0), int64(0) // sources with a peak up to b.To
				for _, all := range times {
					if most(all, window) <= b.To {
						greatest++
					}
					if most(all, window*9/8) <= b.To {
						least++
					}
				}
				if slices.Contains(limits, b.To) {
					least = greatest
				}
				if sum < least || sum > greatest {
					t.Fatalf("up to %d: %d sources, allowed %d to %d", b.To, sum, least, greatest)
				}
			}
			if sum != int64(len(times)) {
				t.Fatalf("%d sources of %d in %v", sum, len(times), r.Peaks)
			}
			for _, limit := range limits {
				if !slices.ContainsFunc(r.Peaks, func(b PeakBucket) bool { return b.To == limit }) {
					t.Fatalf("no bucket ends at %d: %v", limit, r.Peaks)
				}
			}
		}
	})
}
