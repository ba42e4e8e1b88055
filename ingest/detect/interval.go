package detect

import (
	"math"
	"time"

	"github.com/weirhq/weir/ingest"
)

// snapshotRate is the most that one process writes into the checkpoint store, in bytes a second: with more state the
// interval grows.
const snapshotRate = 10 << 20

// A snapshot is of use while the log still holds the records that follow it. So is the snapshot before it, which stands in
// when the newest one is torn. A third of the log's retention leaves time for both and for writing them.
const retentionParts = 3

// mostInterval is the longest interval between two snapshots of a partition.
func mostInterval(r ingest.Retention) time.Duration {
	if r.Time <= 0 {
		return math.MaxInt64
	}
	return r.Time / retentionParts
}

// SnapshotRoom is a budget held against what the keyed topic keeps: one process may have to own all partitions, with all
// budgets used up, and its snapshots must be written before the log that they need is gone.
type SnapshotRoom struct {
	Budget     int64 // bytes of a keyed partition; no snapshot is larger
	Partitions int
	Retention  ingest.Retention
}

// Fits reports whether the snapshots can be written in time.
func (r SnapshotRoom) Fits() bool { return r.WriteTime() <= r.MostTime() }

// WriteTime is how long a process takes to write a snapshot of every partition.
func (r SnapshotRoom) WriteTime() time.Duration {
	return writeTime(float64(r.Budget) * float64(r.Partitions))
}

// MostTime is how long that may take: a third of what the topic keeps.
func (r SnapshotRoom) MostTime() time.Duration { return mostInterval(r.Retention) }

// MostBudget is the greatest budget that fits the retention.
func (r SnapshotRoom) MostBudget() int64 {
	return int64(min(r.MostTime().Seconds()*snapshotRate/float64(r.Partitions), math.MaxInt64/2))
}

// LeastRetention is the shortest retention that fits the budget.
func (r SnapshotRoom) LeastRetention() time.Duration {
	return retentionParts * min(r.WriteTime()+time.Millisecond, math.MaxInt64/retentionParts)
}

// writeTime is how long a process takes to write snapshots of so many bytes.
func writeTime(bytes float64) time.Duration {
	return time.Duration(min(bytes/snapshotRate*float64(time.Second), math.MaxInt64/2))
}

// interval is the time until the next snapshot of a partition whose last one had size bytes, if all partitions are like it.
func (d *Detector) interval(size int64) time.Duration {
	all := writeTime(float64(size) * float64(len(d.memory)))
	return min(max(d.opt.Checkpoint, all), mostInterval(d.opt.Retention))
}

// runsAway reports whether so much was folded since the partition's newest snapshot that the log, which keeps a number of
// bytes, may soon begin after it. Records are counted as they are unpacked, and so rather too early.
func (o *owned) runsAway() bool {
	return o.d.opt.Retention.Bytes > 0 && o.folded-o.savedAt > o.d.opt.Retention.Bytes/retentionParts
}
