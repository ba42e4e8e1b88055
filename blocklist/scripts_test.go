package blocklist

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// slotModel says in plain words what one block key may do.
type slotModel struct {
	block     *Block
	tombstone *Tombstone
}

func (m *slotModel) raise(b Block, extendOnly bool) Outcome {
	if t := m.tombstone; t != nil && (b.Since <= t.Released || b.Hit == t.Hit) {
		return OutcomeReleased
	}
	old := m.block
	switch {
	case old != nil && old.Generation > b.Generation:
		return OutcomeStale
	case old == nil || old.Generation < b.Generation:
		if extendOnly {
			return OutcomeAbsent
		}
		m.block = &b
		return OutcomeWritten
	case old.Until == b.Until && old.Hit == b.Hit:
		if old.Extended {
			return OutcomeSameExtended
		}
		return OutcomeSame
	case old.Until >= b.Until:
		return OutcomeUnchanged
	}
	b.Extended = true
	m.block = &b
	return OutcomeExtended
}

func (m *slotModel) release(t Tombstone, covered bool) Released {
	if old := m.tombstone; old != nil && old.Released >= t.Released {
		what := OutcomeUnchanged
		if old.Released == t.Released {
			what = OutcomeSame
		}
		return Released{Outcome: what, Hit: old.Hit, StoodUntil: old.StoodUntil}
	}
	if b := m.block; b != nil && (!covered || b.Since <= t.Released || b.Hit == t.Hit) {
		m.block = nil
		if t.Hit == "" {
			t.Hit, t.StoodUntil = b.Hit, b.Until
		}
	}
	m.tombstone = &t
	return Released{Outcome: OutcomeReleased, Hit: t.Hit, StoodUntil: t.StoodUntil}
}

func TestScriptsDoWhatTheModelSays(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		store, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			run++
			key := Name{Subject: traffic.Subject(fmt.Sprintf("device=d%d", run)), Rule: someRule}
			base := traffic.At(time.Now())
			model := &slotModel{}
			rt.Repeat(map[string]func(*rapid.T){
				"raise": func(rt *rapid.T) {
					r := Raise{Name: key, Block: drawBlock(rt, base), ExtendOnly: rapid.Bool().Draw(rt, "extend only")}
					got, err := NewWriter(store).Raise(t.Context(), []Raise{r})
					if err != nil {
						rt.Fatal(err)
					}
					if want := model.raise(r.Block, r.ExtendOnly); got[0] != want {
						rt.Fatalf("raise %+v: got %s, want %s", r, got[0], want)
					}
				},
				"release": func(rt *rapid.T) {
					r := Release{Name: key, Tombstone: drawTombstone(rt, base), Covered: rapid.Bool().Draw(rt, "covered")}
					got, err := NewWriter(store).Release(t.Context(), []Release{r})
					if err != nil {
						rt.Fatal(err)
					}
					if want := model.release(r.Tombstone, r.Covered); got[0] != want {
						rt.Fatalf("release %+v: got %+v, want %+v", r, got[0], want)
					}
				},
				"": func(rt *rapid.T) { model.compare(rt, t, store, key) },
			})
		})
	})
}

func (m *slotModel) compare(rt *rapid.T, t *testing.T, store *Store, key Name) {
	block, tombstone, err := store.Get(t.Context(), key.Subject, key.Rule)
	if err != nil {
		rt.Fatal(err)
	}
	if (block == nil) != (m.block == nil) || block != nil && *block != *m.block {
		rt.Fatalf("block: got %+v, want %+v", block, m.block)
	}
	if (tombstone == nil) != (m.tombstone == nil) || tombstone != nil && *tombstone != *m.tombstone {
		rt.Fatalf("tombstone: got %+v, want %+v", tombstone, m.tombstone)
	}
}

