// Package detectors is DETECT's heart: windows, episodes and hits as plain data, moved by the keyed log only. It knows
// no clock, does no I/O and starts no goroutine, so the same keyed log gives the same hits, byte for byte: live, in a
// replay, and after any crash.
package detectors

import (
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// DefaultStall is how long, by the stall clock, a source partition may be silent before the watermark stops waiting.
const DefaultStall = 5 * time.Minute

// Config is what a Partition must know that the log does not tell. It must be the same in every process of a stream.
type Config struct {
	Keyed      int   // number of this keyed partition
	Sources    int   // partitions that the requests topic had when this generation of it began; see grow for those added since
	Generation int64 // the newest generation of the requests topic that this process knows
	Secret     Secret
	Stall      time.Duration // default DefaultStall
	// Budget is how many bytes the keys of this partition may take, as Bytes counts them; 0 means no bound, which is for
	// tests only. It decides what is evicted, and so is part of the deployment: changing it changes what a replay finds.
	Budget int64
}

// DefaultBudget is the budget of a keyed partition unless the deployment says otherwise: 256 MiB, some six million keys
// of counter algorithms. A process needs the budget times the partitions that it owns.
const DefaultBudget = 256 << 20

// Partition is the state of one keyed partition: everything that a checkpoint holds. It is not safe for concurrent use;
// one owner folds the log into it, record by record.
type Partition struct {
	cfg      Config
	routings map[int64][]binding // versions learned; not part of the state
	lineages map[string]*lineage
	ordered  []*lineage   // by id
	accepted map[gap]bool // gaps that an operator lets pass

	generation int64
	sources    []source
	clock      traffic.Time // the stall clock: append time that passed while anything was appended
	appended   traffic.Time // append time of the last record
	newest     traffic.Time // greatest append time of all
	watermark  traffic.Time
	events     int64 // accepted event records, the rank of the next
	recent     bool  // the last record was of a format that the release before does not know

	ledger ledger
	room   int64 // what the budget has for keys
	timers timers
	sweep  sweep
	evict  uint64 // upper words of fingerprints from here on are looked at next for eviction
	ahead  ahead
	write  *SnapshotEncoder // the snapshot under way

	uncounted uncountedSums

	counts Counts

	// Memory that every event uses again.
	subject, scratch []byte
	keys             []sharedKey
	event            event
	outcome          outcome
	sample           []candidate

	forecast forecast
	known    []foreseen // of the record that is folded, for each of its rules; none outside of FoldAll
}

// Counts are what a partition has done since it was made or restored. They are for metrics and no part of the state.
type Counts struct {
	Events     int64 // accepted event records
	Duplicates int64 // event records that the fence dropped
	Ticks      int64
	// Counted are (event, rule) pairs that fed a window. The others were left out: Late, OutOfOrder and MissingValue say
	// why, as Uncounted has it, and TakeUncounted by rule. Each pair is in one of the four.
	Counted, Late, OutOfOrder, MissingValue int64
	// Evicted are the keys that were forgotten for the budget's sake, by what they were.
	Evicted [NumEvictions]int64
}

// gap names a hole as operators accept it: the source partition and the offset of the record that found it.
type gap struct {
	source int
	offset int64
}

// UnknownVersionError says that a record needs a routing version that Learn has not been given.
type UnknownVersionError struct{ Version int64 }

func (e *UnknownVersionError) Error() string {
	return fmt.Sprintf("routing version %d is not known here", e.Version)
}

// HoleError says that records between Prev and Offset of a source partition never arrived. The partition must not go
// on until an operator accepts the gap: a blind detector must not look healthy.
type HoleError struct {
	Keyed, Source       int
	Fence, Prev, Offset int64
}

func (e *HoleError) Error() string {
	return fmt.Sprintf("keyed partition %d: source partition %d names offset %d as sent before %d, but only up to %d arrived",
		e.Keyed, e.Source, e.Prev, e.Offset, e.Fence)
}

// GenerationError says that the requests topic was recreated while this process ran.
type GenerationError struct{ Got, Known int64 }

func (e *GenerationError) Error() string {
	return fmt.Sprintf("keyed record of stream generation %d, this process was started for %d: restart it", e.Got, e.Known)
}

// NewPartition returns the state before the first record.
func NewPartition(cfg Config) *Partition {
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	p := &Partition{
		cfg: cfg, routings: map[int64][]binding{}, lineages: map[string]*lineage{}, accepted: map[gap]bool{},
		appended: traffic.BeforeTime, newest: traffic.BeforeTime, watermark: traffic.BeforeTime,
		uncounted: uncountedSums{sums: map[uncountedKey]*uncountedSum{}}, ledger: ledger{gone: newGhosts(cfg.Budget)},
	}
	p.room = cfg.Budget - p.ledger.gone.reserved()
	p.restart(0)
	return p
}

// KeptRoutings is how many routing versions a partition remembers. Records of a few neighbouring ones stand in the log at
// any time; an older one is asked for again, and rules that are edited for years fill no memory.
const KeptRoutings = 16

// Learn gives the partition a routing version that records may name. Beyond KeptRoutings the oldest other one is forgotten.
func (p *Partition) Learn(r *rules.Routing) {
	p.routings[r.Number] = p.bind(r)
	ForgetOldest(p.routings, r.Number)
	p.prune()
}

// ForgetOldest drops the lowest versions but just beyond KeptRoutings.
func ForgetOldest[V any](versions map[int64]V, just int64) {
	for len(versions) > KeptRoutings {
		oldest := int64(math.MaxInt64)
		for number := range versions {
			if number != just {
				oldest = min(oldest, number)
			}
		}
		delete(versions, oldest)
	}
}

// Knows reports whether Learn was given the version.
func (p *Partition) Knows(version int64) bool { _, ok := p.routings[version]; return ok }

// AcceptGap lets the hole pass that the record at offset of source found (HoleError's Source and Offset). Acceptances
// are input like the log: the same ones must be given again after a restart.
func (p *Partition) AcceptGap(source int, offset int64) { p.accepted[gap{source, offset}] = true }

// Fold moves the state by one record and appends what it caused to out. appended is the record's append time. On an
// error nothing has changed: *UnknownVersionError (Learn it and fold the record again), *HoleError (the partition is to
// stop), *GenerationError, or a record that names rules its version does not have.
func (p *Partition) Fold(appended traffic.Time, k *Keyed, out []Hit) ([]Hit, error) {
	if k.Generation > p.cfg.Generation {
		return out, &GenerationError{Got: k.Generation, Known: p.cfg.Generation}
	}
	if k.Generation < p.generation {
		p.pass(appended)
		p.counts.Duplicates++
		return out, nil
	}
	if err := p.check(k); err != nil {
		return out, err
	}
	if k.Generation > p.generation {
		p.restart(k.Generation)
	}
	p.recent = k.format() >= rules.UncountedRecordFormat
	p.pass(appended)
	p.grow(k.Source)
	switch k.Kind {
	case KeyedEvent:
		return p.foldEvent(k, out), nil
	case KeyedTick:
		return p.foldTick(k, out), nil
	case KeyedLoss:
		return p.foldLoss(k, out), nil
	}
	return out, fmt.Errorf("%w: kind %d", ErrRecord, k.Kind)
}

// check asks everything that may refuse a record, before anything changes. The fence is asked first, prev only of
// records that pass it: a duplicate's prev is older than the fence by nature.
func (p *Partition) check(k *Keyed) error {
	if k.Source >= MaxSources {
		return fmt.Errorf("%w: source partition %d, allowed: fewer than %d", ErrRecord, k.Source, MaxSources)
	}
	fence, rebase := NoOffset, false
	if k.Source < len(p.sources) && (k.Generation == p.generation || k.Source < p.cfg.Sources) {
		rebase = p.sources[k.Source].rebase
		if k.Generation == p.generation {
			fence = p.sources[k.Source].fence
		}
	}
	if k.Kind == KeyedEvent && k.Offset <= fence {
		return nil
	}
	// A router that names nothing before, where something was, has lost its memory: as bad as a hole.
	hole := k.Prev > fence || k.Kind == KeyedEvent && k.Prev == NoOffset && fence != NoOffset
	if k.Kind != KeyedLoss && hole && !rebase && !p.accepted[gap{k.Source, k.Offset}] {
		return &HoleError{Keyed: p.cfg.Keyed, Source: k.Source, Fence: fence, Prev: k.Prev, Offset: k.Offset}
	}
	if k.Kind == KeyedEvent {
		return p.checkRules(k)
	}
	return nil
}

func (p *Partition) checkRules(k *Keyed) error {
	bindings, ok := p.routings[k.Version]
	if !ok {
		return &UnknownVersionError{Version: k.Version}
	}
	for _, r := range k.Rules {
		if r >= len(bindings) {
			return fmt.Errorf("%w: rule %d of routing version %d, which has %d", ErrRecord, r, k.Version, len(bindings))
		}
	}
	return nil
}

// foldEvent counts one event, at most once: the fence accepts only a greater offset, and since there is one record per
// (event, keyed partition), an equal one is a duplicate.
func (p *Partition) foldEvent(k *Keyed, out []Hit) []Hit {
	s := &p.sources[k.Source]
	if k.Offset <= s.fence {
		p.counts.Duplicates++
		return out
	}
	out = p.mendGap(k, out)
	s.fence, s.rebase = k.Offset, false
	s.progress = max(s.progress, k.Progress)
	p.counts.Events++
	p.events++
	out = p.advance(s, out)
	p.keys = p.keys[:0]
	bindings := p.routings[k.Version]
	for i, r := range k.Rules {
		out = p.count(k, i, &bindings[r], out)
	}
	if p.events%sweepEvery == 0 {
		p.sweepDead()
	}
	return out
}

// Watermark is the least progress over all source partitions: no event older than it is expected any more.
func (p *Partition) Watermark() traffic.Time { return p.watermark }

// Keys is how many windows are held.
func (p *Partition) Keys() int { return p.ledger.keys }

// Bytes is what the windows take, and what is remembered of evicted keys: a function of what is held, at the worst point of
// a table's growth, which the process's memory follows.
func (p *Partition) Bytes() int64 {
	if p.ledger.gone.n == 0 {
		return p.ledger.bytes
	}
	return p.ledger.bytes + p.ledger.gone.reserved()
}

// Counts returns what was done since the partition was made or restored.
func (p *Partition) Counts() Counts { return p.counts }
