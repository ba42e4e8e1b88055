package detect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// detectWorld is all that a DETECT stage talks to, in memory: the keyed log, the hits topic and the stores. It outlives
// the detectors that run over it.
type detectWorld struct {
	t testing.TB

	mu       sync.Mutex
	keyed    [][]traffic.Message
	start    []int64 // of each keyed partition's log
	hits     []detectors.Hit
	appends  int
	failures int // appends that still fail, every other one after it was written

	epochs      map[int]int64
	owners      map[int]string
	generations map[int][]storedSnapshot // newest first
	unfinished  map[int]storedSnapshot   // the attempt that is being written
	storeDown   bool
	commits     map[int]ingest.Commit
	taken       int
	loaded      []int64 // the offset of the snapshot of each piece

	states   map[int]ingest.PartitionStatus
	accepted []ingest.Acceptance
	routing  map[int64]*rules.Routing
}

var errAway = errors.New("away")

func newDetectWorld(t testing.TB, partitions int) *detectWorld {
	limit := rules.Version{
		Document: rules.Document{
			ID: "burst", Owner: "tests", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}},
			Limit: 2, Window: 10 * time.Second, Lateness: 5 * time.Second,
		},
		Number: 1, Lineage: 1,
	}
	return &detectWorld{
		t: t, keyed: make([][]traffic.Message, partitions), start: make([]int64, partitions),
		epochs: map[int]int64{}, owners: map[int]string{}, generations: map[int][]storedSnapshot{},
		unfinished: map[int]storedSnapshot{}, commits: map[int]ingest.Commit{},
		states:  map[int]ingest.PartitionStatus{},
		routing: map[int64]*rules.Routing{1: {Stream: "live", Number: 1, RecordFormat: 1, Rules: []rules.Version{limit}}},
	}
}

const detectOrigin = traffic.Time(1_700_000_000_000_000)

// put appends a record to a keyed partition.
func (w *detectWorld) put(q int, k detectors.Keyed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	offset := w.start[q] + int64(len(w.keyed[q]))
	w.keyed[q] = append(w.keyed[q], traffic.Message{
		Partition: q, Offset: offset, Appended: detectOrigin + traffic.Time(offset*1000), Value: detectors.AppendKeyed(nil, &k),
	})
}

// fill writes a seeded story to every keyed partition: n events of a few sources, each source over its limit now and
// then, duplicates as after a router's restart, and an end mark.
func (w *detectWorld) fill(n int) {
	for q := range w.keyed {
		at, prev := detectOrigin, detectors.NoOffset
		for o := range int64(n) {
			at += traffic.Time(o*7%5) * 700_000
			k := detectors.Keyed{
				Kind: detectors.KeyedEvent, Generation: 1, Offset: o, Prev: prev, Time: at, Progress: at, Version: 1, Rules: []int{0},
				Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + o*o%5)})},
			}
			prev = o
			w.put(q, k)
			if o%11 == 3 {
				w.put(q, k)
			}
		}
		w.put(q, detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: int64(n), Prev: prev, Time: traffic.EndOfTime})
	}
}

// expect folds the log directly, without any stage around it.
func (w *detectWorld) expect() []string {
	var out []detectors.Hit
	for q := range w.keyed {
		p := detectors.NewPartition(detectors.Config{Keyed: q, Sources: 1, Generation: 1, Secret: detectors.Secret{9}})
		p.Learn(detectors.NewPlan(w.routing[1]))
		for _, m := range w.keyed[q] {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(m.Value, &k); err != nil {
				w.t.Fatal(err)
			}
			var err error
			if _, out, err = p.FoldAll([]detectors.Record{{Appended: m.Appended, Place: m.Offset + 1, Keyed: k}}, out); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return distinctHits(w.t, out)
}

func (w *detectWorld) got() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return distinctHits(w.t, w.hits)
}

// check reports whether the hits are those that the log gives.
func (w *detectWorld) check() bool {
	w.t.Helper()
	return w.compare(w.expect())
}

// compare reports whether the hits are these, and shows some of those that make a difference.
func (w *detectWorld) compare(want []string) bool {
	w.t.Helper()
	got := w.got()
	less := func(all, those []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(hit string) bool { return slices.Contains(those, hit) })
	}
	missing, extra := less(want, got), less(got, want)
	if len(missing)+len(extra) == 0 {
		return true
	}
	w.t.Errorf("got %d hits, want %d; %d are missing:\n%q\nand %d too many:\n%q", len(got), len(want),
		len(missing), missing[:min(3, len(missing))], len(extra), extra[:min(3, len(extra))])
	return false
}

