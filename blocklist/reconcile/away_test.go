package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// frozen is a stage on a cluster of three masters, one of which, without the modes, will not answer any more.
type frozen struct {
	*blocktest.Stage
	node   *testbed.RedisNode
	all    bulk
	ofNode int // how many blocks are the frozen one's
}

// freezeOne asserts blocks while all is well, and is about to freeze the first or the second of the masters without the modes.
func freezeOne(t *testing.T, which int) (*frozen, *Reconciler) {
	t.Helper()
	s, nodes := blocktest.ClusterOfItsOwn(t)
	f := &frozen{Stage: s, all: manyBlocks(3000, s.Clock.Now()), node: nodes[1+which]}
	rec := sweeper(t, s, f.all)
	testbed.Eventually(t, 20*time.Second, func() error { return rec.Check(t.Context()) }) // a master that is slow to answer is away, too
	for i := range f.all {
		if f.lost(i) {
			f.ofNode++
		}
	}
	return f, rec
}

// lost reports whether block i is the frozen master's.
func (f *frozen) lost(i int) bool {
	f.T.Helper()
	return f.MasterOf(f.Keys.Block(f.all[i].Subject, blocktest.FloodRule)) == f.node.Addr
}

// on asks the masters that answer.
func (f *frozen) on(ask func(ctx context.Context, node *redis.Client) error) {
	f.T.Helper()
	err := blocktest.EachMaster(f.T.Context(), f.Client, func(ctx context.Context, node *redis.Client) error {
		if node.Options().Addr == f.node.Addr {
			return nil
		}
		return ask(ctx, node)
	})
	if err != nil {
		f.T.Fatal(err)
	}
}

// With a master away that does not have the modes, a demotion takes effect as ever: made by whoever demotes, who may have
// to find the cluster first, and made by the publisher, also where Redis has lost its scripts.
func TestDemotionTakesEffectWithAMasterAway(t *testing.T) {
	for which := range 2 {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			f, rec := freezeOne(t, which)
			p := newPublisher(t, f.Stage)
			blocktest.Run(t, p.Run)
			f.Published(rules.ModeBlock, 1)
			now := f.Clock.Now() // it holds under every generation of this test, so that ENFORCE has nothing to do
			block := blocklist.NewBlock(blocktest.FloodRule, 100, "a", now, now.Add(blocktest.TTL))
			if _, err := f.Writer.Raise(t.Context(), []blocklist.Raise{{Name: blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, Block: block}}); err != nil {
				t.Fatal(err)
			}
			r := newReplica(t, f.Stage)
			blocktest.EventuallyHeld(t, r, f.Clock, true)
			f.node.Freeze()
			testbed.Eventually(t, 10*time.Second, func() error {
				if err := f.Store.PingStreams(t.Context()); err != nil {
					return fmt.Errorf("a weir run that starts now waits for a master that it can do without: %w", err)
				}
				return nil
			})
			blocktest.Run(t, rec.Run)
			f.on(func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() })

			turn := func(mode rules.Mode, held bool, tell func()) {
				t.Helper()
				f.Rules.Set(blocktest.FloodRule, mode)
				begin := time.Now()
				tell()
				testbed.Eventually(t, 8*time.Second, func() error {
					b, got := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, f.Clock.Now())
					if got != held {
						return fmt.Errorf("%s after mode %s held is %v, block %+v", time.Since(begin), mode, got, b)
					}
					return nil
				})
				t.Logf("mode %s took effect after %s", mode, time.Since(begin))
			}
			turn(rules.ModeShadow, false, p.ModesChanged)
			turn(rules.ModeBlock, true, p.ModesChanged)
			turn(rules.ModeShadow, false, func() {
				fresh, err := blocklist.Connect(blocklist.Server{Cluster: []string{f.node.Addr, f.otherAddr()}, Timeout: 2 * time.Second}, f.Namespace)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				modes, err := f.Rules.Modes(ctx)
				if err == nil {
					_, err = fresh.SyncModes(ctx, f.Clock.Now(), modes)
				}
				if err := errors.Join(err, fresh.Close()); err != nil {
					t.Fatalf("published by who demoted: %v", err)
				}
			})
		})
	}
}

func (f *frozen) otherAddr() string {
	f.T.Helper()
	return f.MasterOf(f.Keys.Rules())
}

// What the masters that answer have lost is put back; what the one that does not answer holds is counted as missing, and
// stays owed until it answers: no marker says that Redis holds all.
func TestReconcilerAssertsWhatItCanWithAMasterAway(t *testing.T) {
	for which := range 2 {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			t.Parallel() // each has a cluster of its own, and waits for it
			f, rec := freezeOne(t, which)
			written := func() float64 {
				return testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(blocklist.OutcomeWritten)))
			}
			before, tries := written(), 0
			f.Forget() // all of it, on all three
			f.node.Freeze()
			testbed.Eventually(t, 20*time.Second, func() error { // on a busy machine another master may not answer in time either, and has its blocks with a later round
				tries++
				err := rec.Check(t.Context())
				var unasserted *unassertedError
				if !errors.As(err, &unasserted) || unasserted.missing != f.ofNode || unasserted.all != len(f.all) {
					return fmt.Errorf("round %d with a master away: %w, want %d of %d missing", tries, err, f.ofNode, len(f.all))
				}
				return nil
			})
			if got := testutil.ToFloat64(rec.metrics.unasserted); got != float64(f.ofNode) {
				t.Errorf("the gauge says %v are missing, want %d", got, f.ofNode)
			}
			if got := written() - before; tries == 1 && got != float64(len(f.all)-f.ofNode) {
				t.Errorf("%v blocks written anew, want %d", got, len(f.all)-f.ofNode)
			}
			for i := range f.all {
				if f.lost(i) {
					continue
				}
				if b, _, err := f.Store.Get(t.Context(), f.all[i].Subject, blocktest.FloodRule); err != nil || b == nil {
					t.Fatalf("block %d, of a master that answers: %+v, %v", i, b, err)
				}
			}
			if known, err := f.Store.HasMarker(t.Context()); err == nil && known {
				t.Error("a marker says that Redis holds everything")
			}
			f.node.Thaw()
			testbed.Eventually(t, 20*time.Second, func() error { return rec.Check(t.Context()) })
			if known, err := f.Store.HasMarker(t.Context()); err != nil || !known {
				t.Errorf("there is no marker though everything is asserted: %v", err)
			}
			if got := testutil.ToFloat64(rec.metrics.unasserted); got != 0 {
				t.Errorf("the gauge says %v are missing", got)
			}
			for i := range f.all {
				if b, _, err := f.Store.Get(t.Context(), f.all[i].Subject, blocktest.FloodRule); err != nil || b == nil {
					t.Fatalf("block %d: %+v, %v", i, b, err)
				}
			}
		})
	}
}
