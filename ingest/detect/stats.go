package detect

import (
	"maps"
	"slices"
	"sync"
)

// Stats is what a detector has done since it was made, and how its partitions are.
type Stats struct {
	Opened int64 // episodes that it opened
	Events int64 // event records that the fences accepted, as of the last reports
	Owned  int   // partitions that it owns and has reported of
	// Lag is the number of keyed records not yet folded, and Halted lists the partitions that have stopped, ascending: both of
	// the partitions that it owns, as of their last report.
	Lag    int64
	Halted []int
}

// tally collects Stats. Its zero value is ready; it is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	opened int64
	events int64
	lag    map[int]int64 // by partition
	halted map[int]bool
}

func (t *tally) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
}

// observe takes the report of a partition; events are those since its report before.
func (t *tally) observe(partition int, events, lag int64, halted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events += events
	if t.lag == nil {
		t.lag, t.halted = map[int]int64{}, map[int]bool{}
	}
	t.lag[partition] = lag
	delete(t.halted, partition)
	if halted {
		t.halted[partition] = true
	}
}

// forget drops partitions that are not this process's any more.
func (t *tally) forget(partitions []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range partitions {
		delete(t.lag, p)
		delete(t.halted, p)
	}
}

// Stats answers at once, and may be called at any time.
func (d *Detector) Stats() Stats {
	t := &d.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Opened: t.opened, Events: t.events, Owned: len(t.lag), Halted: slices.Sorted(maps.Keys(t.halted))}
	for _, n := range t.lag {
		s.Lag += n
	}
	return s
}
