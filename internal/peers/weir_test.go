package peers

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// weirWindow is what production runs, in the world of these cases: a peer reads the clock when an event comes, so the
// clock of a key never goes back, whatever time the event's line tells. weir itself counts an event where it lies, or not
// at all; that is not asked here.
func weirWindow(d rules.Document) window {
	return &counter{detectors.NewCounter(d), int64(traffic.BeforeTime)}
}

type counter struct {
	*detectors.Counter
	clock int64
}

func (c *counter) add(at, units int64, value string) (over bool, remaining int64) {
	c.clock = max(c.clock, at)
	v := c.Add(traffic.Time(c.clock), units, value)
	return v.Over, v.Remaining
}

func (c *counter) setLimit(limit, burst int) { c.SetLimit(limit, burst) }
