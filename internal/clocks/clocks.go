// Package clocks compares this machine's clock with those of the stores that a process talks to, and says when they
// differ: times that are compared with each other must be of clocks that agree.
package clocks

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Differences of clocks.
const (
	// Warns is the least difference that is told of.
	Warns = time.Second
	// Fails is that from which event times are corrected, or blocks begin and end at wrong moments; it is
	// route.FutureTolerance.
	Fails = 5 * time.Second
)

// Reading is what another machine's clock said between two readings of this one's.
type Reading struct {
	Theirs, Asked, Answered traffic.Time
}

// Ahead bounds by how much their clock is ahead of this machine's: at least least, at most most. Negative is behind.
func (r Reading) Ahead() (least, most time.Duration) {
	return r.Theirs.Sub(r.Answered), r.Theirs.Sub(r.Asked)
}

// Apart is by how much the clocks differ at the least, whatever the way of question and answer took. Negative: theirs
// is behind.
func (r Reading) Apart() time.Duration {
	least, most := r.Ahead()
	switch {
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}

// Size is how large a difference is, whoever is ahead.
func Size(apart time.Duration) time.Duration { return max(apart, -apart) }

// Seconds is a difference of so many seconds, as it was written down by a process: a century is the most.
func Seconds(s float64) time.Duration {
	const century = 100 * 365 * 24 * 60 * 60
	return time.Duration(min(max(s, -century), century) * float64(time.Second))
}

// Worst is the reading that differs most, of several machines of one store; false without any.
func Worst(all []Reading) (worst Reading, any bool) {
	for i, r := range all {
		if i == 0 || Size(r.Apart()) > Size(worst.Apart()) {
			worst = r
		}
	}
	return worst, len(all) > 0
}

// Heard collects readings that come along with other work, such as the times that brokers give to records. Its methods
// may be called by several goroutines.
type Heard struct {
	mu    sync.Mutex
	worst Reading
	any   bool
}

// Add takes a reading in.
func (h *Heard) Add(r Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.any || Size(r.Apart()) > Size(h.worst.Apart()) {
		h.worst, h.any = r, true
	}
}

// Take gives the reading since the last Take that differs most; false where there was none.
func (h *Heard) Take() (Reading, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	worst, any := h.worst, h.any
	h.worst, h.any = Reading{}, false
	return worst, any
}

// Offset is by how much the clock of a store is ahead of that of a process, at the least; negative: behind.
type Offset struct {
	Store string
	Apart time.Duration
}

// String says it of the process's clock, since it is more often one of many machines that is wrong.
func (o Offset) String() string {
	apart := Size(o.Apart).Round(time.Millisecond)
	switch {
	case o.Apart > 0:
		return fmt.Sprintf("%s behind %s", apart, o.Store)
	case o.Apart < 0:
		return fmt.Sprintf("%s ahead of %s", apart, o.Store)
	}
	return "as " + o.Store
}
