package route

import (
	"context"
	"errors"
	"maps"
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
	asked := simNow()
	if left := l.untilNews(positions, wait); left > 0 {
		rest(ctx, left)
	}
	if err := l.pass(ctx, 2*time.Millisecond); err != nil {
		return nil, err
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
		if isBad && bad.held {
			end = min(end, bad.from)
			f.Held, f.Readable = f.HighWatermark > end, end
		} else if isBad && at.Offset < bad.from {
			end = min(end, bad.from)
		} else if isBad && at.Offset < min(end, bad.next) {
			f.Err = &ingest.UnreadableError{Next: bad.next, Why: errors.New("corrupt record batch: CRC-32C is 1")}
			end = at.Offset
		}
		const most = 10 // so that what lies there takes several
		for o := at.Offset; o < min(end, at.Offset+most); o++ {
			e := &w.requests[at.Partition][o]
			f.Messages = append(f.Messages, traffic.Message{Partition: at.Partition, Offset: o, Appended: e.appended, Value: e.value()})
			f.Next = o + 1
		}
		w.mu.Unlock()
		out = append(out, f)
	}
	return out
}

func (l *simLog) Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	if err := l.pass(ctx, 2*time.Millisecond); err != nil {
		return nil, err
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

func (a *simAppender) Append(ctx context.Context, batches []ingest.Batch) error {
	if err := a.pass(ctx, 2*time.Millisecond); err != nil {
		return err
	}
	for _, b := range batches {
		if a.world.refusesEvents(b.Values) {
			return errSim
		}
		a.world.write(b.Partition, b.Values)
	}
	return nil
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
		w.keyed[partition] = append(w.keyed[partition], simRecord{at: simNow(), value: slices.Clone(v)})
	}
}

type simCommits struct{ *simHost }

var _ ingest.Commits = (*simCommits)(nil)

func (c *simCommits) Fetch(ctx context.Context, partitions []int) (map[int]ingest.Commit, error) {
	if err := c.pass(ctx, 3*time.Millisecond); err != nil {
		return nil, err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	out := map[int]ingest.Commit{}
	for _, p := range partitions {
		if commit, ok := c.world.commits[p]; ok {
			out[p] = commit
		}
	}
	return out, nil
}

func (c *simCommits) Commit(ctx context.Context, commits map[int]ingest.Commit) error {
	if err := c.pass(ctx, 2*time.Millisecond); err != nil {
		return err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	maps.Copy(c.world.commits, commits)
	return nil
}

type simRoutings struct{ *simHost }

var _ ingest.Routings = (*simRoutings)(nil)

func (s *simRoutings) Newest(ctx context.Context, _ string) (int64, error) {
	if err := s.pass(ctx, 10*time.Millisecond); err != nil {
		return 0, err
	}
	if simNow() < s.world.unnamed {
		<-ctx.Done()
		return 0, ctx.Err()
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
	if err := s.pass(ctx, 2*time.Millisecond); err != nil {
		return err
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
