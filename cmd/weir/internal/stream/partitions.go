package stream

import (
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
)

// GapAcceptable reports whether a partition has stopped at a gap, which an operator may accept, and for no other reason.
// Without a gap, stages report -1; those of older builds reported 0 of keyed partitions, where no gap can end.
func GapAcceptable(p *partitions.ReportedPartition) bool {
	least := int64(0)
	if p.Side == ingest.SideKeyed {
		least = 1
	}
	return p.State != ingest.Running && p.GapOffset >= least
}
