package detectors

import (
	"container/heap"

	"github.com/weirhq/weir/traffic"
)

// timers holds the windows by (deadline, key). No clock drives it: the watermark does.
type timers struct{ h timerHeap }

// set puts w in, or moves it. A deadline that moves out is left where it is: it is found to be early when it comes up,
// which saves a heap operation for every event of a busy key.
func (t *timers) set(w *window, due traffic.Time) {
	switch {
	case w.heap < 0:
		w.due = due
		heap.Push(&t.h, w)
	case due < w.due || w.heap == 0:
		w.due = due
		heap.Fix(&t.h, w.heap)
	}
}

func (t *timers) first() *window {
	if len(t.h) == 0 {
		return nil
	}
	return t.h[0]
}

func (t *timers) remove(w *window) { heap.Remove(&t.h, w.heap) }

type timerHeap []*window

var _ heap.Interface = (*timerHeap)(nil)

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].key.less(h[j].key)
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

func (h *timerHeap) Push(x any) {
	w := x.(*window)
	w.heap = len(*h)
	*h = append(*h, w)
}

func (h *timerHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.heap = -1
	return w
}
