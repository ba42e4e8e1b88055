package detectors

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// loaded are keys as a snapshot may have them, in order: hashes, and among them groups that share their upper words, as
// many as a crowd lets in.
func loaded(rt *rapid.T) []Fingerprint {
	n := rapid.SampledFrom([]int{0, 1, 7, meanLoaded, meanLoaded + 1, 5000, 40_000}).Draw(rt, "hashes")
	var keys []Fingerprint
	for i := range uint64(n) {
		keys = append(keys, printOf(i))
	}
	for _, hi := range rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(rt, "crowds") {
		for i := range uint64(densityMost) {
			keys = append(keys, Fingerprint{hi, i})
		}
	}
	if rapid.Bool().Draw(rt, "crowd at the end") {
		for i := range uint64(densityMost) {
			keys = append(keys, Fingerprint{math.MaxUint64, i}, Fingerprint{math.MaxUint64 &^ (1 << (64 - newDensityCheck(len(keys)).bits)), i})
		}
	}
	slices.SortFunc(keys, Fingerprint.compare)
	keys = slices.Compact(keys)
	crowd := newDensityCheck(len(keys))
	return slices.DeleteFunc(keys, func(k Fingerprint) bool {
		before := *crowd
		if crowd.admit(k); crowd.full {
			*crowd = before
			return true
		}
		return false
	})
}

// A table that was loaded holds what was put into it, and goes on as one that has grown key by key.
func TestLoadedTableIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := loaded(rt)
		var table table
		want := map[Fingerprint]uint64{}
		l := newTableLoader(&table, len(keys))
		for i, k := range keys {
			c := l.add(k, pastOf(k))
			if *c != (cell{}) {
				rt.Fatalf("the cell of key %d is not empty", i)
			}
			c.a, c.b = uint64(i), cellUsed
			want[k] = uint64(i)
		}
		l.finish()
		for i, s := range table.dir {
			if first, span := table.dirRange(s); i < first || i >= first+span || len(s.slots) > mostSlots || int(s.n) > len(s.slots)*7/8 {
				rt.Fatalf("entry %d of the directory: %d keys in %d slots, at %d to %d", i, s.n, len(s.slots), first, first+span)
			}
		}
		if len(table.dir) > 8*len(keys) {
			rt.Fatalf("a directory of %d for %d keys", len(table.dir), len(keys))
		}
		checkTable(rt, &table, want)
		for i := range uint64(2000) {
			k := printOf(i * 7)
			if s, fresh := table.put(k, 0); fresh != nil {
				s.a, s.b = i, cellUsed
				*fresh = pastOf(k)
				want[k] = i
			}
			if k = printOf(i * 3); i%2 == 0 && table.get(k) != nil {
				table.drop(k)
				delete(want, k)
			}
		}
		checkTable(rt, &table, want)
	})
}

// A table that was loaded takes no more than a key is charged.
func TestLoadedTableIsSmall(t *testing.T) {
	for _, n := range []int{10_000, 100_000, 163_000, 164_000, 250_000, 256_000} {
		keys := make([]Fingerprint, n)
		for i := range keys {
			keys[i] = printOf(uint64(i))
		}
		slices.SortFunc(keys, Fingerprint.compare)
		var table table
		l := newTableLoader(&table, n)
		for _, k := range keys {
			l.add(k, 0).b = cellUsed
		}
		l.finish()
		bytes := 8 * len(table.dir)
		for i, s := range table.dir {
			if first, _ := table.dirRange(s); first == i {
				bytes += 96 + 32*len(s.slots) + len(s.tags) + len(s.past)
			}
		}
		if bytes > keyBytes*n {
			t.Errorf("%d keys take %.1f bytes each, want at most %d", n, float64(bytes)/float64(n), keyBytes)
		}
	}
}
