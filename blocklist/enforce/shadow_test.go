package enforce_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func oneServer(t *testing.T) testbed.RedisServer {
	t.Helper()
	return testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)}
}

// turn sets the mode of FloodRule, whose first version the rule store says is the newest.
func turn(s *blocktest.Stage, mode rules.Mode) {
	s.Rules.Set(blocktest.FloodRule, mode)
	m := s.Rules.States[blocktest.FloodRule]
	m.Newest = 1
	s.Rules.States[blocktest.FloodRule] = m
	s.ModesChanged()
}

// wantWould checks what was counted for FloodRule in shadow: would-be blocks written, and those in force.
func wantWould(t *testing.T, s *blocktest.Stage, when string, written, inForce float64) {
	t.Helper()
	if got := s.Metric("weir_enforce_decisions_total", "would_write", "shadow", "", blocktest.FloodRule); got != written {
		t.Errorf("%s: %v would have been written, want %v", when, got, written)
	}
	if got := s.Metric("weir_blocks", "shadow", blocktest.FloodRule); got != inForce {
		t.Errorf("%s: %v would be in force, want %v", when, got, inForce)
	}
}

func TestWhatARuleInShadowWouldDo(t *testing.T) {
	private := traffic.Subject("ip=10.1.2.3%2F32")
	old := func(h *detectors.Hit) { h.First, h.Last = h.First.Add(-2*time.Minute), h.Last.Add(-2*time.Minute) }
	tests := []struct {
		name     string
		change   func(h *detectors.Hit)
		ttl      time.Duration
		noBlock  bool
		written  float64
		withheld string // reason
	}{
		{name: "an opening hit", written: 1},
		{name: "an update that comes first", change: func(h *detectors.Hit) {
			h.Phase, h.First = detectors.PhaseUpdate, h.First.Add(time.Minute)
			h.Last = h.First
		}, written: 1},
		{name: "an update of an episode that opened before this process began", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseUpdate }},
		{name: "a closing hit", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseClosed }},
		{name: "a merged episode", change: func(h *detectors.Hit) { h.Phase = detectors.PhaseMerged }},
		{name: "a grouped window", change: func(h *detectors.Hit) { h.Grouped = true }},
		{name: "nobody to block", change: func(h *detectors.Hit) { h.BlockSubject = "" }},
		{name: "a subject that is none", change: func(h *detectors.Hit) { h.BlockSubject = "device=}" }},
		{name: "a private address", change: func(h *detectors.Hit) { h.BlockSubject = private }, withheld: "never_block"},
		{name: "an update of a private address", change: func(h *detectors.Hit) { h.BlockSubject, h.Phase = private, detectors.PhaseUpdate }},
		{name: "evidence from a backlog", change: old, withheld: "max_lag"},
		{name: "a block that would be over", ttl: time.Millisecond, withheld: "expired"},
		{name: "a version without a block", noBlock: true, withheld: "no_block_spec"},
		{name: "a version that was not learned", change: func(h *detectors.Hit) { h.RuleVersion = 7 }, withheld: "unknown_version"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := blocktest.NewStage(t, oneServer(t), netip.MustParsePrefix("198.51.100.0/28"))
			if tt.ttl > 0 {
				s.Rules.Block[blocktest.FloodRule].TTL = tt.ttl
			}
			if tt.noBlock {
				s.Rules.Block[blocktest.FloodRule] = nil
			}
			turn(s, rules.ModeShadow)
			wantAllDecisions(t, s, "before the first one")
			h := s.Hit()
			if tt.change != nil {
				tt.change(&h)
			}
			for range 2 { // a record that comes twice changes nothing but reasons
				if got := s.Decide(h); len(got) > 0 || len(s.Dead.Letters) > 0 {
					t.Errorf("a rule in shadow decides %v, dead letters %v", got, s.Dead.Letters)
				}
			}
			inForce := tt.written
			if h.Phase == detectors.PhaseUpdate && tt.written == 0 && h.BlockSubject != private {
				inForce = 1
			}
			wantWould(t, s, "twice", tt.written, inForce)
			withheld := s.Metric("weir_enforce_decisions_total", "would_withhold", "shadow", tt.withheld, blocktest.FloodRule)
			if want := tt.withheld != ""; want != (withheld > 0) {
				t.Errorf("%v would have been withheld for %q", withheld, tt.withheld)
			}
			if all := s.Metric("weir_enforce_decisions_total"); all != tt.written+withheld {
				t.Errorf("%v decisions are counted, want %v and those withheld, %v", all, tt.written, withheld)
			}
			wantAllDecisions(t, s, "after it")
		})
	}
}

