package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

const eventToBlock = "weir_event_to_block_seconds"

// stillStage is a stage whose clock only the test moves: what is late is so by no busy machine.
func stillStage(t *testing.T, server testbed.RedisServer) *blocktest.Stage {
	t.Helper()
	s := blocktest.NewStage(t, server)
	s.Clock.Stop()
	s.Restart() // reads the partitions from that moment on
	return s
}

// wantObserved asks how often the latency was observed, and for the whole seconds of all observations.
func wantObserved(t *testing.T, s *blocktest.Stage, when string, n uint64, seconds int) {
	t.Helper()
	if got, sum := s.Histogram(eventToBlock); got != n || sum < float64(seconds)-1e-6 || sum >= float64(seconds)+0.1 { // some hits lie milliseconds apart
		t.Errorf("%s: %d observations of %.3f s in all, want %d of %d s and a little", when, got, sum, n, seconds)
	}
}

// three are opening hits, each a second old.
func three(s *blocktest.Stage) []traffic.Message {
	var hits []detectors.Hit
	for i := range 3 {
		hits = append(hits, s.Hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject = fmt.Sprintf("%032x", i), traffic.Subject(fmt.Sprint("device=d", i))
		}))
	}
	return s.Messages(hits...)
}

// fails applies a batch, which must not succeed.
func fails(t *testing.T, s *blocktest.Stage, batch []traffic.Message) {
	t.Helper()
	if err := s.Apply(t.Context(), batch); err == nil {
		t.Fatal("the batch succeeded")
	}
}

// A block is observed when Redis has it, once, however often what follows fails.
func TestTheLatencyOfABatchThatFailsLater(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := stillStage(t, server)
		batch := three(s)
		for range 3 {
			s.Log.Fail = errors.New("kafka is away")
			fails(t, s, batch)
			wantObserved(t, s, "written, and not told", 3, 3)
			s.Clock.Add(10 * time.Second)
		}
		s.ApplyMessages(batch)
		wantObserved(t, s, "told at last", 3, 3)
		s.ApplyMessages(batch)
		wantObserved(t, s, "given once more", 3, 3)
		if got := fmt.Sprint(s.Log.Take()); got != "[written written written]" {
			t.Errorf("decisions: %s", got)
		}
	})
}

// lostAnswers is a hook of a Redis client: the server writes the blocks that it is asked for, and the answer is lost.
type lostAnswers struct{ on bool }

func (l *lostAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lostAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *lostAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if !l.on || !strings.Contains(fmt.Sprint(cmds), ":block:") {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(net.ErrClosed)
		}
		return net.ErrClosed
	}
}

// What Redis wrote without an answer is found written by the next attempt: there it is observed, and not by the one after that.
func TestTheLatencyOfABlockWhoseAnswerWasLost(t *testing.T) {
	s := stillStage(t, oneServer(t))
	s.Decide(s.Hit()) // loads the scripts
	var answers lostAnswers
	s.Client.AddHook(&answers)
	batch := three(s)
	answers.on = true
	fails(t, s, batch)
	answers.on = false
	for i := range 3 {
		if b, _, err := s.Store.Get(t.Context(), traffic.Subject(fmt.Sprint("device=d", i)), blocktest.FloodRule); b == nil || err != nil {
			t.Fatalf("Redis has no block %d: %v", i, err)
		}
	}
	wantObserved(t, s, "no answer", 1, 1)
	s.Clock.Add(10 * time.Second)
	s.Log.Fail = errors.New("kafka is away")
	fails(t, s, batch)
	wantObserved(t, s, "known, and not told", 4, 34)
	s.Clock.Add(10 * time.Second)
	s.ApplyMessages(batch)
	wantObserved(t, s, "told at last", 4, 34)
}

// What another process may have written and observed, before this one had the partition, is not observed again.
func TestTheLatencyOfABlockOfAnotherProcess(t *testing.T) {
	for name, succeed := range map[string]func(s *blocktest.Stage){
		"after a crash": func(s *blocktest.Stage) { s.Restart() },
		"after a rebalance": func(s *blocktest.Stage) {
			s.Restart()
			s.Standing().Assigned(nil)
			s.Clock.Add(time.Second)
			s.Standing().Assigned([]int{3})
		},
		"of a partition lost": func(s *blocktest.Stage) { s.Restart(); s.Standing().Assigned([]int{2}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := stillStage(t, oneServer(t))
			batch := three(s)
			s.Log.Fail = errors.New("kafka is away")
			fails(t, s, batch)
			s.Clock.Add(time.Second)
			succeed(s)
			s.ApplyMessages(batch)
			wantObserved(t, s, "its successor", 0, 0)
			if got := fmt.Sprint(s.Log.Take()); got != "[written written written]" {
				t.Errorf("decisions: %s", got)
			}
			next := s.Hit(func(h *detectors.Hit) { h.ID = fmt.Sprintf("%032x", 9) })
			s.Decide(next)
			wantObserved(t, s, "its own", 1, 1)
		})
	}
}

