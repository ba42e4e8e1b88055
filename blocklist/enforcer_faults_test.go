package blocklist

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A node that was restarted has lost its scripts.
func TestScriptsAreLoadedWhereTheyAreMissing(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		var hits []detectors.Hit
		for i := range 50 {
			hits = append(hits, s.hit(func(h *detectors.Hit) { h.BlockSubject = traffic.Subject(fmt.Sprintf("device=d%d", i)) }))
		}
		s.apply(hits...)
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range hits {
			hits[i].Phase, hits[i].Last = detectors.PhaseUpdate, hits[i].Last.Add(time.Millisecond)
		}
		if got := s.apply(hits...); len(got) != len(hits) || slices.ContainsFunc(got, func(d string) bool { return d != "extended" }) {
			t.Errorf("decisions: %v", got)
		}
	})
}

func TestModesAreLookedUpWhenTheEffectIsWritten(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.apply(s.hit())
		s.rules.set(floodRule, rules.ModeShadow)
		s.clock.add(modesAge + time.Second)
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID = "b" }))); got != "[]" {
			t.Errorf("demoted more than two seconds ago: %s", got)
		}
		s.rules.set(floodRule, rules.ModeBlock)
		s.ModesChanged()
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID = "c" }))); got != "[written]" {
			t.Errorf("promoted just now: %s", got)
		}
		if b, _ := s.stands(); b == nil || b.Generation != 3 {
			t.Errorf("block: %+v, want generation 3", b)
		}
		s.rules.set(floodRule, rules.ModeShadow)
		s.clock.add(time.Millisecond)
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID, h.Last = "e", s.clock.now() }))); got != "[]" {
			t.Errorf("a hit that came after the demotion, which nobody told: %s", got)
		}

		s.rules.set(floodRule, rules.ModeBlock)
		s.clock.add(time.Millisecond)
		s.log.fail = errors.New("kafka is away")
		batch := s.messages(s.hit(func(h *detectors.Hit) { h.ID, h.Last = "d", s.clock.now() }))
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Fatal("Apply returned nil though the blocks topic had not acknowledged")
		}
		s.rules.set(floodRule, rules.ModeShadow)
		s.applyMessages(batch)
		if got := fmt.Sprint(s.log.take()); got != "[]" {
			t.Errorf("demoted while the batch failed: %s", got)
		}
	})
}

// A block of a newer mode generation tells an Enforcer that its modes are old.
func TestStaleGenerationReadsTheModesAgain(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.apply(s.hit(func(h *detectors.Hit) { h.BlockSubject = "device=other" })) // caches generation 1
		newer := NewBlock(floodRule, 3, "f", s.clock.now(), s.clock.now().Add(time.Minute))
		if _, err := s.writer.raiseAll(t.Context(), []raise{{held: held{viewer, floodRule}, block: newer}}); err != nil {
			t.Fatal(err)
		}
		s.rules.set(floodRule, rules.ModeShadow)
		s.rules.set(floodRule, rules.ModeBlock)
		if got := fmt.Sprint(s.apply(s.hit())); got != "[extended]" {
			t.Errorf("decisions: %s", got)
		}
		s.rules.set(floodRule, rules.ModeShadow)
		newer.Generation = 9
		if _, err := s.writer.raiseAll(t.Context(), []raise{{held: held{viewer, floodRule}, block: newer}}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID = "a" }))); got != "[]" {
			t.Errorf("demoted in between: %s", got)
		}
	})
}

func TestBlockingGoesOnWithoutTheRuleStore(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		away := errors.New("connection refused")
		s.rules.answer(away)
		if got := fmt.Sprint(s.apply(s.hit())); got != "[withheld unknown_version]" {
			t.Fatalf("modes were never known, nor published: %s", got)
		}
		s.rules.answer(nil)
		s.clock.add(time.Minute)
		s.apply(s.hit())
		s.rules.answer(away)
		s.clock.add(time.Minute)
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID = "b" }))); got != "[extended]" {
			t.Errorf("under the last known modes: %s", got)
		}
		demoted := rules.ModeState{Rule: floodRule, Mode: rules.ModeShadow, Generation: 2}
		if err := s.store.PublishModes(t.Context(), s.clock.now(), []rules.ModeState{demoted}); err != nil {
			t.Fatal(err)
		}
		s.clock.add(time.Minute)
		if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.ID = "c" }))); got != "[]" {
			t.Errorf("demoted in Redis: %s", got)
		}
	})
}

