package detectors_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
)

// givePieces gives raw in pieces of the lengths that it is told.
func givePieces(raw []byte, length func() int) func() ([]byte, error) {
	return func() ([]byte, error) {
		n := min(length(), len(raw))
		piece := slices.Clone(raw[:n])
		raw = raw[n:]
		return piece, nil
	}
}

// A snapshot restores to the same state however it is cut, whatever lies at a border: numbers, texts, keys, checksum.
func TestRestoreFromPieces(t *testing.T) {
	m := everyAlgorithm(t)
	for i, raw := range [][]byte{m.p.Snapshot(nil), readFile(t, "snapshot-2-text.bin")} {
		cfg := []detectors.Config{m.cfg, goldenBench(t).cfg}[i]
		p, err := detectors.Restore(cfg, raw)
		if err != nil {
			t.Fatal(err)
		}
		want := p.Snapshot(nil)
		rapid.Check(t, func(rt *rapid.T) {
			most := rapid.SampledFrom([]uint64{1, 2, 5, 40, 1000, 100_000}).Draw(rt, "most")
			seed := rapid.Uint64().Draw(rt, "seed")
			p, err := detectors.RestoreFrom(cfg, int64(len(raw)), givePieces(raw, func() int {
				seed = seed*6364136223846793005 + 1442695040888963407
				return 1 + int(seed>>33%most)
			}))
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(p.Snapshot(nil), want) {
				rt.Fatal("another state comes of the pieces than of the whole")
			}
		})
	}
}

// Damage is found in pieces as it is in the whole: a flipped bit anywhere, also in the number of the format, and an end too soon.
func TestRestoreFromDamagedPieces(t *testing.T) {
	b := goldenBench(t)
	raw := b.p.Snapshot(nil)
	for i := range raw {
		for _, length := range []int{1, 7, len(raw) - 2} {
			damaged := slices.Clone(raw)
			damaged[i] ^= 1 << (i % 8)
			_, err := detectors.RestoreFrom(b.cfg, int64(len(raw)), givePieces(damaged, func() int { return length }))
			if !errors.Is(err, detectors.ErrSnapshot) {
				t.Fatalf("a flipped bit in byte %d of %d, in pieces of %d: %v", i, len(raw), length, err)
			}
			_, err = detectors.RestoreFrom(b.cfg, int64(len(raw)), givePieces(raw[:i], func() int { return length }))
			if !errors.Is(err, detectors.ErrSnapshot) {
				t.Fatalf("the first %d of %d bytes in pieces of %d: %v", i, len(raw), length, err)
			}
			_, err = detectors.RestoreFrom(b.cfg, int64(i), givePieces(raw, func() int { return length }))
			if !errors.Is(err, detectors.ErrSnapshot) {
				t.Fatalf("%d of %d bytes announced, in pieces of %d: %v", i, len(raw), length, err)
			}
		}
	}
}

// What goes wrong with getting a piece says nothing of the snapshot: it must not be passed over for an older one.
func TestRestoreTellsAStoreFromItsSnapshot(t *testing.T) {
	b := goldenBench(t)
	raw := b.p.Snapshot(nil)
	away := errors.New("connection refused")
	for n := range len(raw) {
		given := false
		_, err := detectors.RestoreFrom(b.cfg, int64(len(raw)), func() ([]byte, error) {
			if given || n == 0 {
				return nil, away
			}
			given = true
			return raw[:n], nil
		})
		if !errors.Is(err, away) || errors.Is(err, detectors.ErrSnapshot) {
			t.Fatalf("the store is away after %d of %d bytes: %v", n, len(raw), err)
		}
	}
}

// What was taken of a snapshot is let go: while nothing changes, no more is held than a step writes.
func TestSnapshotHoldsWhatWasNotTaken(t *testing.T) {
	m := newMany(t, 1, 0, everyRule(3, 3600*1e9, 0))
	for i := range 4000 {
		m.send(0, origin, "192.0.2."+string(rune('0'+i%10)), string(rune(i+1)), int64(i))
	}
	whole := m.p.Snapshot(nil)
	e := m.p.BeginSnapshot()
	var got, spare []byte
	for done := false; !done; {
		done = e.Next(1 << 10)
		if n := e.Written(); n > 200<<10 || n > len(whole)/2 {
			t.Fatalf("%d bytes of %d are held at once", n, len(whole))
		}
		piece := e.Take(spare)
		got = append(got, piece...)
		spare = piece
	}
	if !slices.Equal(got, whole) {
		t.Error("the pieces are not the whole")
	}
}
