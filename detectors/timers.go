package detectors

import (
	"container/heap"

	"github.com/weirhq/weir/traffic"
)

// timers holds the keys with episodes by (deadline, key, lineage). No clock drives it: the watermark does.
type timers struct{ h timerHeap }

// set puts k in, or moves it. A deadline that moves out is left where it is: it is found to be early when it comes up,
// which saves a heap operation for every event of a busy key.
func (t *timers) set(o *offender, due traffic.Time) {
	switch {
	case o.heap < 0:
		o.due = due
		heap.Push(&t.h, o)
	case due < o.due || o.heap == 0:
		o.due = due
		heap.Fix(&t.h, o.heap)
	}
}

func (t *timers) first() *offender {
	if len(t.h) == 0 {
		return nil
	}
	return t.h[0]
}

func (t *timers) remove(o *offender) { heap.Remove(&t.h, o.heap) }

type timerHeap []*offender

var _ heap.Interface = (*timerHeap)(nil)

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	if h[i].key != h[j].key {
		return h[i].key.less(h[j].key)
	}
	return h[i].lineage.id < h[j].lineage.id
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

func (h *timerHeap) Push(x any) {
	o := x.(*offender)
	o.heap = len(*h)
	*h = append(*h, o)
}

func (h *timerHeap) Pop() any {
	old := *h
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	o.heap = -1
	return o
}
