package blocklist

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// frozen is a stage on a cluster of three masters, one of which, without the modes, will not answer any more.
type frozen struct {
	*stage
	node   *testbed.RedisNode
	all    bulk
	ofNode int // how many blocks are the frozen one's
}

// freezeOne asserts blocks while all is well, and is about to freeze the first or the second of the masters without the modes.
func freezeOne(t *testing.T, which int) (*frozen, *Reconciler) {
	t.Helper()
	s, nodes := clusterOfItsOwn(t)
	f := &frozen{stage: s, all: manyBlocks(3000, s.clock.now()), node: nodes[1+which]}
	rec := sweeper(t, s, f.all)
	if err := rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range f.all {
		if f.lost(i) {
			f.ofNode++
		}
	}
	return f, rec
}

// lost reports whether block i is the frozen master's.
func (f *frozen) lost(i int) bool {
	f.t.Helper()
	return f.masterOf(f.keys.Block(f.all[i].Subject, floodRule)) == f.node.Addr
}

// on asks the masters that answer.
func (f *frozen) on(ask func(ctx context.Context, node *redis.Client) error) {
	f.t.Helper()
	err := eachMaster(f.t.Context(), f.client, func(ctx context.Context, node *redis.Client) error {
		if node.Options().Addr == f.node.Addr {
			return nil
		}
		return ask(ctx, node)
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// With a master away that does not have the modes, a demotion takes effect as ever: made by whoever demotes, who may have
// to find the cluster first, and made by the publisher, also where Redis has lost its scripts.
func TestDemotionTakesEffectWithAMasterAway(t *testing.T) {
	for which := range 2 {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			f, rec := freezeOne(t, which)
			p := newPublisher(t, f.stage)
			run(t, p.Run)
			f.published(rules.ModeBlock, 1)
			now := f.clock.now() // it holds under every generation of this test, so that ENFORCE has nothing to do
			block := NewBlock(floodRule, 100, "a", now, now.Add(ttl))
			if _, err := f.writer.raiseAll(t.Context(), []raise{{held: held{subject: viewer, rule: floodRule}, block: block}}); err != nil {
				t.Fatal(err)
			}
			r := newReplicaR(t, f.stage)
			eventuallyHeld(t, r, f.clock, true)
			f.node.Freeze()
			if err := f.store.PingStreams(t.Context()); err != nil {
				t.Errorf("a weir run that starts now waits for a master that it can do without: %v", err)
			}
			run(t, rec.Run)
			f.on(func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() })

			turn := func(mode rules.Mode, held bool, tell func()) {
				t.Helper()
				f.rules.set(floodRule, mode)
				begin := time.Now()
				tell()
				testbed.Eventually(t, 8*time.Second, func() error {
					b, got := r.Find(viewerIdentity, "POST", "/v1/guest-tokens", f.clock.now())
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
				fresh, err := Connect(Server{Cluster: []string{f.node.Addr, f.otherAddr()}, Timeout: 500 * time.Millisecond}, "weir")
				if err != nil {
					t.Fatal(err)
				}
				fresh.keys = f.keys
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				modes, err := f.rules.Modes(ctx)
				if err == nil {
					_, err = fresh.SyncModes(ctx, f.clock.now(), modes)
				}
				if err := errors.Join(err, fresh.Close()); err != nil {
					t.Fatalf("published by who demoted: %v", err)
				}
			})
		})
	}
}

func (f *frozen) otherAddr() string {
	f.t.Helper()
	return f.masterOf(f.keys.Rules())
}

// What the masters that answer have lost is put back; what the one that does not answer holds is counted as missing, and
// stays owed until it answers: no marker says that Redis holds all.
func TestReconcilerAssertsWhatItCanWithAMasterAway(t *testing.T) {
	for which := range 2 {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			f, rec := freezeOne(t, which)
			f.forget() // all of it, on all three
			f.node.Freeze()
			err := rec.Check(t.Context())
			var unasserted *unassertedError
			if !errors.As(err, &unasserted) || unasserted.missing != f.ofNode || unasserted.all != len(f.all) {
				t.Fatalf("Check with a master away: %v, want %d of %d missing", err, f.ofNode, len(f.all))
			}
			if got := testutil.ToFloat64(rec.metrics.unasserted); got != float64(f.ofNode) {
				t.Errorf("the gauge says %v are missing, want %d", got, f.ofNode)
			}
			if got := testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(outcomeWritten))); got != float64(2*len(f.all)-f.ofNode) {
				t.Errorf("%v blocks written, want %d, and %d anew", got, len(f.all), len(f.all)-f.ofNode)
			}
			if known, err := f.store.HasMarker(t.Context()); err == nil && known {
				t.Error("a marker says that Redis holds everything")
			}
			f.node.Thaw()
			testbed.Eventually(t, 20*time.Second, func() error { return rec.Check(t.Context()) })
			if known, err := f.store.HasMarker(t.Context()); err != nil || !known {
				t.Errorf("there is no marker though everything is asserted: %v", err)
			}
			if got := testutil.ToFloat64(rec.metrics.unasserted); got != 0 {
				t.Errorf("the gauge says %v are missing", got)
			}
			for i := range f.all {
				if b, _, err := f.store.Get(t.Context(), f.all[i].Subject, floodRule); err != nil || b == nil {
					t.Fatalf("block %d: %+v, %v", i, b, err)
				}
			}
		})
	}
}
