package enforce_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// eachOwnRedis is testbed.EachRedis on servers that the test has for itself: what it does to them would befall others.
func eachOwnRedis(t *testing.T, test func(t *testing.T, server testbed.RedisServer)) {
	t.Helper()
	t.Run(string(testbed.RedisKind), func(t *testing.T) { test(t, testbed.OwnRedis(t).Server()) })
	t.Run(string(testbed.RedisClusterKind), func(t *testing.T) {
		server := testbed.RedisServer{Kind: testbed.RedisClusterKind}
		for _, node := range testbed.OwnRedisCluster(t) {
			server.Addrs = append(server.Addrs, node.Addr)
		}
		test(t, server)
	})
}

// A node that was restarted has lost its scripts.
func TestScriptsAreLoadedWhereTheyAreMissing(t *testing.T) {
	eachOwnRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		var hits []detectors.Hit
		for i := range 50 {
			hits = append(hits, s.Hit(func(h *detectors.Hit) { h.BlockSubject = traffic.Subject(fmt.Sprintf("device=d%d", i)) }))
		}
		s.Decide(hits...)
		if err := s.Client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range hits {
			hits[i].Phase, hits[i].Last = detectors.PhaseUpdate, hits[i].Last.Add(time.Millisecond)
		}
		if got := s.Decide(hits...); len(got) != len(hits) || slices.ContainsFunc(got, func(d string) bool { return d != "extended" }) {
			t.Errorf("decisions: %v", got)
		}
	})
}

func TestModesAreLookedUpWhenTheEffectIsWritten(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Decide(s.Hit())
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		s.Clock.Add(modesAge + time.Second)
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = "b" }))); got != "[]" {
			t.Errorf("demoted more than two seconds ago: %s", got)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeBlock)
		s.ModesChanged()
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = "c" }))); got != "[written]" {
			t.Errorf("promoted just now: %s", got)
		}
		if b, _ := s.Stands(); b == nil || b.Generation != 3 {
			t.Errorf("block: %+v, want generation 3", b)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		s.Clock.Add(time.Millisecond)
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID, h.Last = "e", s.Clock.Now() }))); got != "[]" {
			t.Errorf("a hit that came after the demotion, which nobody told: %s", got)
		}

		s.Rules.Set(blocktest.FloodRule, rules.ModeBlock)
		s.Clock.Add(time.Millisecond)
		s.Log.Fail = errors.New("kafka is away")
		batch := s.Messages(s.Hit(func(h *detectors.Hit) { h.ID, h.Last = "d", s.Clock.Now() }))
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Fatal("Apply returned nil though the blocks topic had not acknowledged")
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		s.ApplyMessages(batch)
		if got := fmt.Sprint(s.Log.Take()); got != "[]" {
			t.Errorf("demoted while the batch failed: %s", got)
		}
	})
}

// A block of a newer mode generation tells an Enforcer that its modes are old.
func TestStaleGenerationReadsTheModesAgain(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Decide(s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device=other" })) // caches generation 1
		newer := blocklist.NewBlock(blocktest.FloodRule, 3, "f", s.Clock.Now(), s.Clock.Now().Add(time.Minute))
		if _, err := s.Writer.Raise(t.Context(), []blocklist.Raise{{Name: blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, Block: newer}}); err != nil {
			t.Fatal(err)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		s.Rules.Set(blocktest.FloodRule, rules.ModeBlock)
		if got := fmt.Sprint(s.Decide(s.Hit())); got != "[extended]" {
			t.Errorf("decisions: %s", got)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		newer.Generation = 9
		if _, err := s.Writer.Raise(t.Context(), []blocklist.Raise{{Name: blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, Block: newer}}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = "a" }))); got != "[]" {
			t.Errorf("demoted in between: %s", got)
		}
	})
}

func TestBlockingGoesOnWithoutTheRuleStore(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		away := errors.New("connection refused")
		s.Rules.Answer(away)
		if got := fmt.Sprint(s.Decide(s.Hit())); got != "[withheld unknown_version]" {
			t.Fatalf("modes were never known, nor published: %s", got)
		}
		s.Rules.Answer(nil)
		s.Clock.Add(time.Minute)
		s.Decide(s.Hit())
		s.Rules.Answer(away)
		s.Clock.Add(time.Minute)
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = "b" }))); got != "[extended]" {
			t.Errorf("under the last known modes: %s", got)
		}
		demoted := rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeShadow, Generation: 2}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{demoted}); err != nil {
			t.Fatal(err)
		}
		s.Clock.Add(time.Minute)
		if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = "c" }))); got != "[]" {
			t.Errorf("demoted in Redis: %s", got)
		}
	})
}