// Records of one hit with another's between are two effects, and one block.
func TestTheLatencyOfABlockThatOneBatchAsksForTwice(t *testing.T) {
	s := stillStage(t, oneServer(t))
	open := s.Hit()
	between := s.Hit(func(h *detectors.Hit) {
		h.ID, h.First, h.Last = fmt.Sprintf("%032x", 1), open.First.Add(-time.Millisecond), open.Last.Add(-time.Millisecond)
	})
	s.ApplyMessages(s.Messages(open, between, open))
	wantObserved(t, s, "one block", 1, 1)
}

// A block is as late as the first record that asked for it: those that one batch brings of an episode are one effect, and after a stall
// they come together.
func TestTheLatencyOfRecordsThatComeTogether(t *testing.T) {
	const stall = 28 * time.Second
	phase := func(of detectors.Hit, phase detectors.Phase, later time.Duration) detectors.Hit {
		of.Phase, of.Last = phase, of.Last.Add(later)
		return of
	}
	late := func(s *blocktest.Stage) detectors.Hit {
		return s.Hit(func(h *detectors.Hit) { h.First, h.Last = h.First.Add(-stall), h.Last.Add(-stall) })
	}
	for _, tt := range []struct {
		name    string
		batch   func(s *blocktest.Stage) []detectors.Hit
		n       uint64
		seconds int
	}{
		{"with the closing hit", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{late(s), phase(late(s), detectors.PhaseClosed, time.Second)}
		}, 1, 29},
		{"with an update", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{late(s), phase(late(s), detectors.PhaseUpdate, stall)}
		}, 1, 29},
		{"with an update and the closing hit", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{late(s), phase(late(s), detectors.PhaseUpdate, stall/2), phase(late(s), detectors.PhaseClosed, stall)}
		}, 1, 29},
		{"the closing hit before the others, as no log has it", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{phase(late(s), detectors.PhaseClosed, stall), phase(late(s), detectors.PhaseUpdate, stall/2), late(s)}
		}, 1, 29},
		{"an update and the closing hit", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{phase(late(s), detectors.PhaseUpdate, stall/2), phase(late(s), detectors.PhaseClosed, stall)}
		}, 1, 15},
		{"two episodes", func(s *blocktest.Stage) []detectors.Hit {
			other := late(s)
			other.ID, other.BlockSubject = "another", "device=another"
			return []detectors.Hit{late(s), phase(late(s), detectors.PhaseUpdate, stall), other}
		}, 2, 58},
		{"one of the future", func(s *blocktest.Stage) []detectors.Hit {
			return []detectors.Hit{phase(s.Hit(), detectors.PhaseOpen, 6*time.Second)} // a hit is a second old
		}, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stillStage(t, oneServer(t))
			batch := s.Messages(tt.batch(s)...)
			s.ApplyMessages(batch)
			wantObserved(t, s, tt.name, tt.n, tt.seconds)
			if _, sum := s.Histogram(eventToBlock); sum < 0 {
				t.Errorf("the sum is %v", sum)
			}
			s.ApplyMessages(batch)
			wantObserved(t, s, "given once more", tt.n, tt.seconds)
		})
	}
}

// A closing hit extends what stands, and nobody waited for it.
func TestAClosingHitHasNoLatency(t *testing.T) {
	s := stillStage(t, oneServer(t))
	s.Decide(s.Hit())
	wantObserved(t, s, "it opens", 1, 1)
	got := s.Decide(s.Hit(func(h *detectors.Hit) { h.Phase, h.Last = detectors.PhaseClosed, h.Last.Add(time.Millisecond) }))
	if fmt.Sprint(got) != "[extended]" {
		t.Fatalf("the closing hit: %v", got)
	}
	wantObserved(t, s, "it closes", 1, 1)
}
