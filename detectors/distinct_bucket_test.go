package detectors

import (
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A snapshot of format 2 keeps when a bucket of distinct values got its newest value, and not when an event came with one that
// it had. An event between the two is not late to whoever has restored it: it has to fold a log as the release before does,
// whose formats both write until the last process of it is gone.
func TestKnownValueIsNotLateAfterFormat2(t *testing.T) {
	l := newLineage("r", 1, &ledger{})
	v := &rules.Version{Document: rules.Document{
		Algorithm: rules.AlgorithmLeakyBucket, Limit: 3, Window: time.Minute, Count: rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldUser}},
	}}
	l.start(v, 3)
	d := l.algorithm
	add := func(c *cell, second int64, value uint64) *event {
		ev := &event{}
		ev.begin(traffic.Time(second)*1_000_000, 3, 3)
		ev.value, ev.dead = value, traffic.BeforeTime
		d.add(c, ev)
		return ev
	}
	var c, restored cell
	add(&c, 100, 7)
	add(&c, 120, 7)
	r := &reader{b: d.append(nil, &c, 2), format: 2}
	if d.restore(&restored, r); r.err != nil {
		t.Fatal(r.err)
	}
	if ev := add(&restored, 110, 7); ev.behind || ev.left != 0 || len(ev.exceedances) > 0 {
		t.Errorf("behind %v, %d left out, %d over", ev.behind, ev.left, len(ev.exceedances))
	}
	if ev := add(&restored, 109, 7); !ev.behind {
		t.Error("an event before one that came since is not late")
	}
}
