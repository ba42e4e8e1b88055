package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/internal/recent"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// bulk is a history of many blocks, in the order of ActiveBlocks. Decision i has the id of i in 32 digits.
type bulk []blocklist.Decision

var _ ActiveBlocks = bulk(nil)

// manyBlocks are n blocks of addresses of their own.
func manyBlocks(n int, now traffic.Time) bulk {
	all := make(bulk, n)
	for i := range all {
		all[i] = oneBlock(i, now)
	}
	return all
}

// oneBlock is block i of many.
func oneBlock(i int, now traffic.Time) blocklist.Decision {
	return blocklist.Decision{
		Format: blocklist.DecisionFormat, ID: fmt.Sprintf("%032d", i), Action: blocklist.ActionWritten, Rule: blocktest.FloodRule,
		Subject: traffic.Subject(fmt.Sprintf("ip=10.%d.%d.%d%%2F32&device=tv-%d", i>>16&255, i>>8&255, i&255, i)),
		Hit:     fmt.Sprintf("%032x", i), Generation: 1, Since: now.Add(-time.Minute), Until: now.Add(time.Hour - time.Duration(i)*time.Microsecond), At: now,
	}
}

// updated gives each block of b rows that all lie ahead, as updates of its episode write: the rows of one are as far apart as
// there are blocks, and the first has the last expiry.
func (b bulk) updated(rows int) bulk {
	all := make(bulk, 0, rows*len(b))
	for row := range rows {
		for _, d := range b {
			d.ID = fmt.Sprintf("%032d", len(all))
			d.Until = d.Until.Add(-time.Duration(row) * time.Minute)
			if row < rows-1 {
				d.Action = blocklist.ActionExtended
			}
			all = append(all, d)
		}
	}
	return all
}

// ActiveBlocks gives a page.
func (b bulk) ActiveBlocks(_ context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	next, err := nextOf(q)
	if err != nil || q.Released {
		return nil, err
	}
	return b[next:min(next+q.Limit, len(b))], nil
}

// nextOf is the first block of the page that q asks for.
func nextOf(q blocklist.ActiveQuery) (next int, err error) {
	if q.After == nil {
		return 0, nil
	}
	_, err = fmt.Sscanf(q.After.ID, "%d", &next)
	return next + 1, err
}

// unending is a history of least blocks, and of more for as long as nobody has seen enough: however fast they are asserted, it goes on.
type unending struct {
	least  int
	now    traffic.Time
	enough atomic.Bool
	given  atomic.Int64
}

var _ ActiveBlocks = (*unending)(nil)

// ActiveBlocks gives a page.
func (u *unending) ActiveBlocks(_ context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	next, err := nextOf(q)
	if err != nil || q.Released || next >= u.least && u.enough.Load() {
		return nil, err
	}
	page := make([]blocklist.Decision, q.Limit)
	for i := range page {
		page[i] = oneBlock(next+i, u.now)
	}
	u.given.Store(int64(next + len(page)))
	return page, nil
}

// sweeper is a reconciler of many blocks, which nobody runs yet.
func sweeper(t *testing.T, s *blocktest.Stage, active ActiveBlocks) *Reconciler {
	t.Helper()
	r, err := New(Options{
		Store: s.Store, Modes: s.Rules, Active: active, Clock: s.Clock.Now,
		Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.interval, r.sweep = 20*time.Millisecond, time.Hour
	return r
}

// crowded is a stage, and how many blocks a test of many is to have at least: at night as many as in a great attack on
// a real server, which the test has for itself; fewer in a landing, and on the embedded one. An assertion that has no
// end proves the same over few as over many.
func crowded(t *testing.T) (*blocktest.Stage, int) {
	t.Helper()
	if os.Getenv(testbed.RedisKind.Env()) == "" {
		return blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)}), 10_000
	}
	n := 30_000
	if testbed.AtNight() {
		n = 300_000
	}
	return blocktest.NewStage(t, testbed.OwnRedis(t).Server()), n
}

