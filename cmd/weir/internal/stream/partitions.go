package stream

import (
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
)

// GapAcceptable reports whether a partition stopped at a gap, which an operator may accept, and for nothing else. A stage
// reports -1 where there is none, and older ones did 0 of keyed: a gap of keyed ends behind offset 0.
func GapAcceptable(p *partitions.ReportedPartition) bool {
	least := int64(0)
	if p.Side == ingest.SideKeyed {
		least = 1
	}
	return p.State != ingest.Running && p.GapOffset >= least
}

// UpTo lists the partitions 0 to n-1.
func UpTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