// Whatever order things have come in before: once a round of the reconciler has passed, tombstones first and then blocks
// in any order, the end is the same.
func TestAssertingEndsTheSame(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		store, err := NewStore(server.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		run := 0
		rapid.Check(t, func(rt *rapid.T) {
			base := traffic.At(time.Now())
			blocks := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) Block { return drawBlock(rt, base) }), 1, 5).Draw(rt, "blocks")
			for i := range blocks {
				blocks[i].Since = base.Add(time.Duration(blocks[i].Hit[31]-'0') * 2 * time.Second) // of a hit, not of a record
			}
			tomb := drawTombstone(rt, base)
			var ends [2]string
			for round := range ends {
				run++
				key := Name{Subject: traffic.Subject(fmt.Sprintf("device=o%d", run)), Rule: someRule}
				put := func() error {
					_, err := NewWriter(store).Release(t.Context(), []Release{{Name: key, Tombstone: tomb, Covered: true}})
					return err
				}
				var steps []func() error
				for _, b := range blocks {
					steps = append(steps, func() error {
						_, err := NewWriter(store).Raise(t.Context(), []Raise{{Name: key, Block: b}})
						return err
					})
				}
				before := append([]func() error{put}, steps...)
				shuffle := func(list []func() error) {
					rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				}
				shuffle(before)
				shuffle(steps)
				for _, step := range append(append(before, put), steps...) {
					if err := step(); err != nil {
						rt.Fatal(err)
					}
				}
				ends[round] = endOf(rt, t, store, key)
			}
			if ends[0] != ends[1] {
				rt.Fatalf("two orders end differently:\n%s\n%s", ends[0], ends[1])
			}
		})
	})
}

// endOf is what a gate would make of the key. Of two hits with the same expiry either may stand.
func endOf(rt *rapid.T, t *testing.T, store *Store, key Name) string {
	block, tombstone, err := store.Get(t.Context(), key.Subject, key.Rule)
	if err != nil {
		rt.Fatal(err)
	}
	out := "released"
	if tombstone == nil {
		rt.Fatal("there is no tombstone")
	}
	if block != nil {
		out += fmt.Sprintf(", blocked for %s in generation %d", block.Until.Sub(tombstone.Released), block.Generation)
	}
	return out
}

// A server that is older than Redis 7 refuses a script's first line. Whoever finds out together with others goes on, too.
func TestManyFindOutAtOnceThatAServerKnowsNoFlags(t *testing.T) {
	for range 20 {
		server := miniredis.RunT(t)
		store, err := NewStore(testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"}.Client(t), testbed.Namespace(t))
		if err != nil {
			t.Fatal(err)
		}
		testbed.Record(t, testbed.RedisKind, testbed.Embedded)
		var beside sync.WaitGroup
		for range 8 {
			beside.Go(func() {
				if err := NewWriter(store).AddShapes(t.Context(), []Name{{Subject: someSubject, Rule: someRule}}); err != nil {
					t.Error(err)
				}
			})
		}
		beside.Wait()
	}
}

func drawBlock(t *rapid.T, base traffic.Time) Block {
	since := base.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "since")) * time.Second)
	return Block{
		Format: ValueFormat, Action: actionBlock, Scope: scopeMatch, Rule: someRule,
		Generation: int64(rapid.IntRange(1, 3).Draw(t, "generation")), Hit: fmt.Sprintf("%032x", rapid.IntRange(1, 3).Draw(t, "hit")),
		Since: since, Until: base.Add(time.Hour + time.Duration(rapid.IntRange(0, 5).Draw(t, "until"))*time.Second),
	}
}

func drawTombstone(t *rapid.T, base traffic.Time) Tombstone {
	at := base.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "released")) * time.Second)
	tomb := Tombstone{Format: ValueFormat, Action: actionRelease, Rule: someRule, Released: at, Until: at.Add(2 * time.Hour), By: "ops"}
	if rapid.Bool().Draw(t, "with hit") {
		tomb.Hit = fmt.Sprintf("%032x", rapid.IntRange(1, 3).Draw(t, "released hit"))
	}
	return tomb
}
