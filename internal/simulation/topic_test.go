package simulation

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// topic is a log of the world. The world's lock guards it.
type topic struct {
	w     *world
	parts []topicPart
	news  chan struct{} // closed, and replaced, when something is appended
}

type topicPart struct {
	start   int64
	records []entry
}

type entry struct {
	at      traffic.Time // of the requests log also in the future: then nobody sees it yet
	value   []byte
	shown   []byte // what readers get; value, but for some bugs
	control bool   // a control record, which no fetch returns
}

func newTopic(w *world, partitions int) *topic {
	return &topic{w: w, parts: make([]topicPart, partitions), news: make(chan struct{})}
}

func (p *topicPart) end(now traffic.Time) int64 {
	n := len(p.records)
	if n == 0 || p.records[n-1].at <= now {
		return int64(n)
	}
	return int64(sort.Search(n, func(i int) bool { return p.records[i].at > now }))
}

// put appends; the world's lock must be held.
func (t *topic) put(partition int, values [][]byte) {
	p := &t.parts[partition]
	for _, v := range values {
		shown := v
		if t == t.w.keyed {
			shown = t.w.reshow(partition, v)
		}
		p.records = append(p.records, entry{at: now(), value: v, shown: shown})
	}
	close(t.news)
	t.news = make(chan struct{})
}

// topicLog is a process's reading of a topic.
type topicLog struct {
	*host
	t *topic
}

var _ ingest.Log = (*topicLog)(nil)

func (l *topicLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	if err := l.thaw(ctx, fetching); err != nil {
		return nil, err
	}
	asked := now()
	positions = slices.Clone(positions)
	slices.SortFunc(positions, func(a, b ingest.Position) int { return a.Partition - b.Partition })
	l.await(ctx, positions, wait+l.span(fetching, 0, 4*wait)) // brokers are slow
	if err := l.pass(ctx, fetching, time.Millisecond, 40*time.Millisecond); err != nil {
		return nil, err
	}
	if l.fails(fetching, .01) {
		return nil, errFault
	}
	var out []ingest.Fetched
	for _, at := range positions {
		if l.fails(fetching, .02) || l.away(at.Partition) {
			continue // its leader is away
		}
		most := 1 + int64(l.below(fetching, 12))
		l.w.mu.Lock()
		out = append(out, l.answer(at, asked, most))
		l.w.mu.Unlock()
	}
	return out, nil
}

// await waits for the first record past any of the positions.
func (l *topicLog) await(ctx context.Context, positions []ingest.Position, wait time.Duration) {
	l.w.mu.Lock()
	news := l.t.news
	for _, at := range positions {
		p := &l.t.parts[at.Partition]
		switch {
		case at.Offset < p.start:
			wait = 0
		case at.Offset < int64(len(p.records)):
			wait = min(wait, p.records[at.Offset].at.Sub(now()))
		}
	}
	l.w.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-news:
	case <-ctx.Done():
	}
}

func (l *topicLog) answer(at ingest.Position, asked traffic.Time, most int64) ingest.Fetched {
	p := &l.t.parts[at.Partition]
	end := p.end(now())
	f := ingest.Fetched{Partition: at.Partition, Next: at.Offset, HighWatermark: end, LogStart: p.start, Asked: asked}
	if at.Offset < p.start || at.Offset > end {
		f.Err = ingest.ErrOutOfRange
		return f
	}
	for o := at.Offset; o < min(end, at.Offset+most); o++ {
		f.Next = o + 1
		if r := &p.records[o]; !r.control {
			f.Messages = append(f.Messages, traffic.Message{Partition: at.Partition, Offset: o, Appended: r.at, Value: r.shown})
		}
	}
	return f
}

