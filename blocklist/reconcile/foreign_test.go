package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// Two installations have one Redis and one namespace. The second one is told whose it is, publishes nothing, and
// stops; a flush makes it nobody's, and it is the first one's again with the next round.
func TestARedisBelongsToOneInstallation(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		publisher := func(installation string, modes Modes) *Publisher {
			p, err := NewPublisher(PublisherOptions{
				Store: s.Store, Modes: modes, Clock: s.Clock.Now, Logger: blocktest.Quiet(),
				Registerer: prometheus.NewRegistry(),
				Own: func(ctx context.Context) error {
					return blocklist.NewOwnership(s.Store).Own(ctx, blocklist.Owner{Installation: installation,
						Since: s.Clock.Now(), By: "weir run on " + installation})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		production, staging := publisher("production", s.Rules), publisher("staging",
			fixed{{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 9}})
		if err := production.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := staging.Run(t.Context())
		if foreign := (*blocklist.ForeignError)(nil); !errors.As(err, &foreign) ||
			foreign.Owner.Installation != "production" || foreign.Mine != "staging" {
			t.Fatalf("the other installation goes on with %v", err)
		}
		s.Published(rules.ModeBlock, 1)

		s.Forget()
		if err := production.Publish(t.Context()); err != nil {
			t.Error(err)
		}
		if is, err := blocklist.NewOwnership(s.Store).Owner(t.Context()); err != nil ||
			is.Installation != "production" || is.By != "weir run on production" {
			t.Errorf("after a flush it belongs to %+v, %v", is, err)
		}
		if err := blocklist.NewOwnership(s.Store).Take(t.Context(), blocklist.Owner{Installation: "staging",
			Since: s.Clock.Now()}); err != nil {
			t.Fatal(err)
		}
		if err := staging.Publish(t.Context()); err != nil {
			t.Errorf("who has taken it cannot use it: %v", err)
		}
		if err := production.Publish(t.Context()); err == nil {
			t.Error("it was taken, and who had it goes on")
		}
	})
}

type fixed []rules.ModeState

func (f fixed) Modes(context.Context) ([]rules.ModeState, error) { return f, nil }

// The rule store comes back older, and numbers its modes above what Redis has, so that what was demoted is demoted at
// every gate.
func TestAPublisherOvertakesALaterRedis(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		later := rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 6}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{later}); err != nil {
			t.Fatal(err)
		}
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		p := newPublisher(t, s)
		ahead := (*blocklist.ModesAheadError)(nil)
		if err := p.Publish(t.Context()); !errors.As(err, &ahead) || len(ahead.Modes) != 1 ||
			ahead.Modes[0].Generation != 6 {
			t.Fatalf("Redis is ahead, and that is told as %v", err)
		}
		p.o.Overtake = func(_ context.Context, modes []rules.ModeState) ([]string, []rules.ModeState, error) {
			state := s.Rules.States[blocktest.FloodRule]
			state.Generation = modes[0].Generation + 1
			s.Rules.States[blocktest.FloodRule] = state
			return []string{"rule x"}, nil, nil
		}
		if err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Published(rules.ModeShadow, 7)
	})
}

// A rule that blocks by Redis alone is stopped at every gate: what promoted it was lost, or never was. One that is in
// shadow there, one by hand and what cannot be read are nobody's business.
func TestAPublisherStopsRulesThatTheStoreDoesNotKnow(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.Set(blocktest.FloodRule, rules.ModeBlock)
		beside := []rules.ModeState{{Rule: "lost", Mode: rules.ModeBlock, Generation: 3},
			{Rule: "in-shadow", Mode: rules.ModeShadow, Generation: 9}}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), beside); err != nil {
			t.Fatal(err)
		}
		p := newPublisher(t, s)
		var told []rules.ModeState
		p.o.Overtake = func(_ context.Context, ahead []rules.ModeState) ([]string, []rules.ModeState, error) {
			told = append(told, ahead...)
			off := ahead[0]
			off.Mode, off.Generation = rules.ModeOff, off.Generation+1
			return []string{"rule lost"}, []rules.ModeState{off}, nil
		}
		for range 2 {
			if err := p.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(told) != 1 || told[0].Rule != "lost" {
			t.Errorf("the rule store was asked about %+v, want the lost rule once", told)
		}
		modes, err := blocklist.NewFeed(s.Store).ModeTexts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for rule, want := range map[string]rules.Mode{"lost": rules.ModeOff, "in-shadow": rules.ModeShadow,
			blocktest.FloodRule: rules.ModeBlock} {
			if m, err := blocklist.DecodeMode(rule, modes[rule]); err != nil || m.Mode != want {
				t.Errorf("rule %s is in %v, %v, want %v", rule, m.Mode, err, want)
			}
		}
		// One whose number weir never gave is told, and keeps no other one blocking.
		absurd := errors.New("a number that weir never gave")
		overtake := p.o.Overtake
		p.o.Overtake = func(ctx context.Context, ahead []rules.ModeState) ([]string, []rules.ModeState, error) {
			lines, off, _ := overtake(ctx, ahead)
			return lines, off, absurd
		}
		beside[0].Rule = "lost-too"
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), beside[:1]); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(t.Context()); !errors.Is(err, absurd) {
			t.Errorf("published: %v, want what is left", err)
		}
		if modes, err = blocklist.NewFeed(s.Store).ModeTexts(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m, err := blocklist.DecodeMode("lost-too", modes["lost-too"]); err != nil || m.Mode != rules.ModeOff {
			t.Errorf("beside it, lost-too is in %v, %v", m.Mode, err)
		}
	})
}

