package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func soonNotHeld(t *testing.T, what string, r blocktest.Finder, c *blocktest.Clock, id traffic.Identity) {
	t.Helper()
	testbed.Promptly(t, what, func() {
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(id, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, c.Now()); held {
				return fmt.Errorf("%s: still held", what)
			}
			return nil
		})
	})
}

// Redis is at maxmemory. New blocks are withheld, as decisions; what stands is extended; releases and demotions act at
// every gate within a second; and with room the episode that could not block does so with its next update.
func TestAFullRedisRefusesNewBlocksAndNothingElse(t *testing.T) {
	s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
	publish := func() {
		t.Helper()
		modes, err := s.Rules.Modes(t.Context())
		if err == nil {
			err = s.Store.PublishModes(t.Context(), s.Clock.Now(), modes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	publish()
	on := func(id string, device string, phase detectors.Phase) detectors.Hit {
		return s.Hit(func(h *detectors.Hit) {
			h.ID, h.Phase, h.BlockSubject = id, phase, traffic.Subject("ip=192.0.2.1%2F32&device="+device)
		})
	}
	s.Decide(s.Hit(), on("a1", "tv-8", detectors.PhaseOpen), on("a2", "tv-9", detectors.PhaseOpen))
	r := newReplica(t, s)
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	room := blocktest.Full(t, s)

	s.Clock.Add(50 * time.Millisecond)
	batch := s.Messages(on("b1", "tv-10", detectors.PhaseOpen), s.Release(), on("a1", "tv-8", detectors.PhaseUpdate))
	testbed.Promptly(t, "the batch", func() { s.ApplyMessages(batch) })
	if got := fmt.Sprint(s.Log.Take()); got != "[withheld full released extended]" {
		t.Errorf("decisions: %s", got)
	}
	soonNotHeld(t, "the released client", r, s.Clock, blocktest.ViewerIdentity)
	ahead, err := blocklist.NewRelease("ip=192.0.2.1%2F32&device=tv-10", blocktest.FloodRule, "ops", "not to be blocked", s.Clock.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	forgiving := s.Messages(ahead)
	forgiving[0].Appended = s.Clock.Now().Add(-time.Hour) // before the episode
	if s.ApplyMessages(forgiving); fmt.Sprint(s.Log.Take()) != "[released]" {
		t.Error("a release that finds no block, and so frees nothing")
	}
	if got := fmt.Sprint(s.Decide(on("b1", "tv-10", detectors.PhaseUpdate))); got != "[]" {
		t.Errorf("withheld again: %s, want it told once", got)
	}

	// A process that starts now finds none of its scripts in Redis.
	if err := s.Client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	request, err := blocklist.NewRelease("ip=192.0.2.1%2F32&device=tv-9", blocktest.FloodRule, "ops", "false alarm", s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	testbed.Promptly(t, "a release by a process that starts", func() {
		if got := fmt.Sprint(s.Decide(on("b2", "tv-11", detectors.PhaseOpen), request)); got != "[withheld full released]" {
			t.Errorf("decisions: %s", got)
		}
	})

	other := blocktest.ViewerIdentity
	other.Device = "tv-8"
	if _, held := r.Find(other, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); !held {
		t.Error("a block that nobody released is gone")
	}
	s.Rules.Set(blocktest.FloodRule, rules.ModeShadow)
	testbed.Promptly(t, "the demotion", publish)
	soonNotHeld(t, "a client of the demoted rule", r, s.Clock, other)

	s.Rules.Set(blocktest.FloodRule, rules.ModeBlock)
	s.ModesChanged()
	room()
	if got := fmt.Sprint(s.Decide(on("b1", "tv-10", detectors.PhaseUpdate))); got != "[written]" {
		t.Errorf("with room again: %s", got)
	}
}

// Where blocks are counted by address, a full Redis grows by neither block nor count.
func TestAFullRedisIsNotFilledByCounting(t *testing.T) {
	s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
	s.Store.Bound(blocklist.Crowds{PerAddress: 10, Claimed: []traffic.Field{traffic.FieldDevice}})
	s.Decide(s.Hit())
	room := blocktest.Full(t, s)
	var hits []detectors.Hit
	for i := range 100 {
		hits = append(hits, s.Hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject = fmt.Sprintf("c%d", i), traffic.Subject(fmt.Sprintf("ip=198.51.100.%d%%2F32&device=tv-1", i))
		}))
	}
	for _, d := range s.Decide(hits...) {
		if d != "withheld full" {
			t.Fatalf("decision: %s", d)
		}
	}
	sets, err := s.Client.Keys(t.Context(), s.Namespace+":v1:crowd:*").Result()
	if err != nil || len(sets) != 1 {
		t.Errorf("sets that count: %v, %v; want the one from before", sets, err)
	}
	s.Clock.Add(time.Second)
	if got := fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) { h.Phase = detectors.PhaseUpdate }))); got != "[extended]" {
		t.Errorf("a block that stands: %s", got)
	}
	if got := fmt.Sprint(s.Decide(s.Release())); got != "[released]" {
		t.Errorf("its release: %s", got)
	}
	room()
	for i := range hits {
		hits[i].Phase = detectors.PhaseUpdate
	}
	if got := s.Decide(hits...); len(got) != len(hits) || strings.Join(got, " ") != strings.TrimSpace(strings.Repeat("written ", len(hits))) {
		t.Errorf("with room again: %v", got)
	}
}
