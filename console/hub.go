package console

import (
	"bytes"
	"errors"
	"maps"
	"sync"
	"time"
)

// The sections of the page: names of SSE events and of resources below /api/v1.
const (
	sectionPulse  = "pulse"
	sectionRules  = "rules"
	sectionHits   = "hits"
	sectionBlocks = "blocks"
)

// keepFrames is how long frames of the stores hold after the last viewer has left.
const keepFrames = 2 * PollEvery

var (
	errFull    = errors.New("too many viewers")
	errOwn     = errors.New("too many viewers of one actor")
	errStopped = errors.New("the console is stopping")
)

// hub keeps the newest frame of each section and hands it to every viewer. A viewer that is slower than the polls misses
// frames, never the newest one, so that nothing queues up.
type hub struct {
	most int
	done chan struct{} // closed when the console stops

	mu      sync.Mutex
	frames  map[string][]byte
	told    time.Time // when a store's section was last published, news or not
	viewers map[*viewer]struct{}
	of      map[string]int  // viewers by actor
	wakes   []chan struct{} // of pollers that rest while nobody watches
	stopped bool
}

// viewer is one open stream, or a JSON request that waits for a section.
type viewer struct {
	of      string            // whose it is
	ready   chan struct{}     // holds an item while pending is not empty
	pending map[string][]byte // section → newest frame not yet taken; guarded by hub.mu
}

func newHub(most int) *hub {
	return &hub{most: most, done: make(chan struct{}), frames: map[string][]byte{}, viewers: map[*viewer]struct{}{},
		of: map[string]int{}}
}

// join adds a viewer of an actor, to which all known frames are pending.
func (h *hub) join(of string) (*viewer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return nil, errStopped
	case h.of[of] >= mostOfOne:
		return nil, errOwn
	case len(h.viewers) >= h.most:
		return nil, errFull
	}
	// What nobody kept up to date is not shown as news.
	if len(h.viewers) == 0 && time.Since(h.told) > keepFrames {
		maps.DeleteFunc(h.frames, func(section string, _ []byte) bool { return section != sectionPulse })
	}
	v := &viewer{of: of, ready: make(chan struct{}, 1), pending: maps.Clone(h.frames)}
	h.viewers[v] = struct{}{}
	h.of[of]++
	if len(v.pending) > 0 {
		v.ready <- struct{}{}
	}
	if len(h.viewers) == 1 {
		for _, w := range h.wakes {
			signal(w)
		}
	}
	return v, nil
}

// leave removes a viewer.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := h.viewers[v]; !is {
		return
	}
	delete(h.viewers, v)
	if h.of[v.of]--; h.of[v.of] == 0 {
		delete(h.of, v.of)
	}
}

// take returns what is pending to v.
func (h *hub) take(v *viewer) map[string][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := v.pending
	v.pending = map[string][]byte{}
	return out
}

// publish makes frame the newest of its section. The same bytes again are no news.
func (h *hub) publish(section string, frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if section != sectionPulse {
		if len(h.viewers) == 0 {
			return
		}
		h.told = time.Now()
	}
	if bytes.Equal(h.frames[section], frame) {
		return
	}
	h.frames[section] = frame
	for v := range h.viewers {
		v.pending[section] = frame
		signal(v.ready)
	}
}

// watched reports whether anybody is there.
func (h *hub) watched() bool { return h.count() > 0 }

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.viewers)
}

// waker returns a channel that gets an item when the first viewer comes.
func (h *hub) waker() <-chan struct{} {
	w := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakes = append(h.wakes, w)
	if len(h.viewers) > 0 {
		signal(w)
	}
	return w
}

// close tells every viewer to leave and lets no new one in.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.stopped = true
		close(h.done)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been told already
	}
}