// takeStore takes the stores away, or gives them back.
func (w *detectWorld) takeStore(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storeDown = away
}

// distinctHits is the set that an idempotent consumer ends up with.
func distinctHits(t testing.TB, hits []detectors.Hit) []string {
	var out []string
	for i := range hits {
		raw, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// detector makes a stage of its own over the world, as a fresh process would.
func (w *detectWorld) detector(owner string, group ingest.Group, edit ...func(*detect.Options)) *detect.Detector {
	opt := detect.Options{
		Stream: "live", Owner: owner, Generation: 1, Sources: 1, Keyed: len(w.keyed), Secret: detectors.Secret{9},
		Log: keyedLog{w}, Hits: hitsTopic{w}, HitsCount: 3, Group: group, Routings: detectRoutings{w},
		Checkpoints: checkpointStore{w}, Partitions: stateStore{w},
		Clock: func() traffic.Time { return traffic.At(time.Now()) }, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Checkpoint: time.Second, Piece: 100,
	}
	for _, e := range edit {
		e(&opt)
	}
	d, err := detect.New(opt)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// keyedLog answers at most seven records a partition and fetch, so that a run has many steps.
type keyedLog struct{ w *detectWorld }

var _ ingest.Log = keyedLog{}

func (l keyedLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	var out []ingest.Fetched
	news := false
	l.w.mu.Lock()
	for _, p := range positions {
		start, records := l.w.start[p.Partition], l.w.keyed[p.Partition]
		end := start + int64(len(records))
		f := ingest.Fetched{Partition: p.Partition, Next: p.Offset, HighWatermark: end, LogStart: start}
		if p.Offset < start || p.Offset > end {
			f.Err = ingest.ErrOutOfRange
		} else {
			f.Messages = records[p.Offset-start : min(p.Offset-start+7, end-start)]
			f.Next += int64(len(f.Messages))
		}
		news = news || len(f.Messages) > 0 || f.Err != nil
		out = append(out, f)
	}
	l.w.mu.Unlock()
	if news {
		wait = 50 * time.Millisecond
	}
	return out, retry.Sleep(ctx, wait)
}

func (l keyedLog) Bounds(_ context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	out := map[int]ingest.Bounds{}
	for _, p := range partitions {
		out[p] = ingest.Bounds{Start: l.w.start[p], End: l.w.start[p] + int64(len(l.w.keyed[p]))}
	}
	return out, nil
}

type hitsTopic struct{ w *detectWorld }

var _ ingest.Appender = hitsTopic{}

func (h hitsTopic) Append(ctx context.Context, batches []ingest.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.appends++
	fail := h.w.failures > 0
	if fail {
		h.w.failures--
		if h.w.failures%2 == 0 || h.w.failures > 1000 {
			return errAway
		}
	}
	for _, b := range batches {
		for _, raw := range b.Values {
			hit, err := detectors.DecodeHit(raw)
			if err != nil {
				h.w.t.Error(err)
			}
			if hit.Partition(3) != b.Partition {
				h.w.t.Errorf("hit of %q on hits partition %d", hit.Subject, b.Partition)
			}
			h.w.hits = append(h.w.hits, hit)
		}
	}
	if fail {
		return errAway
	}
	return nil
}

type detectRoutings struct{ w *detectWorld }

var _ ingest.Routings = detectRoutings{}

func (r detectRoutings) Newest(context.Context, string) (int64, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.storeDown {
		return 0, errAway
	}
	newest := int64(0)
	for number := range r.w.routing {
		newest = max(newest, number)
	}
	return newest, nil
}

func (r detectRoutings) Routing(_ context.Context, _ string, number int64) (*rules.Routing, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if v, ok := r.w.routing[number]; ok && !r.w.storeDown {
		if v == nil {
			return nil, fmt.Errorf("history: %w", rules.ErrRouting)
		}
		return v, nil
	}
	return nil, errAway
}

// storedSnapshot is a snapshot in pieces.
type storedSnapshot struct {
	ingest.Checkpoint
	pieces [][]byte
}

type checkpointStore struct{ w *detectWorld }

var _ ingest.Checkpoints = checkpointStore{}

func (c checkpointStore) Take(_ context.Context, _ string, p int, owner string, held int64) (ingest.Claim, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.storeDown {
		return ingest.Claim{}, errAway
	}
	if held != 0 && c.w.epochs[p] == held && c.w.owners[p] == owner {
		return ingest.Claim{Epoch: held, Kept: true}, nil
	}
	c.w.taken++
	c.w.epochs[p]++
	c.w.owners[p] = owner
	claim := ingest.Claim{Epoch: c.w.epochs[p]}
	for _, g := range c.w.generations[p] {
		g.Pieces, g.Size = len(g.pieces), int64(len(slices.Concat(g.pieces...)))
		claim.Generations = append(claim.Generations, g.Checkpoint)
	}
	return claim, nil
}

func (c checkpointStore) Load(_ context.Context, _ string, p int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch {
	case c.w.storeDown:
		return nil, errAway
	case c.w.epochs[p] != epoch:
		return nil, ingest.ErrFenced
	}
	for _, g := range c.w.generations[p] {
		if g.Epoch == cp.Epoch && g.Attempt == cp.Attempt && number < len(g.pieces) {
			c.w.loaded = append(c.w.loaded, cp.Offset)
			return slices.Clone(g.pieces[number]), nil
		}
	}
	return nil, detectors.ErrSnapshot
}

func (c checkpointStore) Write(_ context.Context, _ string, p int, cp ingest.Checkpoint, piece ingest.Piece) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch {
	case c.w.storeDown:
		return errAway
	case c.w.epochs[p] != cp.Epoch:
		return ingest.ErrFenced
	}
	u := c.w.unfinished[p]
	if piece.Number == 0 {
		u = storedSnapshot{Checkpoint: cp}
	}
	if u.Checkpoint != cp || piece.Number > len(u.pieces) {
		c.w.t.Errorf("piece %d of %+v after %d of %+v", piece.Number, cp, len(u.pieces), u.Checkpoint)
	}
	u.pieces = append(u.pieces[:piece.Number:piece.Number], slices.Clone(piece.Data))
	c.w.unfinished[p] = u
	if !piece.Last {
		return nil
	}
	u.Written = traffic.At(time.Now())
	c.w.generations[p] = append([]storedSnapshot{u}, c.w.generations[p]...)
	c.w.generations[p] = c.w.generations[p][:min(2, len(c.w.generations[p]))]
	return nil
}

type stateStore struct{ w *detectWorld }

var _ ingest.Partitions = stateStore{}

func (s stateStore) Report(_ context.Context, _ string, states []ingest.PartitionStatus) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, st := range states {
		s.w.states[st.Partition] = st
	}
	return nil
}

func (s stateStore) Accepted(context.Context, string) ([]ingest.Acceptance, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.w.storeDown {
		return nil, errAway
	}
	return slices.Clone(s.w.accepted), nil
}

// oneMember is a group with this member only; end starts a new generation.
type oneMember struct {
	partitions []int
	commits    ingest.Commits
	end        chan struct{}
	mu         sync.Mutex
	errs       []error // what sessions returned
}

var _ ingest.Group = (*oneMember)(nil)

func alone(partitions ...int) *oneMember {
	return &oneMember{partitions: partitions, commits: noCommits{}, end: make(chan struct{})}
}

func (g *oneMember) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	for generation := 1; ctx.Err() == nil; generation++ {
		sctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- session(sctx, ingest.Assignment{Generation: generation, Partitions: g.partitions, Commits: g.commits})
		}()
		var err error
		select {
		case <-g.end:
			cancel()
			err = <-done
		case err = <-done:
		}
		cancel()
		g.mu.Lock()
		g.errs = append(g.errs, err)
		g.mu.Unlock()
		if err != nil {
			_ = retry.Sleep(ctx, time.Second) // the loop asks ctx itself
		}
	}
	return nil
}

// returned is what the sessions so far have ended with.
func (g *oneMember) returned() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.errs)
}

type noCommits struct{}

var _ ingest.Commits = noCommits{}

func (noCommits) Fetch(context.Context, []int) (map[int]ingest.Commit, error) { return nil, nil }
func (noCommits) Commit(context.Context, map[int]ingest.Commit) error         { return nil }

// groupCommits are the commits of a group, in the world.
type groupCommits struct{ w *detectWorld }

var _ ingest.Commits = groupCommits{}

func (c groupCommits) Fetch(context.Context, []int) (map[int]ingest.Commit, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return maps.Clone(c.w.commits), nil
}

func (c groupCommits) Commit(_ context.Context, commits map[int]ingest.Commit) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	maps.Copy(c.w.commits, commits)
	return nil
}

// pass lets d go by on the clock of the test's bubble.
func pass(d time.Duration) { <-time.After(d) }
