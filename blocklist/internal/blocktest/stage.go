// Package blocktest has what the tests of blocklist's packages share: an Enforcer on a server with stand-ins around it, and servers
// that a test has for itself.
package blocktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The rule and the subject of most tests.
const (
	FloodRule = "guest-token-flood"
	Viewer    = traffic.Subject("ip=192.0.2.1%2F32&device=tv-7")
	TTL       = 10 * time.Minute

	// LongDevice is one that a stored subject has as its digest.
	LongDevice = "0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-"
)

// Stage is an Enforcer on a server, with what it needs around it.
type Stage struct {
	*enforce.Enforcer
	T         testing.TB
	Store     *blocklist.Store
	Client    redis.UniversalClient // of Store, until Reconnect
	Keys      blocklist.Keys        // of Store
	Namespace string
	Server    blocklist.Server  // for Reconnect
	Writer    *blocklist.Writer // of Store, beside the Enforcer's
	Logger    *slog.Logger      // of the Enforcer, from the next Restart on
	Rules     *ruleStore
	Log       *decisionLog
	Dead      *deadLetters
	Clock     *Clock
	Grouped   bool             // the Enforcer counts the blocks of the partitions that it is assigned, from the next Restart on; otherwise of all
	OpenHits  enforce.OpenHits // of the Enforcer, from the next Restart on; nil for none
	Orders    enforce.Orders   // likewise
	next      int64            // offset in the hits log

	registry *prometheus.Registry // of the Enforcer
}

// Secret is that of every Stage's installation.
const Secret = "secret of the tests"

