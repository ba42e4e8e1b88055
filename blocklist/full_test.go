package blocklist

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// fill takes all memory that s's server has, to less than a small block; room gives it back.
func fill(t *testing.T, s *stage) (room func()) {
	t.Helper()
	var keys []string
	for size := 1 << 20; size >= 8; size /= 2 {
		value := strings.Repeat("x", size)
		for {
			key := fmt.Sprintf("filling:%d", len(keys))
			err := s.client.Set(t.Context(), key, value, 0).Err()
			if err != nil && strings.HasPrefix(err.Error(), "OOM") {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
	}
	return func() {
		if err := s.client.Del(t.Context(), keys...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func notHeldWithinASecond(t *testing.T, what string, r finder, c *clock, id traffic.Identity) {
	t.Helper()
	withinASecond(t, what, func() {
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(id, "POST", "/v1/guest-tokens", c.now()); held {
				return fmt.Errorf("%s: still held", what)
			}
			return nil
		})
	})
}

// Redis is at maxmemory. New blocks are withheld, as decisions; what stands is extended; releases and demotions act at
// every gate within a second; and with room the episode that could not block does so with its next update.
func TestAFullRedisRefusesNewBlocksAndNothingElse(t *testing.T) {
	s := newStage(t, fullRedis(t))
	publish := func() {
		t.Helper()
		modes, err := s.rules.Modes(t.Context())
		if err == nil {
			err = s.store.PublishModes(t.Context(), s.clock.now(), modes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	publish()
	on := func(id string, device string, phase detectors.Phase) detectors.Hit {
		return s.hit(func(h *detectors.Hit) {
			h.ID, h.Phase, h.BlockSubject = id, phase, traffic.Subject("ip=192.0.2.1%2F32&device="+device)
		})
	}
	s.apply(s.hit(), on("a1", "tv-8", detectors.PhaseOpen), on("a2", "tv-9", detectors.PhaseOpen))
	r := newReplicaE(t, s)
	eventuallyHeld(t, r, s.clock, true)
	room := fill(t, s)

	s.clock.add(50 * time.Millisecond)
	batch := s.messages(on("b1", "tv-10", detectors.PhaseOpen), s.release(), on("a1", "tv-8", detectors.PhaseUpdate))
	withinASecond(t, "the batch", func() { s.applyMessages(batch) })
	if got := fmt.Sprint(s.log.take()); got != "[withheld full released extended]" {
		t.Errorf("decisions: %s", got)
	}
	notHeldWithinASecond(t, "the released client", r, s.clock, viewerIdentity)
	ahead, err := NewRelease("ip=192.0.2.1%2F32&device=tv-10", floodRule, "ops", "not to be blocked", s.clock.now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	forgiving := s.messages(ahead)
	forgiving[0].Appended = s.clock.now().Add(-time.Hour) // before the episode
	if s.applyMessages(forgiving); fmt.Sprint(s.log.take()) != "[released]" {
		t.Error("a release that finds no block, and so frees nothing")
	}
	if got := fmt.Sprint(s.apply(on("b1", "tv-10", detectors.PhaseUpdate))); got != "[]" {
		t.Errorf("withheld again: %s, want it told once", got)
	}

	// A process that starts now finds none of its scripts in Redis.
	if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.restart()
	request, err := NewRelease("ip=192.0.2.1%2F32&device=tv-9", floodRule, "ops", "false alarm", s.clock.now())
	if err != nil {
		t.Fatal(err)
	}
	withinASecond(t, "a release by a process that starts", func() {
		if got := fmt.Sprint(s.apply(on("b2", "tv-11", detectors.PhaseOpen), request)); got != "[withheld full released]" {
			t.Errorf("decisions: %s", got)
		}
	})

	other := viewerIdentity
	other.Device = "tv-8"
	if _, held := r.Find(other, "POST", "/v1/guest-tokens", s.clock.now()); !held {
		t.Error("a block that nobody released is gone")
	}
	s.rules.set(floodRule, rules.ModeShadow)
	withinASecond(t, "the demotion", publish)
	notHeldWithinASecond(t, "a client of the demoted rule", r, s.clock, other)

	s.rules.set(floodRule, rules.ModeBlock)
	s.ModesChanged()
	room()
	if got := fmt.Sprint(s.apply(on("b1", "tv-10", detectors.PhaseUpdate))); got != "[written]" {
		t.Errorf("with room again: %s", got)
	}
}

// Where blocks are counted by address, a full Redis grows by neither block nor count.
func TestAFullRedisIsNotFilledByCounting(t *testing.T) {
	s := newStage(t, fullRedis(t))
	s.store.Bound(Crowds{PerAddress: 10, Claimed: []traffic.Field{traffic.FieldDevice}})
	s.apply(s.hit())
	room := fill(t, s)
	var hits []detectors.Hit
	for i := range 100 {
		hits = append(hits, s.hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject = fmt.Sprintf("c%d", i), traffic.Subject(fmt.Sprintf("ip=198.51.100.%d%%2F32&device=tv-1", i))
		}))
	}
	for _, d := range s.apply(hits...) {
		if d != "withheld full" {
			t.Fatalf("decision: %s", d)
		}
	}
	sets, err := s.client.Keys(t.Context(), s.namespace+":v1:crowd:*").Result()
	if err != nil || len(sets) != 1 {
		t.Errorf("sets that count: %v, %v; want the one from before", sets, err)
	}
	s.clock.add(time.Second)
	if got := fmt.Sprint(s.apply(s.hit(func(h *detectors.Hit) { h.Phase = detectors.PhaseUpdate }))); got != "[extended]" {
		t.Errorf("a block that stands: %s", got)
	}
	if got := fmt.Sprint(s.apply(s.release())); got != "[released]" {
		t.Errorf("its release: %s", got)
	}
	room()
	for i := range hits {
		hits[i].Phase = detectors.PhaseUpdate
	}
	if got := s.apply(hits...); len(got) != len(hits) || strings.Join(got, " ") != strings.TrimSpace(strings.Repeat("written ", len(hits))) {
		t.Errorf("with room again: %v", got)
	}
}
