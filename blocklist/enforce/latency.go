package enforce

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist/internal/recent"
)

// latency observes how long blocks took, each as soon as it is known to stand: what becomes of the batch afterwards makes no
// difference to it. A batch that is given again brings the same decisions, and none is observed twice.
type latency struct {
	seconds  prometheus.Observer
	standing *Standing

	mu     sync.Mutex
	failed *recent.Set // observed decisions of batches that failed afterwards
}

func newLatency(seconds prometheus.Observer, blocks *Standing) *latency {
	return &latency{seconds: seconds, standing: blocks, failed: recent.NewSet(seenDecisions)}
}

// observe is told of the decision about a block that stands, and that was not acknowledged before.
//
// A block that stood already, again, is this process's own where its record came while the process read the partition: an answer of
// Redis was lost, or a later effect of the batch failed. Another process may have written the block of an older record, and observed it.
func (l *latency) observe(s *batchState, f *effect, decision string, again bool) {
	switch {
	case f.asked == nil: // a closing hit comes a window late by nature
	case s.emitted[decision] || l.wasObserved(decision):
	case again && !l.standing.reads(f.asked.message.Partition, f.asked.message.Appended):
	default:
		s.observed = append(s.observed, decision)
		// An event may name a time ahead of the clock, and the sum of a histogram must not fall.
		l.seconds.Observe(max(0, f.raised.Sub(f.asked.hit.Last).Seconds()))
	}
}

func (l *latency) wasObserved(decision string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed.Has(decision)
}

// remember keeps what a batch that failed has observed. What one that did not has decided, the Enforcer remembers.
func (l *latency) remember(s *batchState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, decision := range s.observed {
		l.failed.Add(decision)
	}
}
