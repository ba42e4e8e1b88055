package detectors_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// drawMany plays a drawn log through all rules at once, with few keys or many.
func drawMany(t *testing.T, rt *rapid.T, budget int64) *many {
	window := time.Duration(rapid.IntRange(2, 30).Draw(rt, "window")) * time.Second
	lateness := time.Duration(rapid.IntRange(0, 60).Draw(rt, "lateness")) * time.Second
	m := newMany(t, rapid.IntRange(1, 3).Draw(rt, "sources"), budget, everyRule(rapid.IntRange(0, 3).Draw(rt, "limit"), window, lateness))
	if rapid.Bool().Draw(rt, "beside") {
		m.besideAll(origin + 40*second)
	}
	keys := rapid.SampledFrom([]int{1, 3, 40, 250}).Draw(rt, "keys")
	now := origin
	seed := rapid.Uint64().Draw(rt, "seed")
	pick := func(n int) int { // a drawn log of hundreds of events would shrink for ever
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed >> 33 % uint64(n))
	}
	for i := range rapid.IntRange(1, 400).Draw(rt, "events") {
		now += traffic.Time([]int{0, 0, 1, 1, 2, 9}[pick(6)]) * second / 4
		at := now - traffic.Time([]int{0, 0, 0, 1, 8, 40}[pick(6)])*second
		key := pick(keys)
		m.send(pick(len(m.next)), at, fmt.Sprintf("192.0.2.%d", key), fmt.Sprintf("d%d", pick(5)), int64(pick(4)))
		if i%7 == 6 {
			s := pick(len(m.next))
			m.must(m.tick(s, m.top[s]))
		}
	}
	return m
}

// For every algorithm at once, with evictions and without: a crash at any record, restored from a snapshot that was begun
// at any earlier one and written in slices while the log went on, gives the same hits, and the same state at the end.
func TestReplayFromAnySnapshot(t *testing.T) {
	evicted := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		budget := rapid.SampledFrom([]int64{0, 4 << 10, 40 << 10}).Draw(rt, "budget")
		m := drawMany(t, rt, budget)
		begin := rapid.IntRange(0, len(m.log)).Draw(rt, "snapshot at")
		slice := rapid.SampledFrom([]int{1, 200, 1 << 30}).Draw(rt, "slice")
		p := detectors.NewPartition(m.cfg)
		m.learn(p)
		var e *detectors.SnapshotEncoder
		var whole, sliced, taken []byte
		var hits, after []detectors.Hit
		for i, l := range m.log {
			if i == begin {
				whole = p.Snapshot(nil)
				e = p.BeginSnapshot()
			}
			if e != nil && sliced == nil {
				done := e.Next(slice)
				if taken = append(taken, e.Take(nil)...); done {
					sliced = taken
				}
			}
			before := len(hits)
			var err error
			if hits, err = p.Fold(l.appended, &l.keyed, hits); err != nil {
				rt.Fatal(err)
			}
			if i >= begin {
				after = append(after, hits[before:]...)
			}
		}
		if e == nil {
			return
		}
		for sliced == nil {
			if e.Next(slice) {
				sliced = append(taken, e.Take(nil)...)
			}
		}
		if !slices.Equal(whole, sliced) {
			rt.Fatal("a snapshot written in slices is not what it was when it began")
		}
		restored, err := detectors.Restore(m.cfg, sliced)
		if err != nil {
			rt.Fatal(err)
		}
		m.learn(restored)
		if restored.Bytes() < 0 || !slices.Equal(restored.Snapshot(nil), sliced) {
			rt.Fatal("a restored state encodes differently")
		}
		records := make([]detectors.Record, 0, len(m.log)-begin)
		for _, l := range m.log[begin:] {
			records = append(records, detectors.Record{Appended: l.appended, Keyed: l.keyed})
		}
		n, again, err := restored.FoldAll(records, nil)
		if err != nil || n != len(records) {
			rt.Fatalf("folded %d of %d: %v", n, len(records), err)
		}
		if got, want := encode(t, again), encode(t, after); !slices.Equal(got, want) {
			rt.Fatalf("got %d hits %q\nwant %d hits %q", len(got), got, len(want), want)
		}
		if restored.Keys() != p.Keys() || restored.Bytes() != p.Bytes() || !slices.Equal(restored.Snapshot(nil), p.Snapshot(nil)) {
			rt.Fatalf("%d keys of %d bytes, want %d of %d", restored.Keys(), restored.Bytes(), p.Keys(), p.Bytes())
		}
		if budget > 0 && p.Bytes() > budget {
			rt.Fatalf("%d bytes, the budget is %d", p.Bytes(), budget)
		}
		for _, n := range p.Counts().Evicted {
			evicted += n
		}
	})
	if evicted == 0 {
		t.Error("nothing was ever evicted: the test proves nothing about it")
	}
}

// At the end of time nothing is left, and the ledger says so: whatever was charged was given back.
func TestLedgerIsEvenAtTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMany(t, rt, rapid.SampledFrom([]int64{0, 30 << 10}).Draw(rt, "budget"))
		m.end()
		if m.p.Keys() != 0 || m.p.Bytes() != 0 {
			rt.Fatalf("%d keys of %d bytes are left", m.p.Keys(), m.p.Bytes())
		}
	})
}

// Keys die without being asked for: a stream of keys that come once holds about as many as are alive.
func TestDeadKeysAreForgotten(t *testing.T) {
	b := newBench(t, 1, rule(3, 10*time.Second, time.Second))
	for i := range 20_000 { // 11 s of 100 keys are alive: 1,100
		b.must(b.event(0, origin+traffic.Time(i)*second/100, fmt.Sprintf("10.0.%d.%d", i>>8, i&255), 1))
		if n := b.p.Keys(); n > 2200 {
			t.Fatalf("%d keys are held after %d events", n, i)
		}
	}
}