// A would-be block lasts as one would, with the updates of its episode, and is one for as long.
func TestAWouldBeBlockFollowsTheEpisode(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		turn(s, rules.ModeShadow)
		open := s.Hit()
		s.Decide(open)
		wantWould(t, s, "it opens", 1, 1)
		s.Clock.Add(blocktest.TTL / 2)
		update := open
		update.Phase, update.Last = detectors.PhaseUpdate, s.Clock.Now()
		s.Decide(update)
		s.Clock.Add(blocktest.TTL / 2)
		wantWould(t, s, "after the first end, extended", 1, 1)
		s.Clock.Add(blocktest.TTL / 2)
		wantWould(t, s, "over", 1, 0)
		again := s.Hit(func(h *detectors.Hit) { h.ID = "ffffffffffffffffffffffffffffffff" })
		s.Decide(again)
		wantWould(t, s, "another episode", 2, 1)
		if b, tomb := s.Stands(); b != nil || tomb != nil {
			t.Errorf("Redis has %+v and %+v", b, tomb)
		}

		turn(s, rules.ModeBlock)
		s.Decide(s.Release()) // any record
		if got := s.Metric("weir_blocks", "shadow", blocktest.FloodRule) + s.Metric("weir_blocks", "block", blocktest.FloodRule); got != 0 {
			t.Errorf("promoted: %v blocks", got)
		}
		turn(s, rules.ModeOff)
		if err := s.RefreshModes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Series("weir_blocks"); got != 0 {
			t.Errorf("off: %d series of blocks in force", got)
		}
		delete(s.Rules.States, blocktest.FloodRule)
		s.ModesChanged()
		if err := s.RefreshModes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Series("weir_enforce_decisions_total"); got != 0 {
			t.Errorf("removed: %d series of decisions", got)
		}
	})
}

// Whoever has the modes read hears of it when not all of a rule in shadow could be learned, and has it done by trying again: no hit
// asks for it.
func TestARuleInShadowIsLearnedWithTheNextTry(t *testing.T) {
	away := errors.New("connection refused")
	for name, fail := range map[string]func(s *blocktest.Stage, err error){
		"no modes":    func(s *blocktest.Stage, err error) { s.Rules.Answer(err) },
		"no versions": func(s *blocktest.Stage, err error) { s.Rules.AnswerVersions(err) },
	} {
		t.Run(name, func(t *testing.T) {
			s := blocktest.NewStage(t, oneServer(t))
			turn(s, rules.ModeShadow)
			fail(s, away)
			for range 3 {
				if err := s.RefreshModes(t.Context()); !errors.Is(err, away) {
					t.Errorf("got %v, want %v", err, away)
				}
			}
			fail(s, nil)
			s.Clock.Add(modesAge + time.Second)
			if err := s.RefreshModes(t.Context()); err != nil {
				t.Fatal(err)
			}
			fail(s, away) // what was learned is enough
			s.Decide(s.Hit())
			wantWould(t, s, "learned", 1, 1)
		})
	}
}