// However many blocks are being asserted, a release and a demotion do not wait for them.
func TestTheWayOutIsOpenWhileAllBlocksAreAsserted(t *testing.T) {
	s, n := crowded(t)
	p := newPublisher(t, s)
	blocktest.Run(t, p.Run)
	s.Published(rules.ModeBlock, 1)
	other := traffic.Identity{IP: blocktest.ViewerIdentity.IP, Device: "tv-8"}
	s.ApplyMessages(s.Messages(s.Hit(), s.Hit(func(h *detectors.Hit) {
		h.ID, h.BlockSubject = "fedcba9876543210fedcba9876543210", "ip=192.0.2.1%2F32&device=tv-8"
		h.Subject = h.BlockSubject
	})))
	r := newReplica(t, s)
	holds := func(id traffic.Identity) bool {
		_, held := r.Find(id, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now())
		return held
	}
	passes := func(what string, id traffic.Identity, act func()) {
		t.Helper()
		act()
		testbed.Eventually(t, time.Minute, func() error { // while the assertion goes on, which has no end before all.enough
			if holds(id) {
				return fmt.Errorf("after the %s the gate still holds", what)
			}
			return nil
		})
	}
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	if !holds(other) {
		t.Fatal("the other client is not held")
	}

	all := &unending{least: n, now: s.Clock.Now()}
	rec := sweeper(t, s, all)
	done := make(chan error, 1)
	go func() { done <- rec.Check(t.Context()) }()
	testbed.Eventually(t, time.Minute, func() error {
		if compared := testutil.ToFloat64(rec.metrics.compared); compared < float64(n)/20 {
			return fmt.Errorf("%v blocks asserted", compared)
		}
		return nil
	})
	passes("release", blocktest.ViewerIdentity, func() { s.ApplyMessages(s.Messages(s.Release())) })
	if !holds(other) {
		t.Fatal("the other client is released too")
	}
	passes("demotion", other, func() {
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow) // weir rules demote, where Redis did not answer the command itself
		p.ModesChanged()
	})
	select {
	case err := <-done:
		t.Fatalf("the assertion of blocks without end has ended: %v", err)
	default:
	}
	all.enough.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(blocklist.OutcomeWritten))), float64(all.given.Load()); got != want || want < float64(n) {
		t.Errorf("%v blocks written, want %v, and %d at least", got, want, n)
	}
}

// evals counts the script calls of a client, by what the script is for.
type evals struct {
	counts map[string]int
}

var _ redis.Hook = (*evals)(nil)

// DialHook changes nothing.
func (e *evals) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a single call.
func (e *evals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.count(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts those of a pipeline.
func (e *evals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			e.count(cmd)
		}
		return next(ctx, cmds)
	}
}

func (e *evals) count(cmd redis.Cmder) {
	if args := cmd.Args(); len(args) > 1 && strings.HasPrefix(cmd.Name(), "evalsha") {
		switch key := fmt.Sprint(args[min(3, len(args)-1)]); { // EVALSHA hash numkeys key…
		case strings.Contains(key, ":block:") && len(args) == 3+2+8:
			e.counts["raise"]++
		case strings.Contains(key, ":block:") && len(args) == 3+2+4:
			e.counts["release"]++
		}
	}
}

