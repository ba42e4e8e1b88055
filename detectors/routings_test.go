package detectors

import (
	"testing"

	"github.com/weirhq/weir/rules"
)

// Rules are edited for years: what a partition remembers of routing versions must not grow with that, and what it has
// forgotten it must be able to learn again.
func TestRoutingVersionsAreForgotten(t *testing.T) {
	p := NewPartition(Config{Sources: 1, Generation: 1})
	for n := range int64(1000) {
		p.Learn(NewPlan(&rules.Routing{Number: n + 1, Rules: make([]rules.Version, 3)}))
	}
	if len(p.routings.known) > KeptRoutings {
		t.Errorf("%d routing versions are kept", len(p.routings.known))
	}
	if p.routings.get(1000) == nil || p.routings.get(1) != nil {
		t.Errorf("the newest is known: %v, the oldest: %v", p.routings.get(1000) != nil, p.routings.get(1) != nil)
	}
	p.Learn(NewPlan(&rules.Routing{Number: 1}))
	if p.routings.get(1) == nil || p.routings.get(1000) == nil {
		t.Error("a version that was learned just now is not known")
	}
}
