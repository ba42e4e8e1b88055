package detectors

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
)

// loaded are keys as a snapshot may have them, in order: hashes, and among them groups that share their upper words, as
// many as the density check lets in.
func loaded(rt *rapid.T) []Fingerprint {
	n := rapid.SampledFrom([]int{0, 1, 7, loadedMean, loadedMean + 1, 5000, 40_000}).Draw(rt, "hashes")
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
	density := newDensityCheck(len(keys))
	return slices.DeleteFunc(keys, func(k Fingerprint) bool {
		before := *density
		if density.admit(k); density.full {
			*density = before
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

func sealed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(slices.Clone(b), crc32.Checksum(b, castagnoli))
}

// crowdedSnapshot is one with a sliding log for each key, in order, in a format that is read for good.
func crowdedSnapshot(keys []Fingerprint) []byte {
	b := []byte{2, 0, 1, 0, 0, 0, 0, 0, 0}                                    // no source partitions
	b = append(b, make([]byte, 2*17)...)                                      // where sweeps are
	b = append(b, 1, 1, 'r', 1, kindSlidingLog, countEvents, byte(keyBinary)) // a lineage
	b = append(b, 10, 0, 1, 0, 0)                                             // its window and limits; no late sums
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, key := range keys {
		b = key.append(b)
		b = append(b, logPacked, 1, 2, 1, 0)
	}
	return sealed(b)
}

// Snapshots whose bytes are whole but whose keys are no hashes must be refused before a table has grown by them.
func TestRestoreRefusesCrowdedKeys(t *testing.T) {
	var good, crowded []Fingerprint
	for i := range uint64(5000) {
		good = append(good, printOf(i))
	}
	slices.SortFunc(good, Fingerprint.compare)
	p, err := Restore(Config{Sources: 1, Generation: 1}, crowdedSnapshot(good))
	if err != nil || p.Keys() != len(good) {
		t.Fatalf("hashes do not restore: %v", err)
	}
	for i := range uint64(60) {
		crowded = append(crowded, Fingerprint{math.MaxUint64, i})
	}
	if _, err = Restore(p.cfg, crowdedSnapshot(crowded)); !errors.Is(err, ErrSnapshot) {
		t.Errorf("60 keys of one upper word: %v", err)
	}
	crowded = append(good[:4900:4900], crowded...)
	if _, err = Restore(p.cfg, crowdedSnapshot(crowded)); !errors.Is(err, ErrSnapshot) {
		t.Errorf("they among others: %v", err)
	}
}

// Keys as crowded as is let in, at the very end of a table, deepen the directory, but in proportion to the keys.
func TestCrowdBoundsTheDirectory(t *testing.T) {
	const n = 20_000
	var keys []Fingerprint
	for i := range uint64(n - 2*densityMost) {
		keys = append(keys, printOf(i))
	}
	deepest := newDensityCheck(n).bits
	for i := range uint64(densityMost) {
		keys = append(keys, Fingerprint{math.MaxUint64, i}, Fingerprint{math.MaxUint64 &^ (1 << (64 - deepest)), i})
	}
	slices.SortFunc(keys, Fingerprint.compare)
	p, err := Restore(Config{Sources: 1, Generation: 1}, crowdedSnapshot(keys))
	if err != nil {
		t.Fatal(err)
	}
	if dir := len(p.keys.ordered[0].cells.dir); dir < 256 || dir > 8*n {
		t.Errorf("a directory of %d for %d keys, want one that the keys deepened to at most %d", dir, n, 8*n)
	}
}

// A log of sums without units would be read as one with them.
func TestRestoreRefusesPackedSums(t *testing.T) {
	for sum, refused := range map[string]bool{"": false, "attrs.cost": true} {
		a := logOf(rules.Document{Algorithm: rules.AlgorithmSlidingLog, Limit: 3, Window: time.Minute, Count: rules.Count{Sum: sum}})
		var c cell
		r := &reader{b: []byte{logPacked, 1, 2, 3}}
		if a.restore(&c, r); (r.err != nil) != refused {
			t.Errorf("sum %q: %v", sum, r.err)
		}
	}
}