// TestAModeThatWeirNeverGaveIsReplaced: a number beyond all that weir gives is no later than the rule store's, which
// takes its place in Redis and at gates, whoever wrote it and however often.
func TestAModeThatWeirNeverGaveIsReplaced(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		p := newPublisher(t, s)
		p.o.Overtake = func(_ context.Context, ahead []rules.ModeState) ([]string, []rules.ModeState, error) {
			t.Errorf("the rule store is asked about %+v", ahead)
			return nil, nil, nil
		}
		mine := s.Rules.States[blocktest.FloodRule].Generation
		for _, absurd := range []rules.ModeState{
			{Generation: rules.MostGiven + 1}, {Generation: 1 << 53}, {Generation: 1<<63 - 1}, {Generation: 1 << 62},
			{Generation: mine, Newest: 1 << 60},
		} {
			absurd.Rule, absurd.Mode = blocktest.FloodRule, rules.ModeBlock
			if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{absurd}); err != nil {
				t.Fatal(err)
			}
			if err := p.Publish(t.Context()); err != nil {
				t.Errorf("%+v: %v", absurd, err)
			}
			s.Published(rules.ModeShadow, mine)
		}
	})
}

// TestAMarkThatIsNoTextIsSomebodys: what stands where an installation leaves its mark is somebody's, of whatever type
// it is.
func TestAMarkThatIsNoTextIsSomebodys(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	if _, err := server.Lpush(s.Keys.Installation(), "x"); err != nil {
		t.Fatal(err)
	}
	err := blocklist.NewOwnership(s.Store).Own(t.Context(), blocklist.Owner{Installation: "mine"})
	if foreign := (*blocklist.ForeignError)(nil); !errors.As(err, &foreign) {
		t.Errorf("it is taken for nobody's: %v", err)
	}
}

// TestARedisThatChangesHandsIsToldNothing: what a round has begun with is not written into a Redis that becomes another
// installation's within it: neither is a rule switched off there that only the other one knows, nor are entries
// replaced.
func TestARedisThatChangesHandsIsToldNothing(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		blocklist.ActFor(s.Store, func(context.Context) (string, error) { return "production", nil })
		deed := blocklist.NewOwnership(s.Store)
		theirs := rules.ModeState{Rule: "theirs", Mode: rules.ModeBlock, Generation: 7}
		p, err := NewPublisher(PublisherOptions{
			Store: s.Store, Modes: s.Rules, Clock: s.Clock.Now, Logger: blocktest.Quiet(),
			Registerer: prometheus.NewRegistry(),
			Own: func(ctx context.Context) error {
				return deed.Own(ctx, blocklist.Owner{Installation: "production", Since: s.Clock.Now(),
					By: "production"})
			},
			Overtake: func(ctx context.Context, ahead []rules.ModeState) ([]string, []rules.ModeState, error) {
				off := theirs
				off.Mode, off.Generation = rules.ModeOff, 8
				return nil, []rules.ModeState{off}, deed.Take(ctx,
					blocklist.Owner{Installation: "staging", Since: s.Clock.Now()})
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{theirs}); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			if foreign := (*blocklist.ForeignError)(nil); !errors.As(err, &foreign) || foreign.Mine != "production" {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("the round", p.Publish(t.Context()))
		modes, err := s.Store.Modes(t.Context())
		if at := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == "theirs" }); err != nil ||
			at < 0 ||
			modes[at].Mode != rules.ModeBlock || modes[at].Generation != 7 {
			t.Errorf("the other one's modes are %+v, %v", modes, err)
		}
		_, err = s.Store.SyncNever(t.Context(), s.Clock.Now(), blocklist.NeverEntries{Revision: 9})
		refused("entries of the never-block list", err)
		if told, err := s.Store.Never(t.Context()); err != nil || told.Revision != 0 {
			t.Errorf("entries of the never-block list are told: %+v, %v", told, err)
		}
		if err := deed.Take(t.Context(), blocklist.Owner{Installation: "production",
			Since: s.Clock.Now()}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Store.SyncNever(t.Context(), s.Clock.Now(), blocklist.NeverEntries{Revision: 9}); err != nil {
			t.Errorf("its own Redis: %v", err)
		}
	})
}

// TestWhoeverItIsThatLeftNoText: a mark that no build has left, and one of another form, are somebody's to the scripts,
// too.
func TestWhoeverItIsThatLeftNoText(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	blocklist.ActFor(s.Store, func(context.Context) (string, error) { return "mine", nil })
	modes := []rules.ModeState{{Rule: "flood", Mode: rules.ModeBlock, Generation: 1}}
	for _, mark := range []string{"", "mine", `{"v":2,"installation":"mine"}`, `{"v":1}`, "[]"} {
		server.Del(s.Keys.Installation())
		if mark != "" {
			if err := server.Set(s.Keys.Installation(), mark); err != nil {
				t.Fatal(err)
			}
		} else if _, err := server.Lpush(s.Keys.Installation(), "x"); err != nil {
			t.Fatal(err)
		}
		if foreign := (*blocklist.ForeignError)(nil); !errors.As(s.Store.PublishModes(t.Context(), s.Clock.Now(),
			modes), &foreign) {
			t.Errorf("%q is taken for nobody's", mark)
		}
	}
}
