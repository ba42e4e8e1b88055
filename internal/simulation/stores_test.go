package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// checkpoints is history's store of snapshots.
type checkpoints struct{ *host }

var _ ingest.Checkpoints = checkpoints{}

// ownership is one keyed partition's row, with its two generations of snapshots, newest first.
type ownership struct {
	epoch       int64
	owner       string
	generations []snapshot
	unfinished  map[[2]int64][][]byte // pieces, by epoch and attempt
}

// snapshot is a stored generation.
type snapshot struct {
	ingest.Checkpoint
	pieces [][]byte
	torn   bool
}

func (c checkpoints) Take(ctx context.Context, _ string, p int, owner string, held int64) (ingest.Claim, error) {
	if err := c.pass(ctx, taking, time.Millisecond, 40*time.Millisecond); err != nil {
		return ingest.Claim{}, err
	}
	fate := c.below(taking, 20)
	if c.w.calm.Load() {
		fate = 2
	}
	if fate == 0 {
		return ingest.Claim{}, errFault
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	o := &c.w.owned[p]
	claim := ingest.Claim{Epoch: held, Kept: held != 0 && o.epoch == held && o.owner == owner}
	if !claim.Kept {
		o.epoch++
		o.owner = owner
		claim = ingest.Claim{Epoch: o.epoch}
		for _, g := range o.generations {
			claim.Generations = append(claim.Generations, g.Checkpoint)
		}
		c.w.seen.takes++
	}
	if fate == 1 {
		return ingest.Claim{}, errFault // only the answer is lost
	}
	if len(claim.Generations) > 0 && c.w.seen.folded[p] > claim.Generations[0].Offset {
		c.w.seen.replays++
	}
	return claim, nil
}

func (c checkpoints) Load(ctx context.Context, _ string, p int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	if err := c.pass(ctx, loading, time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, err
	}
	if c.fails(loading, .05) {
		return nil, errFault
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	o := &c.w.owned[p]
	if o.epoch != epoch {
		return nil, ingest.ErrFenced
	}
	for _, g := range o.generations {
		if g.Checkpoint == cp {
			return slices.Clone(g.pieces[number]), nil
		}
	}
	return nil, detectors.ErrSnapshot
}

func (c checkpoints) Write(ctx context.Context, _ string, p int, cp ingest.Checkpoint, piece ingest.Piece) error {
	if err := c.pass(ctx, writing, time.Millisecond, 100*time.Millisecond); err != nil {
		return err
	}
	fate := c.below(writing, 20)
	if c.w.calm.Load() {
		fate = 19
	}
	if fate == 0 {
		return errFault
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	o := &c.w.owned[p]
	if o.epoch != cp.Epoch {
		c.w.seen.refusedEpochs++
		if !c.w.bugs.ignoreEpoch {
			return ingest.ErrFenced
		}
	}
	id := [2]int64{cp.Epoch, cp.Attempt}
	if piece.Number == 0 {
		o.unfinished = map[[2]int64][][]byte{} // those of other attempts go
	}
	if len(o.unfinished[id]) < piece.Number {
		return errFault // to be made whole, it lacks what another attempt has removed
	}
	o.unfinished[id] = append(o.unfinished[id][:piece.Number:piece.Number], slices.Clone(piece.Data))
	if piece.Last {
		c.publish(p, cp, o.unfinished[id], fate)
	}
	if fate == 5 {
		return errFault // only the answer is lost
	}
	return nil
}

// publish makes a snapshot the newest generation, or what is left of it: of two generations at most one is damaged, since with
// both gone, and the log trimmed, nobody could go on.
func (c checkpoints) publish(p int, cp ingest.Checkpoint, pieces [][]byte, fate int) {
	o := &c.w.owned[p]
	if g := o.generations; len(g) > 0 && g[0].Epoch == cp.Epoch && g[0].Offset == cp.Offset {
		o.generations = g[1:] // the same once more, as when the answer was lost
	}
	s := snapshot{Checkpoint: cp, pieces: slices.Clone(pieces)}
	g := o.generations
	s.torn = fate < 5 && (len(g) == 0 && c.w.keyed.parts[p].start == 0 || len(g) > 0 && !g[0].torn)
	if s.torn {
		c.w.seen.torn++
		at := len(pieces) * fate / 5
		s.pieces[at] = tear(slices.Clone(pieces[at]), fate)
	}
	s.Pieces = len(s.pieces)
	for _, piece := range s.pieces {
		s.Size += int64(len(piece))
	}
	o.generations = append([]snapshot{s}, g[:min(len(g), 1)]...)
}

// tear damages a snapshot: cut short, or with a bit flipped. The copy that it changes is its own.
func tear(data []byte, how int) []byte {
	if how%2 == 0 || len(data) < 8 {
		return data[:len(data)/2]
	}
	data[len(data)/3] ^= 1 << how
	return data
}

// trim is retention: it takes away the keyed records that both snapshots of a partition have behind them.
func (w *world) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.owned {
		o := &w.owned[q]
		if len(o.generations) == 2 {
			p := &w.keyed.parts[q]
			p.start = max(p.start, min(o.generations[0].Offset, o.generations[1].Offset))
		}
	}
}

// routings is the store of routing versions. A process hears of a new one when it asks.
type routings struct{ *host }

var _ ingest.Routings = routings{}

func (r routings) Newest(ctx context.Context, _ string) (int64, error) {
	if err := r.pass(ctx, versions, time.Millisecond, 20*time.Millisecond); err != nil {
		return 0, err
	}
	if r.fails(versions, .1) {
		return 0, errFault
	}
	return r.w.newest(), nil
}

func (r routings) Routing(ctx context.Context, _ string, number int64) (*rules.Routing, error) {
	if err := r.pass(ctx, versions, time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, err
	}
	if r.fails(versions, .1) {
		return nil, errFault
	}
	return r.w.routings[number-1], nil
}

// partitions is where stages report.
type partitions struct{ *host }

var _ ingest.Partitions = partitions{}

func (s partitions) Report(ctx context.Context, _ string, states []ingest.PartitionStatus) error {
	if err := s.pass(ctx, reporting, time.Millisecond, 20*time.Millisecond); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, st := range states {
		switch {
		case st.Side == ingest.SideRequests && passing(errors.New(st.Reason)):
			// It could not load the version of the chunk that it inherited: another process may, so it leaves.
		case st.Side == ingest.SideRequests && st.State == ingest.Halted && st.GapOffset == ingest.NoOffset && s.w.longAway(st.Partition):
			// It has had no leader for so long that its router says so.
		case st.Side == ingest.SideRequests && st.State != ingest.Running:
			s.w.say("requests partition %d is %s: %s", st.Partition, st.State, st.Reason)
		case st.Side == ingest.SideKeyed:
			s.w.states[st.Partition] = st
			if stoppedForGood(st) {
				s.w.halted[st.Partition] = st.Reason
			}
			s.w.seen.folded[st.Partition] = max(s.w.seen.folded[st.Partition], st.Offset)
		}
	}
	return nil
}

// stoppedForGood tells a keyed partition that has stopped from one that waits for a store.
func stoppedForGood(st ingest.PartitionStatus) bool {
	return st.State == ingest.Halted && !passing(errors.New(st.Reason))
}

func (s partitions) Accepted(ctx context.Context, _ string) ([]ingest.Acceptance, error) {
	return nil, s.pass(ctx, accepting, time.Millisecond, 20*time.Millisecond)
}

// deadLetters is the dead-letter topic of all stages.
type deadLetters struct{ *host }

var (
	_ ingest.DeadLetters    = deadLetters{}
	_ blocklist.DeadLetters = deadLetters{}
)

func (d deadLetters) Put(ctx context.Context, letters []traffic.DeadLetter) error {
	if err := d.pass(ctx, burying, time.Millisecond, 20*time.Millisecond); err != nil {
		return err
	}
	if d.fails(burying, .1) {
		return errFault
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for _, l := range letters {
		d.w.letters[[2]int64{int64(l.Partition), l.Offset}] = true
		if l.Topic != requestsTopic {
			d.w.say("stage %s could not use a record of %s: %s: %s", l.Stage, l.Topic, l.Reason, l.Detail)
		}
	}
	return nil
}

// ruleStore is the rule store as ENFORCE asks it.
type ruleStore struct{ *host }

var (
	_ blocklist.Modes        = ruleStore{}
	_ blocklist.RuleVersions = ruleStore{}
)

func (s ruleStore) Modes(ctx context.Context) ([]rules.ModeState, error) {
	c := lane(ctx)
	if err := s.pass(ctx, c, time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, err
	}
	if s.fails(c, .05) {
		s.disturb()
		return nil, errFault
	}
	return s.w.modesNow(), nil
}

func (s ruleStore) RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error) {
	c := lane(ctx)
	if err := s.pass(ctx, c, time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, false, err
	}
	if s.fails(c, .05) {
		return nil, false, errFault
	}
	for _, r := range s.w.routings {
		for i := range r.Rules {
			if v := &r.Rules[i]; v.ID == id && v.Number == number {
				return v, true, nil
			}
		}
	}
	return nil, false, nil
}

// decisions is the blocks topic.
type decisions struct{ *host }

var _ blocklist.DecisionLog = decisions{}

func (d decisions) Append(ctx context.Context, _ int, list []blocklist.Decision) error {
	c := lane(ctx)
	if err := d.pass(ctx, c, time.Millisecond, 20*time.Millisecond); err != nil {
		return err
	}
	failed := d.fails(c, d.w.loss)
	if failed && d.below(c, 2) == 0 {
		return errFault
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	for i := range list {
		d.w.decided[list[i].Hit]++
	}
	if failed {
		return errFault
	}
	return nil
}

// laneKey carries the hits partition that a sink works on, so that two of them draw from dice of their own.
type laneKey struct{}

func lane(ctx context.Context) call {
	p, _ := ctx.Value(laneKey{}).(int)
	return recording + call(p)
}

// sink is a stage's sink with its lane in the context. A bug makes it forget that its store has failed.
type sink struct {
	w *world
	ingest.Sink
	// turn lets one lane in at a time: the stage holds a mutex while it asks the rule store, and to wait for a mutex does not
	// let the bubble's time go on.
	turn chan struct{}
}

func (s sink) Apply(ctx context.Context, batch []traffic.Message) error {
	rest(ctx, time.Duration(1+batch[0].Partition)*time.Microsecond) // two that come at one instant go in their order
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	err := s.Sink.Apply(context.WithValue(ctx, laneKey{}, batch[0].Partition), batch)
	if err != nil && s.w.bugs.commitUnstored {
		return nil
	}
	return err
}
