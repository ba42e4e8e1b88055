package reconcile

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// memberOf is a stage that was just started as a member of a group: it knows the rules, and nothing else.
func memberOf(t *testing.T, s *blocktest.Stage) {
	t.Helper()
	s.Grouped = true
	s.Restart()
	if err := s.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func readerFor(t *testing.T, s *blocktest.Stage) *Reader {
	t.Helper()
	r, err := NewReader(ReaderOptions{
		Modes: s.Rules, Active: s.Log, Standing: s.Standing(), Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An ENFORCE that was started anew counts what stands as history has it: once each, neither what was released nor what a
// demotion ended, and nothing of partitions that it was not assigned.
func TestEnforceIsToldWhatStands(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	const gone = "demoted"
	s.Rules.States[gone] = rules.ModeState{Rule: gone, Mode: rules.ModeBlock, Generation: 1}
	s.Rules.Block[gone] = s.Rules.Block[blocktest.FloodRule]
	open := s.Hit()
	goesOn := open
	goesOn.Phase, goesOn.Last = detectors.PhaseUpdate, s.Clock.Now()
	request, err := blocklist.NewRelease("device=free", blocktest.FloodRule, "ops", "", s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.ApplyMessages(s.Messages(open, s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = strings.Repeat("c", 32), "device=free" }),
		s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = strings.Repeat("d", 32), "device=second" }),
		s.Hit(func(h *detectors.Hit) { h.ID, h.Rule = strings.Repeat("e", 32), gone })))
	s.ApplyMessages(s.Messages(goesOn, request))
	s.Rules.Set(gone, rules.ModeShadow)

	memberOf(t, s)
	r := readerFor(t, s)
	reads := func(when string, partitions []int, want float64) {
		t.Helper()
		if partitions != nil {
			s.Standing().Assigned(partitions)
		}
		if err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Metric("weir_blocks"); got != want || s.Metric("weir_blocks", "block", blocktest.FloodRule) != want {
			t.Errorf("%s: %v blocks in force, want %v", when, got, want)
		}
	}
	reads("before it was assigned anything", nil, 0)
	reads("assigned nothing", []int{}, 0)
	reads("assigned the partition", []int{0}, 2)
	reads("once more", nil, 2)
	reads("assigned another one", []int{1}, 0)
	reads("back in the first one", []int{0}, 2)
	s.Clock.Add(blocktest.TTL)
	reads("after their end", nil, 0)
}

// Two processes that start count each block once, whatever they are assigned.
func TestEachBlockIsOneProcess(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.ApplyMessages(s.Messages(s.Hit()))
	var all float64
	for _, assigned := range [][]int{{0}, {}, nil} {
		memberOf(t, s)
		if assigned != nil {
			s.Standing().Assigned(assigned)
		}
		if err := readerFor(t, s).read(t.Context()); err != nil {
			t.Fatal(err)
		}
		all += s.Metric("weir_blocks")
	}
	if all != 1 {
		t.Errorf("three processes count %v blocks, there is one", all)
	}
}

// The last decisions of the process that had a partition before come to history after the first reading.
func TestTheLastDecisionsOfThePreviousProcess(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	device := func(name traffic.Subject) func(h *detectors.Hit) {
		return func(h *detectors.Hit) { h.ID, h.BlockSubject = strings.Repeat(string(name[len(name)-1]), 32), name }
	}
	request, err := blocklist.NewRelease("device=a", blocktest.FloodRule, "ops", "", s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.ApplyMessages(s.Messages(s.Hit(device("device=a")), s.Hit(device("device=b"))))
	stored := len(s.Log.All)
	s.ApplyMessages(s.Messages(request, s.Hit(device("device=c"))))
	late := s.Log.All[stored:]
	s.Log.All = s.Log.All[:stored:stored]

	memberOf(t, s)
	s.Standing().Assigned([]int{0, 3})
	r := readerFor(t, s)
	reads := func(when string, want float64) {
		t.Helper()
		if err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Metric("weir_blocks"); got != want {
			t.Errorf("%s: %v blocks in force, want %v", when, got, want)
		}
	}
	reads("a and b as history has them", 2)
	s.Log.All = append(s.Log.All, late...)
	s.ApplyMessages(s.Messages(s.Hit(device("device=d")))) // its own,
	before := s.Log.Len()
	s.ApplyMessages(s.Messages(s.Hit(device("device=e")))) // and another one, which history does not have yet
	s.Log.All = s.Log.All[:before]
	if got := s.Metric("weir_blocks"); got != 4 {
		t.Errorf("with its own: %v blocks, want a, b, d and e", got)
	}
	reads("b, c, d and e: a was released", 4)
	s.ApplyMessages(s.Messages(s.Hit(device("device=b"), func(h *detectors.Hit) { h.Phase, h.Last = detectors.PhaseUpdate, s.Clock.Now() })))
	s.Log.All = nil
	reads("b, d and e are its own; history has forgotten the others", 3)
}