// A sweep over blocks that stand writes nothing, and one over some that are lost, or shorter, writes those.
func TestSweepWritesOnlyWhatDiffers(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		server.Patient = true // thousands of scripts in a pipeline: a busy machine takes its time
		s := blocktest.NewStage(t, server)
		all := manyBlocks(2*sliceSize+500, s.Clock.Now())
		rec := sweeper(t, s, all)
		check := func() {
			t.Helper()
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check()
		counter := &evals{counts: map[string]int{}}
		s.Client.AddHook(counter)
		sweep := func(raises int) {
			t.Helper()
			if err := s.Client.Del(t.Context(), s.Keys.Lease()).Err(); err != nil {
				t.Fatal(err)
			}
			clear(counter.counts)
			before := testutil.ToFloat64(rec.metrics.compared)
			check()
			if got := counter.counts["raise"]; got != raises || counter.counts["release"] != 0 {
				t.Errorf("%v script calls in a sweep, want %d raises", counter.counts, raises)
			}
			if got := testutil.ToFloat64(rec.metrics.compared) - before; got != float64(len(all)) {
				t.Errorf("%v blocks compared, want %d", got, len(all))
			}
		}
		sweep(0)
		lost := func(i int) {
			t.Helper()
			if err := s.Client.Del(t.Context(), s.Keys.Block(all[i].Subject, blocktest.FloodRule)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		lost(0)
		lost(sliceSize)
		lost(len(all) - 1)
		shorter := blocklist.Raise{Name: blocklist.Name{Subject: all[7].Subject, Rule: blocktest.FloodRule}, Block: blocklist.NewBlock(blocktest.FloodRule, 1, all[7].Hit, all[7].Since, all[7].Until.Add(-time.Minute))}
		lost(7)
		if _, err := s.Writer.Raise(t.Context(), []blocklist.Raise{shorter}); err != nil {
			t.Fatal(err)
		}
		sweep(4)
		for i := range all {
			if i%500 != 0 && i != 7 && i != len(all)-1 {
				continue
			}
			b, _, err := s.Store.Get(t.Context(), all[i].Subject, blocktest.FloodRule)
			if err != nil || b == nil || b.Until != all[i].Until {
				t.Errorf("block %d: %+v, %v, want until %s", i, b, err, all[i].Until)
			}
		}
		sweep(0)
	})
}

// A block that has been extended is many decisions. It is compared once in a round, with the one that lasts longest, and is
// one of those that a round leaves out.
func TestSweepComparesABlockOnce(t *testing.T) {
	const rows = 5
	check := func(t *testing.T, s *blocktest.Stage, blocks bulk, sweep func() (compared, changes int)) {
		t.Helper()
		for round, changed := range []int{len(blocks), 0} {
			compared, changes := sweep()
			if compared != len(blocks) || changes != changed {
				t.Errorf("round %d: %d compared, %d changed; want %d and %d", round, compared, changes, len(blocks), changed)
			}
		}
		for i := 0; i < len(blocks); i += 97 {
			b, _, err := s.Store.Get(t.Context(), blocks[i].Subject, blocktest.FloodRule)
			if err != nil || b == nil || b.Until != blocks[i].Until {
				t.Fatalf("block %d: %+v, %v, want until %s", i, b, err, blocks[i].Until)
			}
		}
	}
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		server.Patient = true // thousands of scripts in a pipeline: a busy machine takes its time
		s := blocktest.NewStage(t, server)
		blocks := manyBlocks(2*sliceSize+500, s.Clock.Now())
		rec := sweeper(t, s, blocks.updated(rows))
		check(t, s, blocks, func() (int, int) {
			if err := s.Client.Del(t.Context(), s.Keys.Lease()).Err(); err != nil {
				t.Fatal(err)
			}
			compared, changes := testutil.ToFloat64(rec.metrics.compared), testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(blocklist.OutcomeWritten)))
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			return int(testutil.ToFloat64(rec.metrics.compared) - compared),
				int(testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(blocklist.OutcomeWritten))) - changes)
		})
	})
	t.Run("more than are remembered", func(t *testing.T) {
		s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
		blocks := manyBlocks(3*sliceSize, s.Clock.Now())
		rec := sweeper(t, s, blocks.updated(rows))
		check(t, s, blocks, func() (int, int) {
			modes, err := s.Rules.Modes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a := rec.newAssertion(causeSweep, modes)
			a.raised = recent.NewSet(sliceSize)
			if err := a.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a.compared != rows*len(blocks) {
				t.Errorf("%d compared, want all %d: nothing was forgotten, and the test shows nothing", a.compared, rows*len(blocks))
			}
			return a.compared / rows, a.changes
		})
	})
	t.Run("a full Redis", func(t *testing.T) {
		s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
		blocks := manyBlocks(2*sliceSize, s.Clock.Now())
		rec := sweeper(t, s, blocks.updated(rows))
		blocktest.Full(t, s)
		var left *unassertedError
		if err := rec.Check(t.Context()); !errors.As(err, &left) || left.missing != len(blocks) || left.all != len(blocks) {
			t.Errorf("%v, want %d of %[2]d that could not be asserted", err, len(blocks))
		}
	})
}

// The reconciler counts a block that a full Redis refuses as missing, and once.
func TestReconcilerCountsOnceWhatAFullRedisRefuses(t *testing.T) {
	s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
	all := manyBlocks(50, s.Clock.Now())
	rec := sweeper(t, s, all)
	blocktest.Full(t, s)
	var left *unassertedError
	if err := rec.Check(t.Context()); !errors.As(err, &left) || left.missing != len(all) || left.all != len(all) {
		t.Errorf("%v, want %d of %[2]d that could not be asserted", err, len(all))
	}
	if got := testutil.ToFloat64(rec.metrics.unasserted); got != float64(len(all)) {
		t.Errorf("the gauge says %v are missing, want %d", got, len(all))
	}
}
