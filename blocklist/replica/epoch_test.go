package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
)

// said is a log that a test reads while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) count(words string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), words)
}

// doubting is a replica of a Redis that may be the wrong one.
type doubting struct {
	*Replica
	log      *said
	registry *prometheus.Registry
}

func newDoubting(t testing.TB, store *blocklist.Store, c *blocktest.Clock) doubting {
	t.Helper()
	d := doubting{log: &said{}, registry: prometheus.NewRegistry()}
	var err error
	log := slog.New(slog.NewTextHandler(d.log, nil))
	d.Replica, err = New(Options{Store: store, Clock: c.Now, Logger: log, Registerer: d.registry})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, d.Run)
	return d
}

// awaits waits until Unready says what is wanted.
func (d doubting) awaits(t testing.TB, what string, is func(err error) bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if err := d.Unready(); !is(err) {
			return fmt.Errorf("%s: unready is %w", what, err)
		}
		return nil
	})
}

// without reports whether err says that there is no epoch, and whether anything else of the namespace is there.
func without(written bool) func(error) bool {
	return func(err error) bool {
		none := (*NoEpochError)(nil)
		return errors.As(err, &none) && none.Written == written
	}
}

func isReady(err error) bool { return err == nil }

// says waits until the log has words, once.
func (d doubting) says(t testing.TB, words string) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if n := d.log.count(words); n != 1 {
			return fmt.Errorf("said %d times: %s", n, words)
		}
		return nil
	})
}

func (d doubting) wantMetric(t testing.TB, want float64) {
	t.Helper()
	if got := blocktest.Metric(t, d.registry, "weir_blocklist_ready"); got != want {
		t.Errorf("weir_blocklist_ready is %v, want %v", got, want)
	}
}

// A Redis without the epoch of the namespace is not ready, and says what it is; the first round of a reconciler that
// has nothing to put back makes it ready. So a gate of a new installation is ready before the first block.
func TestNewInstallationIsReadyBeforeItsFirstBlock(t *testing.T) {
	t.Parallel()
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		d := newDoubting(t, s.Store, s.Clock)
		d.awaits(t, "an empty Redis", without(false))
		d.wantMetric(t, 0)
		if d.Ready() {
			t.Error("an empty Redis is taken for one in which nobody is blocked")
		}
		d.says(t, "level=ERROR")
		if err := reconcilerOf(t, s).Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.awaits(t, "after the first round of the reconciler", isReady)
		d.wantMetric(t, 1)
		d.says(t, "has appeared")
		if d.log.count(s.Namespace) < 2 {
			t.Error("the namespace is not named")
		}
	})
}

// The same server with another database, and the same database with another namespace, hold what the right ones do not.
func TestTheWrongDatabaseOrNamespaceIsNotReady(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	at := func(database int, namespace string) *blocklist.Store {
		url := fmt.Sprintf("redis://user:secret-word@%s/%d", server.Addr(), database)
		store, err := blocklist.Connect(blocklist.Server{URL: url}, namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	server.RequireUserAuth("user", "secret-word")
	if err := at(0, "weir").SetMarker(t.Context(), "reconciler"); err != nil {
		t.Fatal(err)
	}
	clock := &blocktest.Clock{}
	newDoubting(t, at(0, "weir"), clock).awaits(t, "the right place", isReady)
	for _, wrong := range []struct {
		database  int
		namespace string
	}{{5, "weir"}, {0, "wier"}} {
		d := newDoubting(t, at(wrong.database, wrong.namespace), clock)
		d.awaits(t, "the wrong place", without(false))
		err := d.Unready()
		for _, part := range []string{
			server.Addr(), fmt.Sprint("database ", wrong.database), "namespace " + wrong.namespace, wrong.namespace +
				":v1:epoch",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %s", err, part)
			}
		}
		if strings.Contains(err.Error(), "secret-word") || d.log.count("secret-word") > 0 {
			t.Errorf("the password is told: %v", err)
		}
	}
}

// A flush is the reconciler's to repair. A copy that has found the epoch goes on; one that begins between has no proof
// of what it holds, and holds it all the same.
func TestAFlushMakesNobodyDoubtWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	if err := reconcilerOf(t, s).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.PublishModes()
	s.Decide(s.Hit())
	before := newDoubting(t, s.Store, s.Clock)
	before.awaits(t, "before the flush", isReady)
	if err := s.Client.Del(t.Context(), s.Keys.Epoch()).Err(); err != nil {
		t.Fatal(err)
	}
	between := newDoubting(t, s.Store, s.Clock)
	between.awaits(t, "begun after the flush", without(true))
	blocktest.EventuallyHeld(t, between, s.Clock, true)
	if err := before.Unready(); err != nil {
		t.Errorf("a copy from before the flush: %v", err)
	}
	if err := reconcilerOf(t, s).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	between.awaits(t, "once all was put back", isReady)
}

// epochAway answers nothing about the epoch while it is away, as the master of a cluster that has it.
type epochAway struct {
	away  atomic.Bool
	asked atomic.Int64 // in vain
}

var _ redis.Hook = (*epochAway)(nil)

func (*epochAway) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*epochAway) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *epochAway) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "exists" && e.away.Load() {
			e.asked.Add(1)
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

// One master of a cluster may be away with the epoch. What the others have of the namespace is proof enough, and an
// empty answer of theirs is none.
func TestTheEpochsMasterAwayIsNoReasonToDoubtTheOthers(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	hook := &epochAway{}
	hook.away.Store(true)
	s.Client.AddHook(hook)
	d := newDoubting(t, s.Store, s.Clock)
	d.awaits(t, "nothing of the namespace is known", func(err error) bool { return errors.Is(err, errEpochUnanswered) })
	d.says(t, "cannot look for the epoch")
	s.PublishModes()
	d.awaits(t, "its modes are known", isReady)
}

// An epoch that is known to be missing is not there since its server has gone, too.
func TestAMissingEpochIsMissingWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	hook := &epochAway{}
	s.Client.AddHook(hook)
	s.PublishModes()
	d := newDoubting(t, s.Store, s.Clock)
	d.awaits(t, "after a flush", without(true))
	hook.away.Store(true)
	testbed.Eventually(t, 10*time.Second, func() error {
		if n := hook.asked.Load(); n < 2 { // what came of the first one is known
			return fmt.Errorf("asked %d times in vain", n)
		}
		return nil
	})
	if err := d.Unready(); !without(true)(err) {
		t.Errorf("ready for want of an answer: %v", err)
	}
}

// A server that takes the question about the epoch and never answers holds up no block.
func TestAHungQuestionAboutTheEpochHoldsUpNothing(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	hung := &scanGate{command: "exists"}
	s.Client.AddHook(hung)
	defer hung.close()()
	s.PublishModes()
	d := newDoubting(t, s.Store, s.Clock)
	s.Decide(s.Hit())
	blocktest.EventuallyHeld(t, d, s.Clock, true)
	s.Publish(blocktest.FloodRule, "shadow")
	blocktest.EventuallyHeld(t, d, s.Clock, false)
}
