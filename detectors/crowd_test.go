package detectors

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
)

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
		t.Errorf("a directory of %d for %d keys, want one that the crowd deepened to at most %d", dir, n, 8*n)
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
