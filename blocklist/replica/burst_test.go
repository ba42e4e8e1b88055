package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// burst is an attack: that many new blocks a second, all in one stream, as ENFORCE writes them.
type burst struct {
	s       *blocktest.Stage
	perTick int
	written atomic.Int64
}

const burstTick = 50 * time.Millisecond

func (b *burst) run(ctx context.Context) error {
	ticker := time.NewTicker(burstTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, first := b.s.Clock.Now(), int(b.written.Load())
		raises, deltas := make([]blocklist.Raise, b.perTick), make([]blocklist.Delta, b.perTick)
		for i := range raises {
			n := first + i
			block := blocklist.NewBlock(blocktest.FloodRule, 1, fmt.Sprintf("%032x", 1<<40+n), now, now.Add(time.Hour))
			h := blocklist.Name{Subject: traffic.Subject(fmt.Sprintf("ip=2001%%3Adb8%%3A%x%%3A%x%%3A%%3A%%2F64", 1+n>>16, n&0xffff)), Rule: blocktest.FloodRule}
			raises[i], deltas[i] = blocklist.Raise{Name: h, Block: block}, blocklist.BlockDelta(h, &block)
		}
		if _, err := b.s.Writer.Raise(ctx, raises); err != nil && ctx.Err() == nil {
			return err
		}
		if err := b.s.Writer.Tell(ctx, "0", now, deltas); err != nil && ctx.Err() == nil {
			return err
		}
		b.written.Add(int64(b.perTick))
	}
}

// delays keeps how long changes took to act at a gate.
type delays struct {
	watch *testbed.Stopwatch

	mu    sync.Mutex
	most  map[string]time.Duration
	times int
}

// until measures how long it takes for something to become so after change has been acknowledged, stalls of the machine aside.
func (d *delays) until(t testing.TB, what string, change func(), is func() bool) {
	t.Helper()
	change()
	began := time.Now()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		if <-ticker.C; time.Since(began) > time.Minute {
			t.Fatalf("%s has not acted after a minute", what)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most[what] = max(d.most[what], d.watch.Since(began))
	d.times++
}

// With everything being read from Redis all the time, and thousands of changes a second in the same stream, a new
// block, a release and a demotion act: at night, in the size that is promised, within two seconds. Nothing is missed,
// so nothing is loaded for another reason than time.
func TestGateKeepsUpWithABurstWhileItLoads(t *testing.T) {
	standing, perSecond, lasts := 5000, 500, 3*time.Second
	var server testbed.RedisServer
	if testbed.AtNight() { // the size that is promised, on a server of its own
		standing, perSecond, lasts = 300_000, 5000, 20*time.Second
		server = testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + blocktest.StartRedis(t).Addr + "/0"}
	} else {
		server = testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + testbed.EmbeddedRedis(t).Addr() + "/0"}
	}
	s := blocktest.NewStage(t, server)
	s.Rules.Set("other", rules.ModeBlock)
	s.PublishModes()
	s.Fill(standing)
	b := &burst{s: s, perTick: perSecond * int(burstTick) / int(time.Second)}
	blocktest.Run(t, b.run)
	eventually(t, "under attack", func() bool { return b.written.Load() > int64(perSecond)/2 })
	r, err := New(Options{
		Store: s.Store, Reload: time.Millisecond, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, r.Run)
	// What was told before it began comes with the first load, which begins now as well.
	eventually(t, "following", func() bool { return testutil.ToFloat64(r.metrics.deltas.WithLabelValues(blocklist.OpBlock)) > 0 })

	d := &delays{watch: testbed.StartStopwatch(), most: map[string]time.Duration{}}
	defer d.watch.Stop()
	behind := time.Duration(0)
	from, began := b.written.Load(), time.Now()
	for n := 0; d.watch.Since(began) < lasts || !r.Ready(); n++ {
		measureChanges(t, s, r, d, n)
		behind = max(behind, d.watch.Since(time.Now().Add(-r.Behind())))
	}
	took := d.watch.Since(began)
	rate := float64(b.written.Load()-from) / took.Seconds()
	t.Logf("%.0f new blocks a second for %s beside %d; %v loads; slowest of %d changes: %v; at most %s behind",
		rate, took.Round(time.Second), standing, 1+reloads(r, reloadDue), d.times, d.most, behind.Round(time.Millisecond))
	if testbed.AtNight() {
		for what, most := range d.most {
			if most > 2*time.Second {
				t.Errorf("a %s took %s to act", what, most)
			}
		}
		if behind > 2*time.Second {
			t.Errorf("the gate was %s behind", behind)
		}
	}
	if n := r.allReloads() - reloads(r, reloadDue); n != 0 {
		t.Errorf("%v loads because changes were missed", n)
	}
	if testbed.AtNight() && rate < float64(perSecond)/4 {
		t.Errorf("only %.0f new blocks a second were written: this is no burst", rate)
	}
	if r.Len() < standing {
		t.Errorf("%d blocks held, want %d and those of the burst", r.Len(), standing)
	}
}

// measureChanges writes a block to the busy stream, releases it, and demotes a rule and promotes it again.
func measureChanges(t *testing.T, s *blocktest.Stage, r *Replica, d *delays, n int) {
	t.Helper()
	h := blocklist.Name{Subject: traffic.Subject(fmt.Sprint("device=marker-", n)), Rule: "other"}
	id := traffic.Identity{Device: fmt.Sprint("marker-", n)}
	is := func(want bool) func() bool {
		return func() bool {
			_, held := r.Find(id, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now())
			return held == want
		}
	}
	write := func(op, hit string) func() {
		return func() {
			now := s.Clock.Now()
			block := blocklist.NewBlock(h.Rule, s.Rules.States[h.Rule].Generation, strings.Repeat(hit, 32), now, now.Add(time.Hour))
			value := blocktest.JSONText(&block)
			var err error
			if op == blocklist.OpBlock {
				_, err = s.Writer.Raise(t.Context(), []blocklist.Raise{{Name: h, Block: block}})
			} else {
				tomb := blocklist.NewTombstone(h.Rule, "", now, now.Add(time.Hour))
				value = blocktest.JSONText(&tomb)
				_, err = s.Writer.Release(t.Context(), []blocklist.Release{{Name: h, Tombstone: tomb}})
			}
			err = errors.Join(err, s.Writer.Tell(t.Context(), "0", now, []blocklist.Delta{{Op: op, Name: h, Value: value}}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	d.until(t, "block", write(blocklist.OpBlock, "1"), is(true))
	d.until(t, "release", write(blocklist.OpRelease, "2"), is(false))
	d.until(t, "block", write(blocklist.OpBlock, "3"), is(true))
	d.until(t, "demotion", func() { s.Publish(h.Rule, rules.ModeShadow) }, is(false))
	s.Publish(h.Rule, rules.ModeBlock)
}