// NewStage makes a Stage on server, in a namespace of its own, whose rule FloodRule blocks.
func NewStage(t testing.TB, server testbed.RedisServer, never ...netip.Prefix) *Stage {
	t.Helper()
	client, namespace := server.Client(t), testbed.Namespace(t)
	store, err := blocklist.NewStore(client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := blocklist.NewKeys(namespace)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stage{
		T: t, Store: store, Client: client, Keys: keys, Namespace: namespace, Writer: blocklist.NewWriter(store), Logger: Quiet(), Log: &decisionLog{}, Dead: &deadLetters{}, Clock: &Clock{},
		Rules: &ruleStore{
			States: map[string]rules.ModeState{FloodRule: {Rule: FloodRule, Mode: rules.ModeBlock, Generation: 1}},
			Block:  map[string]*rules.Block{FloodRule: {TTL: TTL, Extend: rules.ExtendOnHit}},
		},
	}
	s.Restart(never...)
	return s
}

// Restart makes the Enforcer anew, as after a crash: it remembers nothing.
func (s *Stage) Restart(never ...netip.Prefix) {
	s.T.Helper()
	s.registry = prometheus.NewRegistry()
	e, err := enforce.New(enforce.Options{
		Store: s.Store, Stream: blocklist.StreamLive, Topic: "weir.hits", Modes: s.Rules, Rules: s.Rules, Decisions: s.Log, DeadLetters: s.Dead,
		NeverBlock: never, Secret: []byte(Secret), OpenHits: s.OpenHits, Orders: s.Orders, AllPartitions: !s.Grouped,
		Clock: s.Clock.Now, Logger: s.Logger, Registerer: s.registry,
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.Enforcer = e
}

// Hit is an opening hit of Viewer, a second after its evidence.
func (s *Stage) Hit(change ...func(h *detectors.Hit)) detectors.Hit {
	at := s.Clock.Now().Add(-time.Second)
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: "0123456789abcdef0123456789abcdef", Rule: FloodRule, RuleVersion: 1,
		Phase: detectors.PhaseOpen, Subject: Viewer, BlockSubject: Viewer, First: at, Last: at, Seen: at,
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

// Messages makes records of the hits log.
func (s *Stage) Messages(hits ...detectors.Hit) []traffic.Message {
	s.T.Helper()
	var out []traffic.Message
	for i := range hits {
		value, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			s.T.Fatal(err)
		}
		s.next++
		out = append(out, traffic.Message{Partition: 3, Offset: s.next, Appended: s.Clock.Now(), Value: value})
	}
	return out
}

// Decide gives hits to the Enforcer and returns the decisions.
func (s *Stage) Decide(hits ...detectors.Hit) []string {
	s.T.Helper()
	s.ApplyMessages(s.Messages(hits...))
	return s.Log.Take()
}

// ApplyMessages gives records to the Enforcer, which must take them.
func (s *Stage) ApplyMessages(batch []traffic.Message) {
	s.T.Helper()
	if err := s.Enforcer.Apply(s.T.Context(), batch); err != nil {
		s.T.Fatal(err)
	}
}

// Stands reads Viewer's block and tombstone.
func (s *Stage) Stands() (*blocklist.Block, *blocklist.Tombstone) {
	s.T.Helper()
	b, tomb, err := s.Store.Get(s.T.Context(), Viewer, FloodRule)
	if err != nil {
		s.T.Fatal(err)
	}
	return b, tomb
}

// Release is an operator's release of Viewer's block.
func (s *Stage) Release() detectors.Hit {
	s.T.Helper()
	h, err := blocklist.NewRelease(Viewer, FloodRule, "ops", "false alarm", s.Clock.Now())
	if err != nil {
		s.T.Fatal(err)
	}
	return h
}

// Run runs f until the test ends; f must return nil then.
func Run(t testing.TB, f func(ctx context.Context) error) {
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

// ViewerIdentity is who Viewer names.
var ViewerIdentity = traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "tv-7"}

// EventuallyHeld waits until r holds the client of Viewer, or does not.
func EventuallyHeld(t testing.TB, r Finder, c *Clock, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(ViewerIdentity, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, c.Now()); held != want {
			return fmt.Errorf("held is %v, want %v", held, want)
		}
		return nil
	})
}

// Publish sets the mode of a rule and publishes all modes.
func (s *Stage) Publish(rule string, mode rules.Mode) {
	s.T.Helper()
	s.Rules.Set(rule, mode)
	s.PublishModes()
}

// PublishModes publishes the modes as the rule store has them.
func (s *Stage) PublishModes() {
	s.T.Helper()
	modes, err := s.Rules.Modes(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	if err := s.Store.PublishModes(s.T.Context(), s.Clock.Now(), modes); err != nil {
		s.T.Fatal(err)
	}
	s.ModesChanged()
}

// Forget removes everything of the namespace, as a flush does: at once on a standalone server. On a cluster, where nothing is atomic, the
// marker goes last, since a reconciler that begins to put things back must not see them deleted after; and right after the others, since a
// gate that reads a Redis with the marker and without the blocks believes it. A server that others fill takes long to search.
func (s *Stage) Forget() {
	s.T.Helper()
	var mu sync.Mutex
	var found []string
	err := EachMaster(s.T.Context(), s.Client, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, s.Namespace+":*", 1000).Iterator()
		for keys.Next(ctx) {
			mu.Lock()
			found = append(found, keys.Val())
			mu.Unlock()
		}
		return keys.Err()
	})
	if err == nil {
		err = s.remove(found)
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// remove is Forget's part once the keys have been found.
func (s *Stage) remove(keys []string) error {
	ctx, marker := s.T.Context(), s.Keys.Epoch()
	_, cluster := s.Client.(*redis.ClusterClient)
	pipe := s.Client.TxPipeline()
	if cluster {
		pipe = s.Client.Pipeline()
	}
	for _, key := range keys {
		if key != marker {
			pipe.Del(ctx, key)
		}
	}
	if !cluster {
		pipe.Del(ctx, marker)
	}
	if _, err := pipe.Exec(ctx); err != nil || !cluster {
		return err
	}
	return s.Client.Del(ctx, marker).Err()
}

// Published waits until Redis holds the mode.
func (s *Stage) Published(mode rules.Mode, generation int64) {
	s.T.Helper()
	testbed.Eventually(s.T, 10*time.Second, func() error {
		modes, err := s.Store.Modes(s.T.Context())
		if err == nil && (len(modes) != 1 || modes[0].Mode != mode || modes[0].Generation != generation) {
			err = errors.New("not published")
		}
		return err
	})
}

// Fill writes n blocks that no delta tells of.
func (s *Stage) Fill(n int) {
	s.T.Helper()
	now := s.Clock.Now()
	raises := make([]blocklist.Raise, n)
	for i := range raises {
		raises[i] = blocklist.Raise{Name: blocklist.Name{Subject: traffic.Subject(fmt.Sprint("device=", i)), Rule: FloodRule}, Block: blocklist.NewBlock(FloodRule, 1, fmt.Sprintf("%032x", i), now, now.Add(time.Hour))}
	}
	if _, err := s.Writer.Raise(s.T.Context(), raises); err != nil {
		s.T.Fatal(err)
	}
}

// Finder is what a gate asks: a replica.
type Finder interface {
	Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool)
}

// running is a copy of the blocks that a test runs.
type running interface {
	Run(ctx context.Context) error
	Ready() bool
}

// Follow runs a replica until the test ends, and waits until it has loaded the blocks.
func Follow(t testing.TB, r running) {
	t.Helper()
	Run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if !r.Ready() {
			return errors.New("replica is not ready")
		}
		return nil
	})
}

// Metric is the value of one of a registry's counters or gauges with these label values; 0 where there is none.
func Metric(t testing.TB, registry *prometheus.Registry, name string, labels ...string) float64 {
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
			if len(labels) == 0 || slices.Equal(valuesOf(m), labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Metric is Metric of the Enforcer's registry.
func (s *Stage) Metric(name string, labels ...string) float64 {
	return Metric(s.T, s.registry, name, labels...)
}

// Series is how many series the Enforcer's registry has of a metric, with these label values if any are given; of all metrics where
// name is empty.
func (s *Stage) Series(name string, labels ...string) int {
	s.T.Helper()
	n := 0
	for _, f := range s.gather() {
		if name != "" && f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(labels) == 0 || slices.Equal(valuesOf(m), labels) {
				n++
			}
		}
	}
	return n
}

func valuesOf(m *dto.Metric) (values []string) {
	for _, l := range m.GetLabel() {
		values = append(values, l.GetValue())
	}
	return values
}

// Histogram is how many values a histogram of the Enforcer's registry was given, and their sum.
func (s *Stage) Histogram(name string) (n uint64, sum float64) {
	s.T.Helper()
	for _, f := range s.gather() {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	return 0, 0
}

func (s *Stage) gather() []*dto.MetricFamily {
	s.T.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.T.Fatal(err)
	}
	return families
}

// JSONText is how a value stands in Redis.
func JSONText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
