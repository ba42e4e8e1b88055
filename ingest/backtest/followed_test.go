package backtest

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// A table of sources is a map, whatever the hashes: equal at their tops, where places come from, or at their bottoms.
func TestFollowedSources(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 40), rapid.Custom(func(t *rapid.T) uint64 { return rapid.Uint64Range(0, 40).Draw(t, "top") << 58 }))
		var table followedSources
		want := map[uint64]traffic.Time{}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 19).Draw(t, "what") == 0 {
				mask := rapid.SampledFrom([]uint64{1, 3, 1 << 60}).Draw(t, "mask")
				table.keep(func(src *peakSource) bool { return src.key&mask == 0 })
				maps.DeleteFunc(want, func(key uint64, _ traffic.Time) bool { return key&mask != 0 })
				continue
			}
			key := keys.Draw(t, "key")
			src := table.find(key)
			newest, known := want[key]
			if src.taken != known || known && (src.key != key || src.newest != newest) {
				t.Fatalf("found %+v, want %v, %d", *src, known, newest)
			}
			if !known {
				want[key] = traffic.Time(i)
				if src = table.take(key, traffic.Time(i)); !src.taken || src.peak != 0 || src.sum != 0 {
					t.Fatalf("new: %+v", *src)
				}
			}
		}
		got := map[uint64]traffic.Time{}
		table.all(func(src *peakSource) { got[src.key] = src.newest })
		if !maps.Equal(got, want) || table.n != len(want) {
			t.Fatalf("%d of %v, want %v", table.n, got, want)
		}
	})
}
