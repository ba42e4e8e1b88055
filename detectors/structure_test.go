package detectors

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The table against a Go map: look-ups, order of walks, removal in a walk, shrinking. Some share their upper words, so
// that they crowd and are pushed beyond the ends of sub-tables.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table table
		want := map[Fingerprint]uint64{}
		crowd := rapid.SampledFrom([]uint64{0, 0, 1<<52 - 1}).Draw(rt, "crowding")
		seed := rapid.Uint64().Draw(rt, "seed")
		space := rapid.SampledFrom([]uint64{50, 3000, 1 << 40}).Draw(rt, "space")
		next := func() uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed >> 20 }
		key := func() Fingerprint {
			f := printOf(next() % space)
			return Fingerprint{f.Hi &^ crowd, f.Lo}
		}
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for range rapid.IntRange(1, 3000).Draw(rt, "puts") {
				k, v := key(), next()|cellUsed
				s, fresh := table.put(k, int32(next()))
				if _, known := want[k]; (fresh != nil) == known || fresh == nil && s.a != want[k] {
					rt.Fatalf("put %v: fresh %v", k, fresh)
				}
				if fresh != nil {
					*fresh = pastOf(k)
				}
				s.a, s.b = v, cellUsed
				want[k] = v
			}
			checkTable(rt, &table, want)
			most := rapid.IntRange(1, 4000).Draw(rt, "walk")
			mask := next()
			last := key().Hi | rapid.SampledFrom([]uint64{0, math.MaxUint64}).Draw(rt, "to the end")
			from, n, _ := table.walk(keyRange{key(), last, most}, func(s *slot, past uint8) bool {
				if s.hi > last {
					rt.Fatalf("%v is beyond %x", s.key(), last)
				}
				return s.lo&mask&7 == 0 || mask&3 == 0
			}, func(s *slot) { delete(want, s.key()) })
			if n > most {
				rt.Fatalf("%d keys visited of at most %d, next %v", n, most, from)
			}
			for range rapid.IntRange(0, 200).Draw(rt, "drops") {
				k := key()
				if table.get(k) != nil {
					table.drop(k)
				}
				delete(want, k)
			}
			checkTable(rt, &table, want)
		}
	})
}

func pastOf(k Fingerprint) uint8 { return uint8(k.Lo >> 11 & mostPast) }

func checkTable(rt *rapid.T, t *table, want map[Fingerprint]uint64) {
	if t.n != len(want) {
		rt.Fatalf("%d keys, want %d", t.n, len(want))
	}
	for k, v := range want {
		if s := t.get(k); s == nil || s.a != v {
			rt.Fatalf("key %v: %v", k, s)
		}
	}
	last, n := Fingerprint{}, 0
	_, visited, done := t.walk(keyRange{to: math.MaxUint64, limit: math.MaxInt}, func(s *slot, past uint8) bool {
		if past != pastOf(s.key()) {
			rt.Fatalf("past %d of key %v", past, s.key())
		}
		if n > 0 && !last.less(s.key()) {
			rt.Fatal("a walk is not in order")
		}
		last, n = s.key(), n+1
		return false
	}, nil)
	if visited != len(want) || !done {
		rt.Fatalf("%d keys visited of %d, done %v", visited, len(want), done)
	}
	for _, s := range t.dir {
		for i := range s.slots {
			if tag := s.tags[i]; (tag == 0) != (s.slots[i].b == 0) || tag != 0 && tag != tagOf(s.slots[i].lo) {
				rt.Fatalf("tag %x of slot %d", tag, i)
			}
		}
	}
}

// Blocks of an arena never overlap, keep what was put into them wherever they are moved, and their memory is used again.
func TestArenaKeepsBlocksApart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var a arena
		type held struct {
			ref   uint32
			class int
			mark  uint64
		}
		var all []held
		words := 0
		classes := rapid.SampledFrom([][]int{{numBlocks - 1}, {7, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}).Draw(rt, "classes")
		for range rapid.IntRange(1, 600).Draw(rt, "steps") {
			step := rapid.IntRange(0, 99).Draw(rt, "step")
			if step < 60 && len(all) > 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(rt, "which")
				if step < 20 {
					all[i].ref = a.compact(all[i].ref, all[i].class)
					continue
				}
				a.give(all[i].ref)
				all = slices.Delete(all, i, i+1)
				continue
			}
			h := held{class: rapid.SampledFrom(classes).Draw(rt, "class"), mark: rapid.Uint64().Draw(rt, "mark")}
			h.ref = a.take(h.class)
			for i := range a.block(h.ref, h.class) {
				a.block(h.ref, h.class)[i] = h.mark
			}
			all = append(all, h)
			words = max(words, len(all))
		}
		for _, h := range all {
			for i, v := range a.block(h.ref, h.class) {
				if v != h.mark {
					rt.Fatalf("word %d of a block of %d is another's", i, blockSize(h.class))
				}
			}
		}
		for _, h := range all {
			a.give(h.ref)
		}
		if len(a.spare) != len(a.pages) {
			rt.Fatalf("%d of %d pages are free when nothing is held", len(a.spare), len(a.pages))
		}
	})
}

func TestBlockClasses(t *testing.T) {
	for n := 1; n <= packedMost; n++ {
		class := blockClass(n)
		if blockSize(class) < n || class > 0 && blockSize(class-1) >= n || class >= numBlocks {
			t.Errorf("%d words go into a block of %d", n, blockSize(class))
		}
	}
}

// Sets count exactly to their bound; beyond, the error is that of a sketch with a standard error of 2.3 %: over 40 sets
// its mean must be within a percent and none further off than 4.5 standard errors.
func TestValueSetError(t *testing.T) {
	for _, n := range []int{1, 100, DistinctExact, 400, 1000, 5000, 10_000, 100_000} {
		sum, worst := 0.0, 0.0
		for trial := range 40 {
			var s valueSet
			for i := range n {
				v := printOf(uint64(trial)<<32 + uint64(i)).Lo
				s.add(v)
				if !s.has(v) {
					t.Fatalf("value %d of %d is not in the set", i, n)
				}
			}
			e := float64(s.n)/float64(n) - 1
			sum, worst = sum+e, max(worst, math.Abs(e))
		}
		if n <= DistinctExact && worst > 0 || math.Abs(sum/40) > 0.01 || worst > 4.5*0.023 {
			t.Errorf("%d values: mean error %.4f, worst %.4f", n, sum/40, worst)
		}
	}
}

func TestUnionOfSets(t *testing.T) {
	for _, sizes := range [][2]int{{3, 5}, {200, 250}, {100, 3000}, {4000, 4000}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			var a, b valueSet
			for i := range sizes[0] {
				a.add(printOf(uint64(i)).Lo)
			}
			for i := range sizes[1] {
				b.add(printOf(uint64(i + sizes[0]/2)).Lo)
			}
			want := float64(max(sizes[0], sizes[1]+sizes[0]/2))
			if got := float64(union(&a, &b)); math.Abs(got/want-1) > 0.1 || sizes[1] <= DistinctExact && got != want {
				t.Errorf("%v values in both, want %v", got, want)
			}
		})
	}
}
