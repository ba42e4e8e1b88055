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
		p.Learn(&rules.Routing{Number: n + 1, Rules: make([]rules.Version, 3)})
	}
	if len(p.routings) > KeptRoutings {
		t.Errorf("%d routing versions are kept", len(p.routings))
	}
	if p.routings[1000].bindings == nil || p.routings[1].bindings != nil {
		t.Errorf("the newest is known: %v, the oldest: %v", p.routings[1000].bindings != nil, p.routings[1].bindings != nil)
	}
	p.Learn(&rules.Routing{Number: 1})
	if p.routings[1].bindings == nil || p.routings[1000].bindings == nil {
		t.Error("a version that was learned just now is not known")
	}
}
