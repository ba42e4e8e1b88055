package backtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// blocksEach is how many blocks there are for each worker: what is read ahead and not yet counted.
const blocksEach = 4

// progressEvery is how often progress is told at most.
const progressEvery = 50 * time.Millisecond

// Run runs files through the rules, one file after the other as one log. progress may be nil; it is called by one goroutine at
// a time.
//
// The error is that of the options, of a file that cannot be opened, or ctx's. Lines and files that cannot be read are
// counted; only where nothing at all could be read there is an error beside the result, *archive.FormatError where the
// format is to blame.
func Run(ctx context.Context, o Options, files []File, progress func(Progress)) (*Result, error) {
	p, err := newPlan(o)
	if err != nil {
		return nil, err
	}
	r := newRun(p, files, nil, progress)
	return r.finish(ctx, r.readAll)
}

// finish reads everything by read and gives the result.
func (r *run) finish(ctx context.Context, read func(context.Context) error) (*Result, error) {
	begun := time.Now()
	if err := r.all(ctx, read); err != nil {
		return nil, err
	}
	out := r.result()
	out.Took = time.Since(begun)
	return out, r.sequence.nothing()
}

// run is one Run: reader, decoders, sequence and window workers, each goroutine passing on what it has done in the order of
// the log. Blocks go round, so what is in memory is bounded.
type run struct {
	plan     *plan
	files    []File
	progress func(Progress)
	told     time.Time
	size     int64

	free    chan *block // whose memory may be used
	decode  chan *block
	ordered chan *block // the same, in order
	workers []chan *batch
	spare   chan *batch

	read     atomic.Int64 // bytes of files
	givenUp  []atomic.Bool
	sequence *sequence
	shards   [keyedPartitions]*shard
}

func newRun(p *plan, files []File, live *Live, progress func(Progress)) *run {
	n := blocksEach*p.Workers + 2
	r := &run{
		plan: p, files: files, progress: progress, sequence: newSequence(p, files, live), givenUp: make([]atomic.Bool, len(files)),
		free: make(chan *block, n), decode: make(chan *block, n), ordered: make(chan *block, n), spare: make(chan *batch, n),
	}
	for range n {
		r.free <- &block{decoded: make(chan struct{}, 1)}
	}
	for range min(p.Workers, keyedPartitions) {
		r.workers = append(r.workers, make(chan *batch, n+1)) // and the last one
	}
	for q := range r.shards {
		r.shards[q] = newShard(p, q)
	}
	for i := range files {
		if files[i].Size < 0 {
			r.size = -1
			break
		}
		r.size += files[i].Size
	}
	return r
}