// A rule that is edited or promoted just before the rule store goes away blocks as before: what its versions say about
// blocks was learned with the modes, not with the first hit.
func TestFirstHitOfAVersionNeedsNoRuleStore(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.States[blocktest.FloodRule] = rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Promoted: 3, Newest: 4}
		s.Decide(s.Release()) // any record of the log makes it read the modes
		s.Rules.Answer(errors.New("connection refused"))
		s.Clock.Add(time.Minute)
		for i, want := range map[int]string{3: "[written]", 4: "[written]"} {
			hit := s.Hit(func(h *detectors.Hit) {
				h.ID, h.RuleVersion, h.BlockSubject = fmt.Sprintf("%032x", i), i, traffic.Subject(fmt.Sprintf("device=v%d", i))
			})
			if got := fmt.Sprint(s.Decide(hit)); got != want {
				t.Errorf("the first hit of version %d: %s, want %s", i, got, want)
			}
		}
	})
}

func TestUnusableRecordsGoToTheDeadLetters(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		end := s.Hit(func(h *detectors.Hit) { h.Last = traffic.EndOfTime })
		backwards := s.Hit(func(h *detectors.Hit) { h.First = h.Last.Add(time.Second) })
		batch := s.Messages(
			s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device={x}" }),
			s.Hit(func(h *detectors.Hit) { h.BlockSubject = "shoe=43" }),
			s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device" }),
			s.Hit(func(h *detectors.Hit) { h.BlockSubject = "ip=192.0.2.1%2F24" }),
			s.Hit(func(h *detectors.Hit) {
				h.BlockSubject = "device=" + traffic.Subject(strings.Repeat("x", 8<<10))
			}),
			end, backwards,
			s.Hit(func(h *detectors.Hit) { h.ID = "a\r\nX-Admin: 1" }),
			s.Hit(func(h *detectors.Hit) { h.Kind, h.Rule = detectors.KindRelease, "A:B" }),
			s.Hit(),
		)
		batch = append(batch, traffic.Message{Partition: 3, Offset: 99, Value: []byte(`{"v":1`)}, traffic.Message{Partition: 3, Offset: 100})
		s.ApplyMessages(batch)
		if got := fmt.Sprint(s.Log.Take()); got != "[written]" {
			t.Errorf("decisions: %s; the good record among the bad ones must have its effect", got)
		}
		if len(s.Dead.Letters) != 11 {
			t.Fatalf("%d dead letters, want 11: %+v", len(s.Dead.Letters), s.Dead.Letters)
		}
		for _, l := range s.Dead.Letters {
			if l.Stage != "enforce" || l.Reason != "malformed" || l.Topic != "weir.hits" || l.Partition != 3 || l.Offset == 0 || l.Detail == "" {
				t.Errorf("dead letter: %+v", l)
			}
		}
	})
}

func TestReplaysMayNotEnforce(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	o := enforce.Options{Secret: []byte("secret"),
		Store: s.Store, Topic: "weir.hits", Modes: s.Rules, Rules: s.Rules, Decisions: s.Log, DeadLetters: s.Dead, Clock: s.Clock.Now,
		Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	}
	o.Stream = "replay/june"
	if _, err := enforce.New(o); err == nil || !strings.Contains(err.Error(), "replay/june") {
		t.Errorf("got %v, want a refusal that names the stream", err)
	}
}

func TestForeignValuesAreLeftAlone(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		key := s.Keys.Block(blocktest.Viewer, blocktest.FloodRule)
		ctx := t.Context()
		for name, put := range map[string]func() error{
			"text":         func() error { return s.Client.Set(ctx, key, "not json", 0).Err() },
			"null":         func() error { return s.Client.Set(ctx, key, "null", 0).Err() },
			"newer format": func() error { return s.Client.Set(ctx, key, `{"v":2,"until":"z"}`, 0).Err() },
			"no until":     func() error { return s.Client.Set(ctx, key, `{"v":1,"generation":1}`, 0).Err() },
			"list":         func() error { return s.Client.RPush(ctx, key, "x").Err() },
		} {
			t.Run(name, func(t *testing.T) {
				if err := s.Client.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				if err := put(); err != nil {
					t.Fatal(err)
				}
				s.Restart()
				if got, want := fmt.Sprint(s.Decide(s.Hit())), "[withheld unreadable_key]"; got != want {
					t.Errorf("decisions: got %s, want %s", got, want)
				}
				listing, err := s.Store.List(ctx, s.Clock.Now(), blocklist.Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if len(listing.Items) != 0 || listing.Unreadable != 1 {
					t.Errorf("listing: got %+v, want one unreadable key", listing)
				}
				if got, want := fmt.Sprint(s.Decide(s.Release())), "[released]"; got != want {
					t.Errorf("release: got %s, want %s", got, want)
				}
				if b, _ := s.Stands(); b != nil {
					t.Errorf("after the release stands %+v", b)
				}
				if err := s.Client.Del(ctx, s.Keys.Tombstone(blocktest.Viewer, blocktest.FloodRule)).Err(); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}