// A batch that fails is counted when it passes.
func TestAWouldBeBlockOfABatchThatFailsIsCountedOnce(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	s.Rules.States["other"] = rules.ModeState{Rule: "other", Mode: rules.ModeBlock, Generation: 1, Newest: 1}
	s.Rules.Block["other"] = s.Rules.Block[blocktest.FloodRule]
	turn(s, rules.ModeShadow)
	batch := s.Messages(s.Hit(), s.Hit(func(h *detectors.Hit) { h.Rule = "other" }))
	s.Log.Fail = errors.New("away")
	if err := s.Apply(t.Context(), batch); err == nil {
		t.Fatal("the batch passed")
	}
	wantWould(t, s, "failed", 0, 0)
	s.ApplyMessages(batch)
	wantWould(t, s, "passed", 1, 1)
	s.ApplyMessages(batch)
	wantWould(t, s, "once more", 1, 1)
	if got := s.Metric("weir_blocks", "block", "other"); got != 1 {
		t.Errorf("%v blocks of the other rule, want 1", got)
	}
}

// Decisions of a rule that blocks, and its blocks in force, through the life of one; and after a restart.
func TestBlocksInForceAreCounted(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		want := func(when string, inForce, written, extended, released float64) {
			t.Helper()
			for action, n := range map[string]float64{"written": written, "extended": extended, "released": released} {
				if got := s.Metric("weir_enforce_decisions_total", action, "block", "", blocktest.FloodRule); got != n {
					t.Errorf("%s: %v %s, want %v", when, got, action, n)
				}
			}
			if got := s.Metric("weir_blocks", "block", blocktest.FloodRule); got != inForce {
				t.Errorf("%s: %v in force, want %v", when, got, inForce)
			}
		}
		open := s.Hit()
		other := s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = "ffffffffffffffffffffffffffffffff", "device=other" })
		s.Decide(open, other)
		want("two", 2, 2, 0, 0)
		later := open
		later.Phase, later.Last = detectors.PhaseUpdate, open.Last.Add(500*time.Millisecond)
		s.Decide(later)
		want("one goes on", 2, 2, 1, 0)
		s.Decide(s.Release())
		want("one is released", 1, 2, 1, 1)

		s.Restart()
		s.Decide(s.Release()) // any record
		want("after a restart", 0, 0, 0, 1)
		block := blocklist.NewBlock(blocktest.FloodRule, 1, other.ID, other.First, other.First.Add(blocktest.TTL))
		s.Standing().Stands(blocklist.Name{Subject: "device=other", Rule: blocktest.FloodRule}, &block)
		want("as history has it", 1, 0, 0, 1)
		s.Decide(other)
		want("told of again", 1, 1, 0, 1)
		s.Clock.Add(blocktest.TTL)
		want("over", 0, 1, 0, 1)
	})
}

// The time from event to block is that of opening hits and updates: closing ones are late by nature.
func TestTimeFromEventToBlock(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	open := s.Hit() // a second old
	later := func(phase detectors.Phase, d time.Duration) detectors.Hit {
		h := open
		h.Phase, h.Last = phase, open.Last.Add(d)
		return h
	}
	s.Decide(open)
	s.Decide(later(detectors.PhaseUpdate, time.Millisecond))
	s.Decide(later(detectors.PhaseClosed, 2*time.Millisecond))
	s.Decide(later(detectors.PhaseUpdate, time.Millisecond)) // changes nothing
	if n, sum := s.Histogram("weir_event_to_block_seconds"); n != 2 || sum < 1.9 {
		t.Errorf("%d observations of %v s in all, want two of a second each at least", n, sum)
	}
}

// No series is anybody's: 100,000 clients make as many as one.
func TestIdentitiesMakeNoSeries(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	turn(s, rules.ModeShadow)
	s.Decide(s.Hit())
	before := s.Series("")
	const clients, batch = 100_000, 1000
	for first := 0; first < clients; first += batch {
		hits := make([]detectors.Hit, batch)
		for i := range hits {
			hits[i] = s.Hit(func(h *detectors.Hit) {
				h.ID, h.BlockSubject = fmt.Sprintf("%032x", first+i), traffic.Subject(fmt.Sprint("device=d", first+i))
			})
		}
		s.ApplyMessages(s.Messages(hits...))
	}
	if after := s.Series(""); after != before {
		t.Errorf("%d series, after one client it was %d", after, before)
	}
	wantWould(t, s, "all of them", clients+1, clients+1)
}