// all runs everything until the last window is closed. All goroutines have ended when it returns.
func (r *run) all(parent context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var group sync.WaitGroup
	start := func(f func(context.Context) error) {
		group.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(func(ctx context.Context) error {
		defer close(r.decode)
		defer close(r.ordered)
		return read(ctx)
	})
	for range r.plan.Workers {
		d, err := newDecoder(r.plan)
		if err != nil {
			cancel(err)
			break
		}
		start(func(ctx context.Context) error { return r.decodeAll(ctx, d) })
	}
	for w := range r.workers {
		start(func(ctx context.Context) error { return r.countAll(ctx, w) })
	}
	start(r.order)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// readAll cuts the files into blocks.
func (r *run) readAll(ctx context.Context) error {
	in := blockReader{free: r.free, limit: r.plan.MaxEventBytes, read: &r.read, give: func(b *block) error {
		r.give(b)
		if r.givenUp[b.file].Load() {
			return errGivenUp
		}
		return nil
	}}
	for i := range r.files {
		if err := in.file(ctx, i, &r.files[i]); err != nil && !errors.Is(err, errGivenUp) {
			return err
		}
	}
	return nil
}

// give passes a block on. There is room for all blocks.
func (r *run) give(b *block) {
	r.ordered <- b
	r.decode <- b
}

// errGivenUp ends the reading of a file of another format.
var errGivenUp = errors.New("the file is of another format")

func (r *run) decodeAll(ctx context.Context, d *decoder) error {
	for b := range r.decode {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.block(b)
		b.decoded <- struct{}{}
	}
	return nil
}

// order sequences the blocks and passes them on.
func (r *run) order(ctx context.Context) error {
	defer func() {
		for _, w := range r.workers {
			close(w)
		}
	}()
	for b := range r.ordered {
		select {
		case <-b.decoded:
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.sequence.block(b) {
			r.givenUp[b.file].Store(true)
		}
		r.pass(r.sequence.take(b, false, r.spareBatch()))
		r.tell(false)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.sequence.flush()
	r.pass(r.sequence.take(nil, true, nil))
	r.tell(true)
	return nil
}

func (r *run) spareBatch() *batch {
	select {
	case b := <-r.spare:
		return b
	default:
		return nil
	}
}

// pass hands a batch to all workers; each counts what is of its partitions. There is room: a worker's queue takes as many as
// there are blocks.
func (r *run) pass(b *batch) {
	b.pending.Store(int32(len(r.workers)))
	for _, w := range r.workers {
		w <- b
	}
}

func (r *run) tell(last bool) {
	if r.progress == nil || !last && time.Since(r.told) < progressEvery {
		return
	}
	r.told = time.Now()
	r.progress(Progress{Bytes: r.read.Load(), Size: r.size, Lines: r.sequence.out.Lines, Events: r.sequence.out.Events})
}

// countAll counts what is of the keyed partitions of one worker.
func (r *run) countAll(ctx context.Context, worker int) error {
	for b := range r.workers[worker] {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for q := worker; q < keyedPartitions; q += len(r.workers) {
			if err := r.shards[q].take(q, b); err != nil {
				return err
			}
		}
		r.done(b)
	}
	return nil
}

// done gives the memory of a batch back once all workers have counted it.
func (r *run) done(b *batch) {
	if b.pending.Add(-1) > 0 {
		return
	}
	if b.block != nil {
		r.free <- b.block
		b.block = nil
	}
	select {
	case r.spare <- b:
	default:
	}
}

// result joins what the partitions have found.
func (r *run) result() *Result {
	p, out := r.plan, r.sequence.out
	out.TooLate, out.Forced = r.sequence.sorter.tooLate, r.sequence.sorter.forced
	if out.First == traffic.BeforeTime {
		out.First, out.Last = 0, 0
	}
	events := make([]detectors.RuleEvents, len(p.counted.Rules))
	for _, s := range r.shards {
		s.windows.partition.TakeRuleEvents(func(rule string, e *detectors.RuleEvents) { events[p.index[rule]].Add(e) })
		for _, n := range s.windows.partition.Counts().Evicted {
			out.Evicted += n
		}
		if s.blocks != nil { // they have a budget of their own, and a rule may be all in one of them
			for _, n := range s.blocks.windows.partition.Counts().Evicted {
				out.Evicted += n
			}
		}
	}
	for i := range p.counted.Rules {
		all := newFinding(p.Top)
		for _, s := range r.shards {
			all.join(s.found[i])
			s.found[i] = nil
		}
		out.Rules = append(out.Rules, r.rule(i, &events[p.first[i]], all))
	}
	r.peaksInto(out.Rules)
	return out
}

func (r *run) rule(i int, events *detectors.RuleEvents, all *finding) RuleResult {
	p := r.plan
	base := i / p.values
	before := &r.sequence.rules[base]
	out := RuleResult{
		Rule: p.Rules[base].ID, Version: p.counted.Rules[i], Swept: p.swept[i%p.values],
		Matched: before.matched, Counted: events.Counted, Uncounted: map[string]int64{}, Allowed: before.allowed, Unjudged: before.unjudged,
	}
	out.Version.ID = out.Rule
	if out.Swept != "" {
		out.Untried = untried(&p.Rules[base])
	}
	for why, n := range events.Uncounted {
		if n += before.left[why]; n > 0 {
			out.Uncounted[fmt.Sprint(detectors.Uncounted(why))] = n
		}
	}
	all.into(&out, p.Top)
	all.besideInto(&out, events.NearLeftOut)
	out.Block = r.blockResult(i, before)
	return out
}

// untried are the fields of a rule that a sweep leaves out.
func untried(v *rules.Version) []string {
	var out []string
	if v.Near > 0 {
		out = append(out, "near")
	}
	if v.Candidate != nil {
		out = append(out, "candidate")
	}
	return out
}
