package detectors

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// remembered is one evicted key, as a bucket should hold it.
type remembered struct {
	tag  uint16
	past uint8
}

// Ghosts against lists: who is remembered, for how long, and that a snapshot is of the moment at which it began.
func TestGhostsAreLists(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		budget := rapid.SampledFrom([]int64{0, 511, 512, 5000, 1 << 20}).Draw(rt, "budget")
		g := newGhosts(budget)
		lists := make([][]remembered, g.buckets)
		n := 0
		var shared ghosts
		var then []byte
		for range rapid.IntRange(0, 400).Draw(rt, "steps") {
			hi := rapid.SampledFrom([]uint64{0, 1, math.MaxUint64, 1 << 62, 1<<63 + 1<<57}).Draw(rt, "hi")
			tag := uint16(rapid.IntRange(0, 40).Draw(rt, "tag"))
			at := 0
			if g.buckets > 0 {
				at = g.number(hi)
			}
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				shared = g.share()
				then = writtenGhosts(g)
			case 1, 2, 3:
				want := uint8(0)
				if g.buckets > 0 {
					if i := slices.IndexFunc(lists[at], func(x remembered) bool { return x.tag == tag }); i >= 0 {
						want = lists[at][i].past
						lists[at] = slices.Delete(lists[at], i, i+1)
						n--
					}
				}
				if got := g.take(hi, tag); got != want {
					rt.Fatalf("a key with %d events is known with %d", want, got)
				}
			default:
				past := rapid.Int64Range(1, 40).Draw(rt, "past")
				g.put(hi, tag, past)
				if g.buckets == 0 {
					continue
				}
				lists[at] = slices.Insert(lists[at], 0, remembered{tag, uint8(min(past, mostPast))})
				lists[at] = lists[at][:min(len(lists[at]), ghostWays)]
				n = 0
				for _, list := range lists {
					n += len(list)
				}
			}
			if g.n != n || g.reserved() > budget/8 {
				rt.Fatalf("%d keys remembered in %d bytes, want %d within %d", g.n, g.reserved(), n, budget/8)
			}
		}
		if then != nil && !slices.Equal(writtenGhosts(shared), then) {
			rt.Fatal("what a snapshot shares has changed")
		}
		written := writtenGhosts(g)
		again, r := newGhosts(budget), &reader{b: written}
		if again.restore(r); r.done(ErrSnapshot) != nil || again.n != g.n || !slices.Equal(writtenGhosts(again), written) {
			rt.Fatalf("restored as %d keys of %d: %v", again.n, g.n, r.err)
		}
		other, r := newGhosts(budget+4096), &reader{b: written}
		if other.restore(r); r.done(ErrSnapshot) != nil || other.n > 0 {
			rt.Fatalf("%d keys restored under another budget: %v", other.n, r.err)
		}
	})
}

// Bytes that no ghosts write are refused.
func TestGhostsRefuseDamage(t *testing.T) {
	for name, raw := range map[string][]byte{
		"too many keys":     append([]byte{1, ghostWays + 1}, make([]byte, 100)...),
		"no tags":           {1, 2, 0, 7},
		"no events":         {1, 1, 0, 7, 0},
		"events of nobody":  {1, 1, 0, 7, 0x21},
		"fewer buckets":     {3, 0},
		"a number too long": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		g := newGhosts(512)
		r := &reader{b: raw}
		if g.restore(r); r.err == nil {
			t.Errorf("%s: restored as %d keys", name, g.n)
		}
	}
}

// Rules of equal keys share fingerprints, but not what is remembered of them.
func TestGhostsAreOfOneRule(t *testing.T) {
	key, same := Fingerprint{1, 2}, 0
	first := newLineage("r", 1, &ledger{})
	for i := range 100 {
		if l := newLineage("r", 2+i, &ledger{}); l.tag(key) == first.tag(key) {
			same++
		}
	}
	if same > 2 {
		t.Errorf("%d of 100 lineages have the tag of another one", same)
	}
}

func writtenGhosts(g ghosts) (out []byte) {
	for w, whole := (ghostWriter{ghosts: g}), false; !whole; {
		out, whole = w.appendNext(out)
	}
	return out
}
