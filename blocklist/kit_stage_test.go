package blocklist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The rule and the subject of most tests.
const (
	floodRule = "guest-token-flood"
	viewer    = traffic.Subject("ip=192.0.2.1%2F32&device=tv-7")
	ttl       = 10 * time.Minute

	// longDevice is one that a stored subject has as its digest.
	longDevice = "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-"
)

// stage is an Enforcer on a server, with what it needs around it.
type stage struct {
	*Enforcer
	t         testing.TB
	store     *Store
	client    redis.UniversalClient // store's
	keys      Keys                  // store's
	namespace string
	server    Server       // for reconnect
	writer    *Writer      // of store, beside the Enforcer's
	logger    *slog.Logger // of the Enforcer, from the next restart on
	rules     *ruleStore
	log       *decisionLog
	dead      *deadLetters
	clock     *clock
	next      int64 // offset in the hits log

	registry *prometheus.Registry // of the Enforcer
}

func newStage(t testing.TB, server testbed.RedisServer, never ...netip.Prefix) *stage {
	t.Helper()
	client, namespace := server.Client(t), testbed.Namespace(t)
	store, err := NewStore(client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys(namespace)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		t: t, store: store, client: client, keys: keys, namespace: namespace, writer: NewWriter(store), logger: quiet(), log: &decisionLog{}, dead: &deadLetters{}, clock: &clock{},
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
	s.registry = prometheus.NewRegistry()
	e, err := NewEnforcer(EnforcerOptions{
		Store: s.store, Stream: StreamLive, Topic: "weir.hits", Modes: s.rules, Rules: s.rules, Decisions: s.log, DeadLetters: s.dead,
		NeverBlock: never, Clock: s.clock.now, Logger: s.logger, Registerer: s.registry,
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
func eventuallyHeld(t testing.TB, r finder, c *clock, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(viewerIdentity, "POST", "/v1/guest-tokens", c.now()); held != want {
			return fmt.Errorf("held is %v, want %v", held, want)
		}
		return nil
	})
}

func (s *stage) publish(rule string, mode rules.Mode) {
	s.t.Helper()
	s.rules.set(rule, mode)
	s.publishModes()
}

func (s *stage) publishModes() {
	s.t.Helper()
	modes, err := s.rules.Modes(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.store.PublishModes(s.t.Context(), s.clock.now(), modes); err != nil {
		s.t.Fatal(err)
	}
	s.ModesChanged()
}

// forget removes everything of the namespace, as a flush does. The marker goes last: a flush is atomic, this is not, and a
// reconciler that begins to put things back must not see them deleted after.
func (s *stage) forget() {
	s.t.Helper()
	marker := s.keys.Epoch()
	err := eachMaster(s.t.Context(), s.client, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, s.namespace+":*", 1000).Iterator()
		for keys.Next(ctx) {
			if keys.Val() == marker {
				continue
			}
			if err := node.Del(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		return keys.Err()
	})
	if err == nil {
		err = s.client.Del(s.t.Context(), marker).Err()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// published waits until Redis holds the mode.
func (s *stage) published(mode rules.Mode, generation int64) {
	s.t.Helper()
	testbed.Eventually(s.t, 10*time.Second, func() error {
		modes, err := s.store.Modes(s.t.Context())
		if err == nil && (len(modes) != 1 || modes[0].Mode != mode || modes[0].Generation != generation) {
			err = errors.New("not published")
		}
		return err
	})
}

// fill writes n blocks that no delta tells of.
func (s *stage) fill(n int) {
	s.t.Helper()
	now := s.clock.now()
	raises := make([]raise, n)
	for i := range raises {
		raises[i] = raise{held: held{traffic.Subject(fmt.Sprint("device=", i)), floodRule}, block: NewBlock(floodRule, 1, fmt.Sprintf("%032x", i), now, now.Add(time.Hour))}
	}
	if _, err := s.writer.raiseAll(s.t.Context(), raises); err != nil {
		s.t.Fatal(err)
	}
}

// within runs do and fails when it takes longer than a second.
func withinASecond(t *testing.T, what string, do func()) {
	t.Helper()
	began := time.Now()
	if do(); time.Since(began) > time.Second {
		t.Errorf("%s took %s", what, time.Since(began).Round(time.Millisecond))
	}
}

// finder is what a gate asks: a replica.
type finder interface {
	Find(id traffic.Identity, method, path string, now traffic.Time) (Block, bool)
}

// replica is a copy of the blocks that a test runs.
type running interface {
	Run(ctx context.Context) error
	Ready() bool
}

// follow runs a replica until the test ends, and waits until it has loaded the blocks.
func follow(t testing.TB, r running) {
	t.Helper()
	run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if !r.Ready() {
			return errors.New("replica is not ready")
		}
		return nil
	})
}

// metric is the value of one of a registry's counters or gauges with these label values; 0 where there is none.
func metric(t testing.TB, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if len(labels) == 0 || slices.Equal(values, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (s *stage) metric(name string, labels ...string) float64 {
	return metric(s.t, s.registry, name, labels...)
}

// jsonText is how a value stands in Redis.
func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
