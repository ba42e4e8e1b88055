// Package detectors is DETECT's heart: windows, episodes and hits as plain data, moved by the keyed log only. It knows
// no clock, does no I/O and starts no goroutine, so the same keyed log gives the same hits, byte for byte: live, in a
// replay, and after any crash.
package detectors

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Config is what a Partition must know that the log does not tell. It must be the same in every process of a stream, and it
// is part of the deployment: changing Stall, IdleMargin or Budget changes what a replay finds.
type Config struct {
	Keyed      int   // number of this keyed partition
	Sources    int   // partitions that the requests topic had when this generation of it began; see fence.grow for those added since
	Generation int64 // the newest generation of the requests topic that this process knows
	Secret     Secret
	// Stall is how long, by append time that passes, a source partition may be silent before the watermark stops waiting
	// for it. 0 means DefaultStall.
	Stall time.Duration
	// IdleMargin is how far the progress of an idle source partition stays behind the clock, so that an event on its way
	// is not late when it arrives, unless it takes longer than this and its rule's lateness together. An episode of a stream
	// that has fallen silent closes that much later. 0 means DefaultIdleMargin.
	IdleMargin time.Duration
	// Budget is how many bytes the keys of this partition may take, as Bytes counts them; beyond, keys are evicted. 0
	// means no bound, which is for tests only.
	Budget int64
}

// DefaultBudget is the budget of a keyed partition unless the deployment says otherwise: 256 MiB, some six million keys
// of counter algorithms. A process needs the budget times the partitions that it owns.
const DefaultBudget = 256 << 20

// Partition is the state of one keyed partition: everything that a checkpoint holds. It is not safe for concurrent use;
// one owner folds the log into it, record by record.
//
// A record goes downhill: the fence decides whether it counts, the watermark whether it is on time, the keyspace has the
// windows that count it, and the report writes the hits.
type Partition struct {
	cfg      Config
	routings learnedVersions

	fence     fence
	watermark watermark
	keys      keyspace
	uncounted uncountedSums
	refusals  refusalSums
	trials    trials
	report    report

	events   int64            // accepted event records, the rank of the next
	resets   int64            // the newest routing version of which resets were applied; 0: none
	format   int              // of snapshots: what every process of the stream can read
	snapshot *SnapshotEncoder // the snapshot under way
	lost     lostVersions     // those whose first event was met here; no part of the state

	counts Counts

	// Memory that every event uses again.
	prefetcher   prefetcher
	fingerprints fingerprinter
	event        event
	outcome      outcome
}

// Counts are what a partition has done since it was made or restored. They are for metrics and no part of the state.
type Counts struct {
	Events     int64 // accepted event records
	Duplicates int64 // event records that the fence dropped
	Ticks      int64
	Lost       int64 // accepted event records of routing versions that the rule store has lost, which no rule counts
	// Counted are (event, rule) pairs that fed a window. The others were left out: Late, OutOfOrder and MissingValue say
	// why, as Uncounted has it, and TakeRuleEvents by rule. Each pair is in one of the four, whatever stands beside the rule's
	// limit; a pending version is a rule here.
	Counted, Late, OutOfOrder, MissingValue int64
	// Evicted are the keys that were forgotten for the budget's sake, by what they were.
	Evicted [NumEvictions]int64
	// Reset are the keys that were forgotten because an operator reset them: windows, of whatever lineage of the rule.
	Reset int64
	// TrialsEvicted are the keys and blocks of which it was forgotten what a block would have done to them, GoodEvicted the sources that
	// were known to be good, and RunningLeftOut the running counts that were not told of because others were worse.
	TrialsEvicted, GoodEvicted, RunningLeftOut int64
	// ApproachDropped are the events of keys on their way to a limit that were dropped for want of room.
	ApproachDropped int64
}

// UnknownVersionError says that a record needs a routing version that Learn has not been given.
type UnknownVersionError struct{ Version int64 }

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("routing version %d is not known here", e.Version)
}

// NewPartition returns the state before the first record.
func NewPartition(cfg Config) *Partition {
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.IdleMargin <= 0 {
		cfg.IdleMargin = DefaultIdleMargin
	}
	p := &Partition{
		cfg: cfg, routings: learnedVersions{known: map[int64]*learned{}},
		fence: newFence(&cfg), watermark: newWatermark(&cfg), keys: newKeyspace(cfg.Budget), uncounted: newUncountedSums(),
		refusals: newRefusalSums(),
	}
	p.format = oldestSnapshotFormat
	p.report = report{keyed: cfg.Keyed, secret: &p.cfg.Secret}
	p.trials = newTrials(p)
	p.fingerprints.secret = &p.cfg.Secret
	return p
}

// Learn gives the partition a routing version that records may name. Beyond KeptRoutings the oldest other one is forgotten.
func (p *Partition) Learn(plan *Plan) {
	r := plan.routing
	v := &learned{number: r.Number, lost: r.Lost, blocks: blockKeys(plan.rules),
		bindings: newBindings(plan.rules, p.keys.lineageOf), resets: newResets(r.Resets, &p.cfg.Secret, p.resets)}
	if n := len(v.resets); n > 0 {
		v.reset = v.resets[n-1].since
	}
	p.routings.put(v)
	p.keys.looks++
	for l := range p.uncounted.lineages() {
		l.named = p.keys.looks
	}
	for _, v := range p.routings.known {
		for i := range v.bindings {
			v.bindings[i].lineage.named = p.keys.looks
			for _, b := range v.bindings[i].beside {
				b.lineage.named = p.keys.looks
			}
		}
	}
	p.keys.prune(p.watermark.at)
}

// AcceptGap lets the hole pass that the record at offset of source found (HoleError's Source and Offset). Acceptances
// are input like the log: the same ones must be given again after a restart.
func (p *Partition) AcceptGap(source int, offset int64) { p.fence.accepted[gap{source, offset}] = true }

// Unfolded are keyed records that will not be folded.
type Unfolded struct {
	From, To int64 // offsets, To not included
	// Anew says that the log has ended before From and that another one follows, from its start on: how many records
	// behind From were not read is not known, and To is not asked for.
	Anew bool
	Why  string // what became of them
}

// Rebase says which keyed records will not be folded. Fences take the next record of each source partition as it comes,
// and drop what was folded before; the returned loss record says so.
func (p *Partition) Rebase(lost Unfolded) Hit {
	p.fence.rebase()
	return p.report.rebase(lost, p.fence.generation, &p.watermark)
}

// Watermark is the least progress over all source partitions: no event older than it is expected any more.
func (p *Partition) Watermark() traffic.Time { return p.watermark.at }

// Stalled lists the source partitions that the watermark does not wait for.
func (p *Partition) Stalled() []int { return p.watermark.stalled() }

// Skew is how far the progress of the source partitions lies apart: the greatest less the least, of those that are not
// stalled, have shown any, and have not ended.
func (p *Partition) Skew() time.Duration { return p.watermark.skew() }

// Keys is how many windows are held.
func (p *Partition) Keys() int { return p.keys.ledger.keys }

// Bytes is the memory of the windows, and of the tags of evicted keys. It is a function of the state, at the worst point of a
// table's growth; the process's memory follows it.
func (p *Partition) Bytes() int64 { return p.keys.bytes() }

// Counts returns the counts since the partition was made or restored.
func (p *Partition) Counts() Counts { return p.counts }
