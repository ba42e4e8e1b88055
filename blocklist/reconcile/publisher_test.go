package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// newPublisher makes a Publisher that looks only when it is told, unless it has failed.
func newPublisher(t testing.TB, s *blocktest.Stage) *Publisher {
	t.Helper()
	p, err := NewPublisher(PublisherOptions{
		Store: s.Store, Modes: s.Rules, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.interval = time.Hour
	return p
}

func TestModesArePublishedAtOnce(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		p := newPublisher(t, s)
		blocktest.Run(t, p.Run)
		s.Published(rules.ModeBlock, 1)
		r := newReplica(t, s)
		s.ApplyMessages(s.Messages(s.Hit()))
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
		p.ModesChanged()
		blocktest.EventuallyHeld(t, r, s.Clock, false)

		old := rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{old}); err != nil {
			t.Fatal(err)
		}
		s.Published(rules.ModeShadow, 2) // an older generation does not win
	})
}

// A flush, or somebody who publishes an older form late, is made good by the next look: what Redis holds is compared, not
// what was published once.
func TestModesThatRedisForgotArePublishedAnew(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.States[blocktest.FloodRule] = rules.ModeState{
			Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 3, Newest: 2, Match: rules.Held{Path: "/v1/guest-tokens"},
		}
		p := newPublisher(t, s)
		sync := func(want float64) {
			t.Helper()
			before := testutil.ToFloat64(p.published)
			if err := p.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := testutil.ToFloat64(p.published) - before; got != want {
				t.Errorf("%v modes published, want %v", got, want)
			}
			modes, err := s.Store.Modes(t.Context())
			if err != nil || len(modes) != 1 || modes[0].Match.Path != "/v1/guest-tokens" || modes[0].Newest != 2 {
				t.Errorf("modes: %+v, %v", modes, err)
			}
		}
		sync(1)
		sync(0)
		s.Forget()
		sync(1)
		stale := rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 3, Newest: 1, Match: rules.Held{Path: "/v0"}}
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), []rules.ModeState{stale}); err != nil {
			t.Fatal(err)
		}
		sync(1)
		// Another build's text of the same mode, with a member that this build does not know, stays.
		err := s.Client.HSet(t.Context(), s.Keys.Rules(), blocktest.FloodRule,
			`{"rule":"guest-token-flood","mode":"block","generation":3,"match":{"path":"/v1/guest-tokens"},"newest":2,"of_a_newer_build":1}`).Err()
		if err != nil {
			t.Fatal(err)
		}
		sync(0)
		if err := s.Client.HSet(t.Context(), s.Keys.Rules(), blocktest.FloodRule, "{").Err(); err != nil {
			t.Fatal(err)
		}
		sync(1)
	})
}

// A rule store that takes a question and never answers, or fails, holds up the change of then and not the next one.
func TestPublisherGoesOnAfterAFailure(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	away := errors.New("connection refused")
	s.Rules.Answer(away)
	p := newPublisher(t, s)
	if err := p.Publish(t.Context()); !errors.Is(err, away) {
		t.Fatalf("Publish: %v, want the rule store's error", err)
	}
	blocktest.Run(t, p.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if testutil.ToFloat64(p.failures) < 2 {
			return errors.New("it has not been tried again")
		}
		return nil
	})
	s.Rules.Answer(nil) // nobody tells the publisher
	s.Published(rules.ModeBlock, 1)
}

func TestPublisherOptions(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	good := newPublisher(t, s).o
	good.Registerer = prometheus.NewRegistry()
	for _, change := range []func(o *PublisherOptions){
		func(o *PublisherOptions) { o.Store = nil }, func(o *PublisherOptions) { o.Modes = nil },
		func(o *PublisherOptions) { o.Clock = nil }, func(o *PublisherOptions) { o.Logger = nil },
		func(o *PublisherOptions) { o.Registerer = nil },
	} {
		o := good
		change(&o)
		if _, err := NewPublisher(o); err == nil {
			t.Errorf("taken: %+v", o)
		}
	}
	p, err := NewPublisher(good)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx); err != nil {
		t.Errorf("Run after the end: %v", err)
	}
}
