package peers

import (
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
)

// window is one window of one key. It is asked by weir's own and by the oracle, so that a case on which they differ is
// told from one that was read wrongly.
type window interface {
	// add gives it units of one value at an instant in microseconds; 0 units only ask.
	add(at, units int64, value string) (over bool, remaining int64)
	// setLimit changes limit and burst; burst 0 stands for the limit.
	setLimit(limit, burst int)
}

// maker makes the empty window of a rule: of its algorithm, count, limit, burst and window.
type maker func(rules.Document) window

// makers are all who are asked.
func makers() map[string]maker {
	return map[string]maker{"oracle": oracleWindow, "weir": weirWindow}
}

// oracleWindow is a bucket, or a fixed window that nobody has used before.
func oracleWindow(d rules.Document) window {
	if d.Algorithm == rules.AlgorithmFixed {
		return &plainSum{limit: int64(d.Limit)}
	}
	b := &bucket{distinct: d.Count.Distinct != nil}
	b.Window = d.Window.Microseconds()
	b.setLimit(d.Limit, d.Burst)
	return b
}

type bucket struct {
	oracle.HandBucket
	distinct bool
}

func (b *bucket) add(at, units int64, value string) (over bool, remaining int64) {
	if b.distinct {
		return b.Add(at, units, &value)
	}
	return b.Add(at, units, nil)
}

func (b *bucket) setLimit(limit, burst int) {
	if b.Limit, b.Burst = int64(limit), int64(burst); burst == 0 {
		b.Burst = b.Limit
	}
}

// plainSum is a window that never ends.
type plainSum struct{ limit, sum int64 }

func (s *plainSum) add(_, units int64, _ string) (over bool, remaining int64) {
	s.sum += units
	return s.sum > s.limit, max(0, s.limit-s.sum)
}

func (s *plainSum) setLimit(limit, _ int) { s.limit = int64(limit) }

// milliseconds is an instant of a case in microseconds. Instants are counted from a round one, since a window aligned to
// the clock may end anywhere else.
func milliseconds(ms float64) int64 {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).UnixMicro()
	return start + int64(ms*1000)
}