func (l *topicLog) Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	if err := l.pass(ctx, bounding, time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, err
	}
	if l.fails(bounding, .05) {
		return nil, errFault
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	out := map[int]ingest.Bounds{}
	for _, p := range partitions {
		if l.awayLocked(p) {
			return nil, errFault
		}
		out[p] = ingest.Bounds{Start: l.t.parts[p].start, End: l.t.parts[p].end(now())}
	}
	return out, nil
}

// away reports whether a partition has no leader now: a source partition in its outage.
func (l *topicLog) away(partition int) bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.awayLocked(partition)
}

func (l *topicLog) awayLocked(partition int) bool {
	return l.t == l.w.requests && slices.ContainsFunc(l.w.outages, func(o outage) bool {
		return partition == o.partition && now() >= o.from && now() < o.until
	})
}

// longAway reports whether a source partition's outage has lasted for so long that it counts as one that cannot be read.
func (w *world) longAway(partition int) bool {
	return slices.ContainsFunc(w.outages, func(o outage) bool { return partition == o.partition && now() >= o.from.Add(30*time.Second) })
}

// topicAppender is a process's writing to a topic.
type topicAppender struct {
	*host
	t    *topic
	rash bool // acknowledges before it has written
}

var _ ingest.Appender = (*topicAppender)(nil)

// Append writes some batches, some not, some later, and of some it loses the answer only.
func (a *topicAppender) Append(ctx context.Context, batches []ingest.Batch) error {
	if a.rash {
		return a.promise(ctx, batches)
	}
	order := make([]int, len(batches))
	for i := range order {
		order[i] = i
	}
	a.shuffle(appending, order)
	var failed error
	for _, i := range order {
		if a.t != a.w.keyed || detectors.KeyedKind(batches[i].Values[0][1]) == detectors.KeyedEvent {
			a.w.script.freezes(a.host)
		}
		if err := a.pass(ctx, appending, 100*time.Microsecond, 30*time.Millisecond); err != nil {
			return err
		}
		for _, part := range a.parts(batches[i].Values) {
			if !a.batch(batches[i].Partition, part) {
				failed = errFault
			}
		}
	}
	return failed
}

// parts is the batch as it is: one. A bug splits it in two that come in any order.
func (a *topicAppender) parts(values [][]byte) [][][]byte {
	copied := make([][]byte, len(values))
	for i, v := range values {
		copied[i] = slices.Clone(v)
	}
	if half := len(copied) / 2; a.w.bugs.splitBatches && half > 0 && a.t == a.w.keyed {
		return [][][]byte{copied[half:], copied[:half]}
	}
	return [][][]byte{copied}
}

func (a *topicAppender) batch(partition int, values [][]byte) bool {
	if a.w.lossy && a.t == a.w.keyed && a.fails(appending, .015) {
		a.w.mu.Lock()
		a.w.vanished++
		a.w.mu.Unlock()
		return true
	}
	write := func() {
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		a.t.put(partition, values)
	}
	if !a.fails(appending, a.w.loss) {
		write()
		return !a.w.script.written(a, values[0])
	}
	switch x := a.below(appending, 10); {
	case x < 3: // lost
	case x < 6: // late, whoever is dead by then
		a.w.later(a.span(appending, 50*time.Millisecond, []time.Duration{time.Second, 6 * time.Second, 25 * time.Second}[a.below(appending, 3)]), write)
	default: // only the answer is lost
		write()
	}
	return false
}

// promise is the bug of acknowledging at once: the process writes a little later, if it still lives.
func (a *topicAppender) promise(ctx context.Context, batches []ingest.Batch) error {
	if err := a.pass(ctx, appending, 100*time.Microsecond, time.Millisecond); err != nil {
		return err
	}
	delay := a.span(appending, 10*time.Millisecond, 2*time.Second)
	for _, b := range batches {
		values := a.parts(b.Values)[0]
		a.w.later(delay, func() {
			if !a.dead() {
				a.w.mu.Lock()
				defer a.w.mu.Unlock()
				a.t.put(b.Partition, values)
			}
		})
	}
	return nil
}
