package detectors

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const begin = traffic.Time(1_700_000_000_000_000)

// logOf is the algorithm of an otherwise empty lineage.
func logOf(d rules.Document) algorithm {
	l := newLineage("r", 1, &ledger{})
	l.start(&rules.Version{Document: d}, int64(d.Limit))
	return l.algorithm
}

// A key that had much and has little is charged for little, and must hold no more.
func TestShrunkLogsGiveMemoryBack(t *testing.T) {
	device := rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldDevice}}
	for name, d := range map[string]rules.Document{
		"log":      {Algorithm: rules.AlgorithmSlidingLog, Limit: 500, Window: time.Minute},
		"distinct": {Algorithm: rules.AlgorithmSliding, Limit: 120, Window: time.Minute, Count: device},
	} {
		t.Run(name, func(t *testing.T) {
			a := logOf(d)
			var c cell
			room := func() (held, space int) {
				switch a := a.(type) {
				case *slidingLog:
					return len(a.overflows.at(&c).entries), cap(a.overflows.at(&c).entries)
				case *distinctLog:
					return len(a.overflows.at(&c).list), cap(a.overflows.at(&c).list)
				}
				t.Fatalf("a %T", a)
				return 0, 0
			}
			add := func(n int, at traffic.Time) {
				for i := range n {
					now := at + traffic.Time(i)
					a.add(&c, &event{time: now, units: 1, value: uint64(at) + uint64(i), limit: int64(d.Limit), dead: earlier(now, 0)})
				}
			}
			add(d.Limit-1, begin)
			if held, _ := room(); held != d.Limit-1 {
				t.Fatalf("%d entries held of %d", held, d.Limit-1)
			}
			add(1, begin+traffic.Time(time.Hour.Microseconds()))
			if held, space := room(); held != 1 || space > 6 {
				t.Errorf("%d entries in the room of %d", held, space)
			}
		})
	}
}

// What expires of a log is what a walk finds: entries of one time, at the end of time, and few of them are the edges.
func TestFarLogExpires(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := traffic.Time(rapid.Int64Range(1, 20).Draw(rt, "window"))
		first := rapid.SampledFrom([]traffic.Time{0, traffic.EndOfTime - 60}).Draw(rt, "first")
		times := rapid.SliceOfN(rapid.Int64Range(0, 40), 1, 50).Draw(rt, "times")
		slices.Sort(times)
		f := overflowLog{}
		for i, at := range times {
			f.entries = append(f.entries, logEntry{entry{first + traffic.Time(at), 1}, int64(i) + 1})
		}
		dead := first + traffic.Time(rapid.Int64Range(0, 60).Draw(rt, "dead"))
		atLeast := rapid.IntRange(1, 10).Draw(rt, "at least")
		gone := 0
		for gone < len(f.entries) && later(f.entries[gone].time, window) <= dead {
			gone++
		}
		if gone < atLeast {
			gone = 0
		}
		want := slices.Clone(f.entries[gone:])
		f.expire(window, dead, atLeast)
		if !slices.Equal(f.entries, want) || f.base != int64(gone) {
			rt.Fatalf("%v with %d before, want %v with %d", f.entries, f.base, want, gone)
		}
	})
}

// A ref that is looked at ahead may be none: a spare page may have no memory, and a length may be of anything.
func TestPeekOfNoBlock(t *testing.T) {
	var a arena
	refs := make([]uint32, 100)
	for i := range refs {
		refs[i] = a.take(numBlocks - 1)
	}
	a.prefetch(refs[0], 0)
	for _, ref := range refs {
		a.give(ref)
	}
	if a.pages[refs[99]/pageWords].words != nil {
		t.Fatal("all spare pages keep their memory")
	}
	for _, ref := range append(refs, 1<<31) {
		a.prefetch(ref, packedMost)
	}
}

// Logs that die leave no pages behind for the few among them that live: pages follow what is charged, and nothing but
// the place of a block changes.
func TestPagesFollowTheBlocks(t *testing.T) {
	long, short := rules.Version{Number: 1, Lineage: 1}, rules.Version{Number: 1, Lineage: 1}
	long.Document = rules.Document{
		ID: "long", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 100,
		Algorithm: rules.AlgorithmSlidingLog, Window: 24 * time.Hour,
	}
	short.Document = long.Document
	short.ID, short.Window = "short", time.Minute
	p := NewPartition(Config{Sources: 1, Generation: 1})
	p.Learn(NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{long, short}}))
	offset := int64(0)
	send := func(key, rule int, at traffic.Time) {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(key))
		k := Keyed{Kind: KeyedEvent, Generation: 1, Offset: offset, Prev: offset - 1, Time: at, Progress: at, Version: 1, Rules: []int{rule}}
		k.Identity.IP = netip.AddrFrom4(ip)
		if _, err := p.Fold(at, &k, nil); err != nil {
			t.Fatal(err)
		}
		offset++
	}
	at, key, held := begin, 0, int64(0)
	for _, entries := range []int{4, 16, 48} {
		for range 100 * 1024 / entries {
			rule := 1
			if key%(512/entries) == 0 {
				rule = 0
				held += 8 * int64(blockSize(blockClass(entries)))
			}
			for range entries {
				send(key, rule, at)
			}
			key++
		}
		at += traffic.Time(2 * time.Minute.Microseconds())
		send(0, 0, at) // the watermark passes all short ones
		p.keys.sweepAll(p.watermark.at)
		p.keys.sweep = sweep{} // where it stands is part of the state
		before := p.Snapshot(nil)
		for range 2 {
			p.keys.sweepAll(p.watermark.at)
		}
		p.keys.sweep = sweep{}
		if !slices.Equal(p.Snapshot(nil), before) {
			t.Fatal("moving blocks changed the state")
		}
		used, resident := int64(0), int64(0)
		for _, page := range p.keys.ledger.arena.pages {
			if page.used > 0 {
				used++
			}
			if page.words != nil {
				resident++
			}
		}
		if most := 2*held/(8*pageWords) + numBlocks; used > most {
			t.Errorf("logs of %d: %d pages are in use for %d bytes, allowed: %d", entries, used, held, most)
		}
		if most := used + int64(len(p.keys.ledger.arena.pages))/4 + 16; resident > most {
			t.Errorf("logs of %d: %d pages are in memory, %d in use, allowed: %d", entries, resident, used, most)
		}
	}
}
