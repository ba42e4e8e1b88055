package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// The rule and the subject of most tests.
const (
	floodRule = "guest-token-flood"
	viewer    = traffic.Subject("ip=192.0.2.1%2F32&device=tv-7")
	ttl       = 10 * time.Minute

	// longDevice is one that a stored subject has as its digest.
	longDevice = "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-"
)

// log stands in for the blocks topic and for history, which keeps each decision once.
type decisionLog struct {
	mu   sync.Mutex
	all  []Decision
	fail error // answered instead, once
}

func (l *decisionLog) Append(_ context.Context, _ int, decisions []Decision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fail; err != nil {
		l.fail = nil
		return err
	}
	l.all = append(l.all, decisions...)
	return nil
}

func (l *decisionLog) ActiveBlocks(_ context.Context, q ActiveQuery) ([]Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []Decision
	for _, d := range l.all {
		if d.Action != ActionWithheld && (d.Action == ActionReleased) == q.Released && (q.After == nil || order(d, *q.After) > 0) {
			page = append(page, d)
		}
	}
	slices.SortFunc(page, order)
	return page[:min(len(page), q.Limit)], nil
}

// order is that of ActiveBlocks.
func order(a, b Decision) int {
	return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(b.ID, a.ID))
}

// take returns what was appended since the last take, in words.
func (l *decisionLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, d := range l.all {
		word := string(d.Action)
		if d.Action == ActionWithheld {
			word += " " + d.Reason
		}
		out = append(out, word)
	}
	l.all = nil
	return out
}

var (
	_ DecisionLog  = (*decisionLog)(nil)
	_ ActiveBlocks = (*decisionLog)(nil)
)

// ruleStore stands in for the rule store.
type ruleStore struct {
	mu    sync.Mutex
	modes map[string]rules.ModeState
	block map[string]*rules.Block // by rule; every version says the same
	fail  error                   // answered by both methods while set
	edit  func(v *rules.Version)  // nil: every version says the same
	hang  bool                    // both methods take the question and never answer, as a frozen server does
}

func (s *ruleStore) Modes(ctx context.Context) ([]rules.ModeState, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []rules.ModeState
	for _, m := range s.modes {
		out = append(out, m)
	}
	return out, s.fail
}

// hangs waits for the end of the caller's patience while the store hangs.
func (s *ruleStore) hangs(ctx context.Context) error {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if !hang {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *ruleStore) freeze(hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = hang
}

func (s *ruleStore) RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.block[id]
	if !ok || s.fail != nil {
		return nil, false, s.fail
	}
	v := &rules.Version{
		Document: rules.Document{ID: id, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute, Block: b}, Number: number,
	}
	if s.edit != nil {
		s.edit(v)
	}
	return v, true, nil
}

func (s *ruleStore) set(rule string, mode rules.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.modes[rule]
	m.Rule, m.Mode, m.Generation = rule, mode, m.Generation+1
	s.modes[rule] = m
}

// answer makes both methods fail with err, or work again.
func (s *ruleStore) answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

var (
	_ Modes        = (*ruleStore)(nil)
	_ RuleVersions = (*ruleStore)(nil)
)

type deadLetters struct{ letters []traffic.DeadLetter }

func (d *deadLetters) Put(_ context.Context, letters []traffic.DeadLetter) error {
	d.letters = append(d.letters, letters...)
	return nil
}

// clock is the real time plus what a test adds: Redis expires keys by the real one.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() traffic.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return traffic.At(time.Now().Add(c.ahead))
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// stage is an Enforcer on a server, with what it needs around it.
type stage struct {
	*Enforcer
	t     testing.TB
	store *Store
	rules *ruleStore
	log   *decisionLog
	dead  *deadLetters
	clock *clock
	next  int64 // offset in the hits log

	probes int
}

func newStage(t testing.TB, server testbed.RedisServer, never ...netip.Prefix) *stage {
	t.Helper()
	store, err := NewStore(server.Client(t), testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		t: t, store: store, log: &decisionLog{}, dead: &deadLetters{}, clock: &clock{},
		rules: &ruleStore{
			modes: map[string]rules.ModeState{floodRule: {Rule: floodRule, Mode: rules.ModeBlock, Generation: 1}},
			block: map[string]*rules.Block{floodRule: {TTL: ttl, Extend: rules.ExtendOnHit}},
		},
	}
	s.restart(never...)
	return s
}

// restart makes the Enforcer anew, as after a crash: it remembers nothing.
func (s *stage) restart(never ...netip.Prefix) {
	s.t.Helper()
	e, err := NewEnforcer(EnforcerOptions{
		Store: s.store, Stream: StreamLive, Topic: "weir.hits", Modes: s.rules, Rules: s.rules, Decisions: s.log, DeadLetters: s.dead,
		NeverBlock: never, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Enforcer = e
}

// hit is an opening hit of viewer, a second after its evidence.
func (s *stage) hit(change ...func(h *detectors.Hit)) detectors.Hit {
	at := s.clock.now().Add(-time.Second)
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: "0123456789abcdef0123456789abcdef", Rule: floodRule, RuleVersion: 1,
		Phase: detectors.PhaseOpen, Subject: viewer, BlockSubject: viewer, First: at, Last: at, Seen: at,
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

// messages makes records of the hits log.
func (s *stage) messages(hits ...detectors.Hit) []traffic.Message {
	s.t.Helper()
	var out []traffic.Message
	for i := range hits {
		value, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			s.t.Fatal(err)
		}
		s.next++
		out = append(out, traffic.Message{Partition: 3, Offset: s.next, Appended: s.clock.now(), Value: value})
	}
	return out
}

// apply gives hits to the Enforcer and returns the decisions.
func (s *stage) apply(hits ...detectors.Hit) []string {
	s.t.Helper()
	s.applyMessages(s.messages(hits...))
	return s.log.take()
}

func (s *stage) applyMessages(batch []traffic.Message) {
	s.t.Helper()
	if err := s.Apply(s.t.Context(), batch); err != nil {
		s.t.Fatal(err)
	}
}

// stands reads viewer's block and tombstone.
func (s *stage) stands() (*Block, *Tombstone) {
	s.t.Helper()
	b, tomb, err := s.store.Get(s.t.Context(), viewer, floodRule)
	if err != nil {
		s.t.Fatal(err)
	}
	return b, tomb
}

func (s *stage) release() detectors.Hit {
	s.t.Helper()
	h, err := NewRelease(viewer, floodRule, "ops", "false alarm", s.clock.now())
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// newReplica starts a replica that is up to date, and stops it with the test.
func (s *stage) replica(t testing.TB) *Replica {
	t.Helper()
	r, err := NewReplica(ReplicaOptions{Store: s.store, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if !r.Ready() {
			return errors.New("replica is not ready")
		}
		return nil
	})
	return r
}

func run(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

var viewerIdentity = traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7"}

// eventuallyHeld waits until r holds viewer, or does not.
func eventuallyHeld(t testing.TB, r *Replica, c *clock, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(viewerIdentity, "POST", "/v1/guest-tokens", c.now()); held != want {
			return fmt.Errorf("held is %v, want %v", held, want)
		}
		return nil
	})
}
