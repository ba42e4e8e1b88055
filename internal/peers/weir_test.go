package peers

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// weirWindow is what production runs.
func weirWindow(d rules.Document) window { return counter{detectors.NewCounter(d)} }

type counter struct{ *detectors.Counter }

func (c counter) add(at, units int64, value string) (over bool, remaining int64) {
	v := c.Add(traffic.Time(at), units, value)
	return v.Over, v.Remaining
}

func (c counter) setLimit(limit, burst int) { c.SetLimit(limit, burst) }
