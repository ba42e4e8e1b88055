package route

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

type simLog struct{ *simHost }

var _ ingest.Log = (*simLog)(nil)

func (l *simLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	if err := l.thaw(ctx, l.fetching); err != nil {
		return nil, err
	}
	asked := simNow()
	if left := l.untilNews(positions, wait); left > 0 {
		rest(ctx, left)
	}
	if err := l.pass(ctx, l.fetching, time.Millisecond, 3*time.Millisecond); err != nil {
		return nil, err
	}
	if l.world.faulty(l.fetching, .01) {
		return nil, errSim
	}
	return l.answers(positions, asked), nil
}

// untilNews is how long a fetch waits for the first record past any of the positions.
func (l *simLog) untilNews(positions []ingest.Position, wait time.Duration) time.Duration {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for _, at := range positions {
		log := l.world.requests[at.Partition]
		if at.Offset < int64(len(log)) {
			wait = min(wait, log[at.Offset].appended.Sub(simNow()))
		} else if at.Offset > int64(len(log)) {
			wait = 0
		}
	}
	return wait
}

func (l *simLog) answers(positions []ingest.Position, asked traffic.Time) []ingest.Fetched {
	w := l.world
	var out []ingest.Fetched
	for _, at := range positions {
		if w.faulty(l.fetching, .03) {
			continue // its leader is away
		}
		w.mu.Lock()
		if w.away[at.Partition] {
			w.mu.Unlock()
			continue
		}
		start, end := w.starts[at.Partition], w.end(at.Partition)
		bad, isBad := w.spoiled[at.Partition]
		if isBad && bad.leaderless {
			w.mu.Unlock()
			continue
		}
		f := ingest.Fetched{Partition: at.Partition, Next: at.Offset, HighWatermark: end, LogStart: start, Asked: asked}
		if at.Offset < start || at.Offset > end {
			f.Err = ingest.ErrOutOfRange
			end = at.Offset
		}
		if isBad && at.Offset < bad.from {
			end = min(end, bad.from)
		} else if isBad && at.Offset < min(end, bad.next) {
			f.Err = &ingest.UnreadableError{Next: bad.next, Why: errors.New("corrupt record batch: CRC-32C is 1")}
			end = at.Offset
		}
		stop := min(end, at.Offset+1+l.fetching.Int64N(20))
		for o := at.Offset; o < stop; o++ {
			f.Next = o + 1
			if e := &w.requests[at.Partition][o]; !e.mark {
				f.Messages = append(f.Messages, traffic.Message{Partition: at.Partition, Offset: o, Appended: e.appended, Value: e.value()})
			}
		}
		w.mu.Unlock()
		out = append(out, f)
	}
	return out
}

func (l *simLog) Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	if err := l.pass(ctx, l.bounding, time.Millisecond, 3*time.Millisecond); err != nil {
		return nil, err
	}
	if l.world.faulty(l.bounding, .05) {
		return nil, errSim
	}
	if l.world.leaderless(partitions) {
		<-ctx.Done() // the client asks again and again
		return nil, errSim
	}
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	out := map[int]ingest.Bounds{}
	for _, p := range partitions {
		out[p] = ingest.Bounds{Start: l.world.starts[p], End: l.world.end(p)}
	}
	return out, nil
}

type simAppender struct{ *simHost }

var _ ingest.Appender = (*simAppender)(nil)

// Append writes some batches, some not, some later, and of some it loses the answer only.
func (a *simAppender) Append(ctx context.Context, batches []ingest.Batch) error {
	w, r := a.world, a.appending
	var failed error
	for _, i := range r.Perm(len(batches)) {
		if err := a.pass(ctx, r, 100*time.Microsecond, 2*time.Millisecond); err != nil {
			return err
		}
		b := batches[i]
		values := make([][]byte, len(b.Values))
		for k, v := range b.Values {
			values[k] = slices.Clone(v)
		}
		if w.refusesEvents(values) {
			return errSim
		}
		write := func() { w.write(b.Partition, values) }
		switch x := r.Float64(); {
		case w.lossy && w.faulty(r, .02):
			w.mu.Lock()
			w.vanished++
			w.mu.Unlock()
		case !w.faulty(r, w.loss):
			write()
		case x < .3:
			failed = errSim
		case x < .6:
			failed = errSim
			w.later(10*time.Millisecond+jitter(r, 8*time.Second), write)
		default:
			failed = errSim
			write()
		}
	}
	return failed
}

