package order

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// way is an algorithm with what it counts.
type way struct {
	algorithm rules.Algorithm
	count     rules.CountKind
	above     bool // sliding with a limit above rules.SlidingExact
}

// cuts is into how many parts the window of `sliding` is cut where the limit is too great for a log.
const cuts = 64

func everyWay() []way {
	var out []way
	for _, a := range rules.Algorithms() {
		for _, c := range a.Counts() {
			out = append(out, way{a, c, false})
			if a == rules.AlgorithmSliding {
				out = append(out, way{a, c, true})
			}
		}
	}
	return out
}

func (w way) String() string {
	if w.above {
		return fmt.Sprintf("%s above %d, %s", w.algorithm, rules.SlidingExact, w.count)
	}
	return fmt.Sprintf("%s, %s", w.algorithm, w.count)
}

func (w way) distinct() bool { return w.count == rules.CountDistinct }

func (w way) bucket() bool {
	return w.algorithm == rules.AlgorithmTokenBucket || w.algorithm == rules.AlgorithmLeakyBucket
}

// orderFree reports whether order within the lateness makes no difference to who is flagged.
func (w way) orderFree() bool {
	return w.algorithm == rules.AlgorithmFixed || w.algorithm == rules.AlgorithmSlidingLog || w.algorithm == rules.AlgorithmSliding && !w.above
}

// logged reports whether all events of a key that are still of use are kept, each with its time.
func (w way) logged() bool {
	return w.orderFree() && w.algorithm != rules.AlgorithmFixed && !w.distinct()
}

// document is a rule that counts so, with the address for its key.
func (w way) document(limit int, window, lateness traffic.Time) rules.Document {
	d := rules.Document{
		ID: "rule", Owner: "tests", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Missing: rules.MissingSkip,
		Algorithm: w.algorithm, Limit: limit, Window: time.Duration(window) * time.Microsecond, Lateness: time.Duration(lateness) * time.Microsecond,
	}
	switch w.count {
	case rules.CountDistinct:
		d.Count.Distinct = &traffic.KeyField{Field: traffic.FieldDevice}
	case rules.CountSum:
		d.Count.Sum = "attrs.cost"
	}
	return d
}

// definition is what the documents say that the way counts.
func (w way) definition(window traffic.Time, capacity int) oracle.Definition {
	return oracle.Definition{Algorithm: string(w.algorithm), Distinct: w.distinct(), Window: int64(window), Capacity: int64(capacity)}
}

// shorter is the true window without one slice, rounded up: what `sliding` above its log is over by for certain.
func (w way) shorter(window traffic.Time) oracle.Definition {
	d := w.definition(window, 0)
	d.Window -= (d.Window + cuts - 1) / cuts
	return d
}

// truths are what a flagged key must truly have been over, one of them.
func (w way) truths(window traffic.Time, capacity int, steps []oracle.Step) []*oracle.Truth {
	d := w.definition(window, capacity)
	out := []*oracle.Truth{oracle.NewTruth(d, steps)}
	if w.above && w.distinct() { // two sets that rotate, weighed
		d.Algorithm = string(rules.AlgorithmSlidingCounter)
		out = append(out, oracle.NewTruth(d, steps))
	}
	return out
}

// eachWay runs a property for the ways that it is about.
func eachWay(t *testing.T, about func(way) bool, property func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range everyWay() {
		if about(w) {
			t.Run(w.String(), func(t *testing.T) { property(t, w) })
		}
	}
}

func anyWay(way) bool { return true }
