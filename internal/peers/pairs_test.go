package peers

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// TestLegalPairs runs each legal pair of algorithm and count through production: at one instant, all algorithms agree on
// what is over, whatever they do about time.
func TestLegalPairs(t *testing.T) {
	pairs := 0
	for _, a := range rules.Algorithms() {
		for _, kind := range a.Counts() {
			for _, limit := range []int{0, 2, 40} {
				pairs++
				checkPair(t, a, kind, limit)
			}
		}
	}
	if pairs != 18*3 {
		t.Errorf("%d pairs and limits, want all 18 pairs with 3 limits each", pairs)
	}
}

func checkPair(t *testing.T, a rules.Algorithm, kind rules.CountKind, limit int) {
	t.Helper()
	d := rules.Document{ID: "pair", Owner: "us", Algorithm: a, Limit: limit, Window: time.Minute, MaxLag: time.Minute, Missing: rules.MissingSkip}
	each := int64(1)
	switch kind {
	case rules.CountDistinct:
		d.Count.Distinct = &traffic.KeyField{Field: traffic.FieldUser}
	case rules.CountSum:
		d.Count.Sum, each = "attrs.cost", 3
	}
	if err := d.Validate(rules.Environment{Identity: traffic.DefaultIdentityMap()}); err != nil {
		t.Fatal(err)
	}
	w, at, sum := weirWindow(d), milliseconds(0), int64(0)
	for i := range limit + 2 {
		// Each value comes twice in a row: the second adds nothing where distinct ones count, and must not be over for it.
		value := strconv.Itoa(i)
		over, _ := w.add(at, each, value)
		sum += each
		if want := sum > int64(limit); over != want {
			t.Errorf("%s of %s, limit %d: the event that makes it %d is over: %v, want %v", a, kind, limit, sum, over, want)
		}
		if over, _ := w.add(at, each, value); kind == rules.CountDistinct && sum <= int64(limit) && over {
			t.Errorf("%s of %s, limit %d: a known value is over at %d", a, kind, limit, sum)
		} else if kind != rules.CountDistinct {
			sum += each
		}
	}
}

// TestSlidingExact: what rules say of sliding when documents are compared is what detectors do.
func TestSlidingExact(t *testing.T) {
	if rules.SlidingExact != detectors.SlidingExact {
		t.Errorf("rules say that sliding is exact up to %d, detectors %d", rules.SlidingExact, detectors.SlidingExact)
	}
	if format.MaxUnits <= rules.MaxLimit {
		t.Errorf("an event of %d units need not be over a limit of %d", format.MaxUnits, rules.MaxLimit)
	}
}