// A rule that is edited or promoted just before the rule store goes away blocks as before: what its versions say about
// blocks was learned with the modes, not with the first hit.
func TestFirstHitOfAVersionNeedsNoRuleStore(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.rules.modes[floodRule] = rules.ModeState{Rule: floodRule, Mode: rules.ModeBlock, Generation: 1, Promoted: 3, Newest: 4}
		s.apply(s.release()) // any record of the log makes it read the modes
		s.rules.answer(errors.New("connection refused"))
		s.clock.add(time.Minute)
		for i, want := range map[int]string{3: "[written]", 4: "[written]"} {
			hit := s.hit(func(h *detectors.Hit) {
				h.ID, h.RuleVersion, h.BlockSubject = fmt.Sprintf("%032x", i), i, traffic.Subject(fmt.Sprintf("device=v%d", i))
			})
			if got := fmt.Sprint(s.apply(hit)); got != want {
				t.Errorf("the first hit of version %d: %s, want %s", i, got, want)
			}
		}
	})
}

func TestUnusableRecordsGoToTheDeadLetters(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		end := s.hit(func(h *detectors.Hit) { h.Last = traffic.EndOfTime })
		backwards := s.hit(func(h *detectors.Hit) { h.First = h.Last.Add(time.Second) })
		batch := s.messages(
			s.hit(func(h *detectors.Hit) { h.BlockSubject = "device={x}" }),
			s.hit(func(h *detectors.Hit) { h.BlockSubject = "shoe=43" }),
			s.hit(func(h *detectors.Hit) { h.BlockSubject = "device" }),
			s.hit(func(h *detectors.Hit) { h.BlockSubject = "ip=192.0.2.1%2F24" }),
			s.hit(func(h *detectors.Hit) {
				h.BlockSubject = "device=" + traffic.Subject(strings.Repeat("x", 8<<10))
			}),
			end, backwards,
			s.hit(func(h *detectors.Hit) { h.ID = "a\r\nX-Admin: 1" }),
			s.hit(func(h *detectors.Hit) { h.Kind, h.Rule = detectors.KindRelease, "A:B" }),
			s.hit(),
		)
		batch = append(batch, traffic.Message{Partition: 3, Offset: 99, Value: []byte(`{"v":1`)}, traffic.Message{Partition: 3, Offset: 100})
		s.applyMessages(batch)
		if got := fmt.Sprint(s.log.take()); got != "[written]" {
			t.Errorf("decisions: %s; the good record among the bad ones must have its effect", got)
		}
		if len(s.dead.letters) != 11 {
			t.Fatalf("%d dead letters, want 11: %+v", len(s.dead.letters), s.dead.letters)
		}
		for _, l := range s.dead.letters {
			if l.Stage != "enforce" || l.Reason != "malformed" || l.Topic != "weir.hits" || l.Partition != 3 || l.Offset == 0 || l.Detail == "" {
				t.Errorf("dead letter: %+v", l)
			}
		}
	})
}

func TestReplaysMayNotEnforce(t *testing.T) {
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	o := s.o
	o.Stream = "replay/june"
	if _, err := NewEnforcer(o); err == nil || !strings.Contains(err.Error(), "replay/june") {
		t.Errorf("got %v, want a refusal that names the stream", err)
	}
}

func TestForeignValuesAreLeftAlone(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		key := s.keys.Block(viewer, floodRule)
		ctx := t.Context()
		for name, put := range map[string]func() error{
			"text":         func() error { return s.client.Set(ctx, key, "not json", 0).Err() },
			"null":         func() error { return s.client.Set(ctx, key, "null", 0).Err() },
			"newer format": func() error { return s.client.Set(ctx, key, `{"v":2,"until":"z"}`, 0).Err() },
			"no until":     func() error { return s.client.Set(ctx, key, `{"v":1,"generation":1}`, 0).Err() },
			"list":         func() error { return s.client.RPush(ctx, key, "x").Err() },
		} {
			t.Run(name, func(t *testing.T) {
				if err := s.client.Del(ctx, key).Err(); err != nil {
					t.Fatal(err)
				}
				if err := put(); err != nil {
					t.Fatal(err)
				}
				s.restart()
				if got, want := fmt.Sprint(s.apply(s.hit())), "[withheld unreadable_key]"; got != want {
					t.Errorf("decisions: got %s, want %s", got, want)
				}
				listing, err := s.store.List(ctx, s.clock.now(), Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if len(listing.Items) != 0 || listing.Unreadable != 1 {
					t.Errorf("listing: got %+v, want one unreadable key", listing)
				}
				if got, want := fmt.Sprint(s.apply(s.release())), "[released]"; got != want {
					t.Errorf("release: got %s, want %s", got, want)
				}
				if b, _ := s.stands(); b != nil {
					t.Errorf("after the release stands %+v", b)
				}
				if err := s.client.Del(ctx, s.keys.Tombstone(viewer, floodRule)).Err(); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}
