package simulation

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/story"
)

// script does to a world what the steps of a story say, and nothing else goes wrong there. A nil script does nothing.
type script struct {
	story *story.Story

	mu     sync.Mutex
	hosts  map[*host]bool // those that live
	armed  []story.Step   // kills and freezes whose moment has not come yet
	spoken map[*host]bool // detectors whose hits were acknowledged while such a kill was armed
}

func newScript(s *story.Story) *script {
	return &script{story: s, hosts: map[*host]bool{}, spoken: map[*host]bool{}}
}

// perform does each step at its time. Events and silences stand in the world from the beginning, promotions in its modes.
func (s *script) perform(ctx context.Context, w *world) {
	for i := range s.story.Steps {
		step := &s.story.Steps[i]
		rest(ctx, w.begin.Add(step.At).Sub(now())+time.Microsecond)
		switch step.Do {
		case story.ActKill, story.ActFreeze:
			s.arm(*step)
		case story.ActRewind:
			s.each(step.Stage, (*host).kill)
			rest(ctx, time.Millisecond)
			w.rewind(step.Stage)
		case story.ActRelease:
			w.releaseBlock(step)
		}
	}
}

func (s *script) arm(step story.Step) {
	if step.Do == story.ActKill && step.When == story.Now {
		s.each(step.Stage, (*host).kill)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = append(s.armed, step)
}

// each does something to every process of a stage that lives.
func (s *script) each(stage string, do func(*host)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.hosts {
		if h.runs(stage) {
			do(h)
		}
	}
}

func (h *host) runs(stage string) bool { return strings.HasPrefix(h.name, stage) }

// watch waits until a process is dead, or over.
func (s *script) watch(ctx context.Context, h *host) {
	s.mu.Lock()
	s.hosts[h] = true
	s.mu.Unlock()
	select {
	case <-h.died:
	case <-ctx.Done():
	}
	s.mu.Lock()
	delete(s.hosts, h)
	s.mu.Unlock()
}

// dies kills a process whose moment has come; true if it has.
func (s *script) dies(h *host, when story.Moment) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.next(h, story.ActKill, when)
	if at < 0 || when == story.BeforeSnapshot && !s.spoken[h] {
		return false
	}
	s.armed = slices.Delete(s.armed, at, at+1)
	clear(s.spoken)
	h.kill()
	return true
}

// next is the place of an armed step that is about a process; -1 for none. The lock must be held.
func (s *script) next(h *host, act story.Act, when story.Moment) int {
	return slices.IndexFunc(s.armed, func(step story.Step) bool { return step.Do == act && step.When == when && h.runs(step.Stage) })
}

// freezes stops a process that is about to write, if one of its stage is to be stopped.
func (s *script) freezes(h *host) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.next(h, story.ActFreeze, story.Now); at >= 0 {
		h.freeze(s.armed[at].For)
		s.armed = slices.Delete(s.armed, at, at+1)
	}
}

// written hears of a batch that was written; true if that was the last thing which its writer did.
func (s *script) written(a *topicAppender, value []byte) bool {
	switch {
	case s == nil:
		return false
	case a.t == a.w.keyed && detectors.KeyedKind(value[1]) == detectors.KeyedEvent:
		return s.dies(a.host, story.MidChunk)
	case a.t == a.w.hits:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spoken[a.host] = slices.ContainsFunc(s.armed, func(step story.Step) bool { return step.When == story.BeforeSnapshot })
	}
	return false
}

// rewind lets a stage read the hits again from the beginning.
func (w *world) rewind(stage string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stage == ingest.StageRecord {
		clear(w.recorders.commits)
	} else {
		clear(w.keepers.commits)
	}
}

func (w *world) releaseBlock(step *story.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, err := blocklist.NewRelease(step.Subject, step.Rule, "operator", "a mistake", now())
	if err != nil {
		w.say("release: %v", err)
		return
	}
	raw, err := detectors.EncodeHit(&h)
	if err != nil {
		w.say("release: %v", err)
		return
	}
	w.hits.put(h.Partition(len(w.hits.parts)), [][]byte{raw})
}
