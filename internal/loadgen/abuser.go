package loadgen

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// abuser sends by a pattern. Its first request comes within two seconds of the start.
type abuser struct {
	number  int
	pattern Pattern
	draw    *rand.Rand
	begun   time.Duration
	next    time.Duration
	gap     time.Duration // mean distance of requests while it is active
	cycle   time.Duration // 0: always active
	active  time.Duration // of each cycle, from its beginning
}

func newAbuser(s *Settings, n int) *abuser {
	a := &abuser{number: n, pattern: s.Patterns[n%len(s.Patterns)], draw: rand.New(rand.NewPCG(s.Seed, drawAbusers+uint64(n)))}
	a.gap = time.Duration(1e6/s.AbuseRate) * time.Microsecond
	switch a.pattern {
	case Burst:
		a.gap /= 4
		a.cycle, a.active = 20*time.Second, 5*time.Second
	case Slow:
		a.gap *= 10
	case Return:
		a.cycle, a.active = time.Minute, 20*time.Second
	case Steady, Rotate:
	}
	a.gap = max(a.gap, 2*time.Microsecond)
	a.begun = time.Duration(a.draw.Int64N(2_000_000)) * time.Microsecond
	a.next = a.begun
	return a
}

// advance draws the next request: half a gap to one and a half after the last, and not in a pause.
func (a *abuser) advance() {
	gap := a.gap.Microseconds()
	a.next += time.Duration(gap/2+a.draw.Int64N(gap+1)) * time.Microsecond
	if a.cycle == 0 {
		return
	}
	if into := (a.next - a.begun) % a.cycle; into >= a.active {
		a.next += a.cycle - into
	}
}

// abuserHeap has the abuser whose turn is next at its front; of several, the one with the lowest number.
type abuserHeap []*abuser

var _ heap.Interface = (*abuserHeap)(nil)

func (h abuserHeap) Len() int { return len(h) }

func (h abuserHeap) Less(i, j int) bool {
	return h[i].next < h[j].next || h[i].next == h[j].next && h[i].number < h[j].number
}

func (h abuserHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *abuserHeap) Push(x any) { *h = append(*h, x.(*abuser)) }

func (h *abuserHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