// refusesEvents reports whether the batch is one of events, and none is taken.
func (w *world) refusesEvents(values [][]byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck && detectors.KeyedKind(values[0][1]) == detectors.KeyedEvent
}

func (w *world) write(partition int, values [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range values {
		w.keyed[partition] = append(w.keyed[partition], simRecord{at: simNow(), value: v})
	}
}

type simCommits struct {
	host       *simHost
	member     string
	generation int
}

var _ ingest.Commits = (*simCommits)(nil)

func (c *simCommits) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	if err := c.host.pass(ctx, c.host.reading, time.Millisecond, 5*time.Millisecond); err != nil {
		return nil, err
	}
	w := c.host.world
	if w.faulty(c.host.reading, .05) {
		return nil, errSim
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[int]ingest.Commit{}
	for _, p := range partitions {
		if commit, ok := w.commits[p]; ok {
			out[p] = commit
		}
	}
	return out, nil
}

func (c *simCommits) Commit(ctx context.Context, commits map[int]ingest.Commit) error {
	w, r := c.host.world, c.host.committing
	if err := c.host.pass(ctx, r, 500*time.Microsecond, 3*time.Millisecond); err != nil {
		return err
	}
	store := func() bool {
		if !w.group.accepts(c.member, c.generation) {
			return false
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for p, commit := range commits {
			w.commits[p] = commit
		}
		w.history = append(w.history, commits)
		return true
	}
	if w.faulty(r, w.loss/2) {
		switch x := r.Float64(); {
		case x < .3:
		case x < .6:
			w.later(10*time.Millisecond+jitter(r, 4*time.Second), func() { store() })
		default:
			store()
		}
		return errSim
	}
	if !store() {
		return ingest.ErrGenerationOver
	}
	return nil
}

type simRoutings struct{ *simHost }

var _ ingest.Routings = (*simRoutings)(nil)

func (s *simRoutings) Newest(ctx context.Context, _ string) (int64, error) {
	if err := s.pass(ctx, s.storing, time.Millisecond, 20*time.Millisecond); err != nil {
		return 0, err
	}
	if s.world.faulty(s.storing, .1) {
		return 0, errSim
	}
	newest := int64(0)
	for v := 1; v <= simVersions; v++ {
		if s.world.released[v] <= simNow() {
			newest = int64(v)
		}
	}
	return newest, nil
}

func (s *simRoutings) Routing(_ context.Context, _ string, number int64) (*rules.Routing, error) {
	return s.world.routing(number), nil
}

type simPartitions struct{ *simHost }

var _ ingest.Partitions = (*simPartitions)(nil)

func (s *simPartitions) Report(_ context.Context, _ string, states []ingest.PartitionStatus) error {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	for _, st := range states {
		s.world.states[st.Partition] = st
		if st.State != ingest.Running {
			s.world.refusals++
		}
	}
	return nil
}

func (s *simPartitions) Accepted(context.Context, string) ([]ingest.Acceptance, error) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return slices.Clone(s.world.granted), nil
}

type simLetters struct{ *simHost }

var _ ingest.DeadLetters = (*simLetters)(nil)

func (s *simLetters) Put(ctx context.Context, letters []traffic.DeadLetter) error {
	if err := s.pass(ctx, s.dying, time.Millisecond, 3*time.Millisecond); err != nil {
		return err
	}
	if s.world.faulty(s.dying, .1) {
		return errSim
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if s.world.deaf {
		return errSim
	}
	for _, l := range letters {
		s.world.letters[[2]int64{int64(l.Partition), l.Offset}] = l.Reason
	}
	return nil
}
