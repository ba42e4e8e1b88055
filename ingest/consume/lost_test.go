package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// cutLog is a log of one partition that a test cuts, by what each record says. It is its own group, and keeps its
// commits.
type cutLog struct {
	mu     sync.Mutex
	start  int64
	held   []traffic.Message // from start on
	commit *ingest.Commit
	away   bool // it does not answer
}

var (
	_ ingest.TimedLog = (*cutLog)(nil)
	_ ingest.Group    = (*cutLog)(nil)
	_ ingest.Commits  = (*onlyCommits)(nil)
)

func (l *cutLog) end() int64 { return l.start + int64(len(l.held)) }

// write appends records, a second apart; keep cuts off what is from an offset on before.
func (l *cutLog) write(values ...string) {
	for _, v := range values {
		pass(time.Second)
		l.mu.Lock()
		l.held = append(l.held, traffic.Message{Offset: l.end(), Value: []byte(v), Appended: traffic.At(time.Now())})
		l.mu.Unlock()
	}
}

func (l *cutLog) keep(from, to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.start = slices.Clone(l.held[from-l.start:to-l.start]), from
}

func (l *cutLog) leave(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

func (l *cutLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	l.mu.Lock()
	at := positions[0].Offset
	f := ingest.Fetched{HighWatermark: l.end(), LogStart: l.start, Next: l.end(), Asked: traffic.At(time.Now())}
	if at < l.start || at > l.end() {
		f.Err = ingest.ErrOutOfRange
	} else {
		f.Messages = slices.Clone(l.held[at-l.start:])
	}
	away := l.away
	l.mu.Unlock()
	if len(f.Messages) == 0 || away {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	if away {
		return nil, nil
	}
	return []ingest.Fetched{f}, nil
}

func (l *cutLog) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[int]ingest.Bounds{0: {Start: l.start, End: l.end()}}, nil
}

func (l *cutLog) OffsetsAt(_ context.Context, _ []int, at traffic.Time) (map[int]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.held {
		if m.Appended >= at {
			return map[int]int64{0: m.Offset}, nil
		}
	}
	return map[int]int64{0: detectors.NoOffset}, nil
}

func (l *cutLog) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	return session(ctx, ingest.Assignment{Generation: 1, Member: "m", Partitions: []int{0}, Commits: &onlyCommits{l}})
}

// onlyCommits has Commits.Fetch, whose name Log has taken.
type onlyCommits struct{ l *cutLog }

func (c *onlyCommits) Fetch(context.Context, []int) (map[int]ingest.Commit, error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.commit == nil {
		return nil, nil
	}
	return map[int]ingest.Commit{0: *c.l.commit}, nil
}

func (c *onlyCommits) Commit(_ context.Context, commits map[int]ingest.Commit) error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	made := commits[0]
	c.l.commit = &made
	return nil
}

// valueSink counts how often each value was applied.
type valueSink struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *valueSink) Apply(_ context.Context, batch []traffic.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range batch {
		s.seen[string(m.Value)]++
	}
	return nil
}

// cutWorld runs consumers over a log that is cut.
type cutWorld struct {
	t        *testing.T
	log      *cutLog
	sink     *valueSink
	registry *prometheus.Registry
	told     []ingest.Loss
	refuse   bool // losses are not taken

	store     ingest.Sink // nil: sink
	positions Positions
}

func (w *cutWorld) run(during func()) {
	w.t.Helper()
	store := w.store
	if store == nil {
		store = w.sink
	}
	c, err := New(Options{Name: "record", Log: w.log, Group: w.log, Sink: store, Positions: w.positions,
		Registerer: w.registry,
		Lost: func(_ context.Context, l ingest.Loss) error {
			w.log.mu.Lock()
			defer w.log.mu.Unlock()
			if w.refuse {
				return errors.New("refused")
			}
			w.told = append(w.told, l)
			return nil
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	during()
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func settle() { pass(10 * time.Second) }

func values(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i)
	}
	return all
}

// Whatever happens to a log, while its stage runs and while it does not: all that it holds is applied, a loss is told
// where there was one and only there, and what was read long ago is not read again.
func TestWhatALogHoldsIsRead(t *testing.T) {
	noted := func(*cutWorld) {}
	forgotten := func(w *cutWorld) { w.log.commit.Metadata = "" } // as a build before has committed
	for _, tc := range []struct {
		name          string
		before        func(*cutWorld)
		happens       func(*cutWorld)
		down          bool  // nothing runs while it happens
		losses        int   // that are told
		offsets, next int64 // of the loss
		again         int   // records that are applied twice
	}{
		{name: "nothing", happens: func(w *cutWorld) { w.log.write("x") }, down: true},
		{name: "nothing, while it runs", happens: func(w *cutWorld) { w.log.write("x") }},
		{name: "the tail is lost", happens: func(w *cutWorld) { w.log.keep(0, 20); w.log.write("x", "y") },
			down: true, losses: 1, next: 10, again: 10},
		{name: "the tail is lost, while it runs", happens: func(w *cutWorld) {
			w.log.keep(0, 20)
			w.log.write("x",
				"y")
		}, losses: 1, next: 10, again: 10},
		{name: "made anew", happens: func(w *cutWorld) { w.log.keep(0, 0); w.log.write("x", "y") }, down: true,
			losses: 1},
		{name: "made anew, while it runs", happens: func(w *cutWorld) { w.log.keep(0, 0); w.log.write("x", "y") },
			losses: 1},
		{name: "made anew, and empty", happens: func(w *cutWorld) { w.log.keep(0, 0) }, losses: 1},
		{name: "grown again", happens: func(w *cutWorld) { w.log.keep(0, 20); w.log.write(values("x", 15)...) },
			down: true, losses: 1, next: 10, again: 10},
		{name: "grown again between two fetches", happens: func(w *cutWorld) {
			w.log.leave(true)
			w.log.keep(0, 20)
			w.log.write(values("x", 15)...)
			w.log.leave(false)
		}, losses: 1, next: 10, again: 10},
		{name: "away", happens: func(w *cutWorld) { w.log.leave(true); w.log.write("x", "y"); w.log.leave(false) }},
		{name: "of a build before, the tail is lost", before: forgotten,
			happens: func(w *cutWorld) { w.log.keep(0, 20); w.log.write("x") }, down: true, losses: 1, again: 20},
		{name: "of a build before, nothing", before: forgotten, happens: func(w *cutWorld) { w.log.write("x") },
			down: true},
		{name: "retention has passed", happens: func(w *cutWorld) {
			w.log.write(values("x", 9)...)
			w.log.keep(34,
				39)
		}, down: true, losses: 1, offsets: 4, next: 34},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &cutWorld{t: t, log: &cutLog{}, sink: &valueSink{seen: map[string]int{}},
					registry: prometheus.NewRegistry()}
				w.run(func() {
					w.log.write(values("old", 10)...)
					time.Sleep(leadersApart)
					w.log.write(values("new", 20)...)
					settle()
					if !tc.down {
						tc.happens(w)
						settle()
					}
				})
				if tc.down {
					cmpOr(tc.before, noted)(w)
					time.Sleep(time.Minute)
					tc.happens(w)
					w.run(settle)
				}
				w.judge(tc.losses, tc.offsets, tc.next, tc.again)
			})
		})
	}
}

func cmpOr(f, otherwise func(*cutWorld)) func(*cutWorld) {
	if f == nil {
		return otherwise
	}
	return f
}

func (w *cutWorld) judge(losses int, offsets, next int64, again int) {
	w.t.Helper()
	for _, m := range w.log.held {
		if w.sink.seen[string(m.Value)] == 0 {
			w.t.Errorf("%s, at offset %d, is not applied", m.Value, m.Offset)
		}
	}
	twice := 0
	for n := range maps.Values(w.sink.seen) {
		twice += n - 1
	}
	if twice != again {
		w.t.Errorf("%d were applied again, want %d", twice, again)
	}
	if len(w.told) != losses || losses > 0 && (w.told[0].Offsets != offsets || w.told[0].Next != next ||
		w.told[0].From != 30 || w.told[0].Stage != "record") {
		w.t.Errorf("told %+v, want %d losses of %d records, going on at %d", w.told, losses, offsets, next)
	}
	if c := w.log.commit; c.Offset != w.log.end() {
		w.t.Errorf("committed %+v, the log ends at %d", c, w.log.end())
	}
}

// Nothing is committed before its loss is stored: who dies meanwhile has a successor that finds it again.
func TestALossIsStoredBeforeTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &cutWorld{t: t, log: &cutLog{}, sink: &valueSink{seen: map[string]int{}},
			registry: prometheus.NewRegistry()}
		w.run(func() { w.log.write(values("old", 10)...); settle() })
		w.log.keep(0, 0)
		w.refuse = true
		w.run(func() { w.log.write("x"); settle() })
		if w.sink.seen["x"] != 1 || w.log.commit.Offset != 10 {
			t.Errorf("applied %v, committed %+v: want x, and no commit", w.sink.seen, w.log.commit)
		}
		w.refuse = false
		w.run(settle)
		if w.sink.seen["x"] != 2 || w.log.commit.Offset != 1 || len(w.told) != 1 {
			t.Errorf("applied %v, committed %+v, told %+v", w.sink.seen, w.log.commit, w.told)
		}
		if n, err := testutil.GatherAndCount(w.registry, "weir_stage_log_replaced_total"); n != 1 || err != nil {
			t.Errorf("%d series, %v", n, err)
		}
	})
}

// While a stage waits for another look, a log may grow past what a build before has committed: who does not know how
// new that was reads it all.
func TestALogThatGrowsAgainDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &cutWorld{t: t, log: &cutLog{}, sink: &valueSink{seen: map[string]int{}},
			registry: prometheus.NewRegistry()}
		w.run(func() { w.log.write(values("old", 10)...); settle() })
		w.log.commit.Metadata = ""
		w.log.keep(0, 8)
		w.run(func() { w.log.write(values("x", 4)...); settle() })
		for _, v := range values("x", 4) {
			if w.sink.seen[v] == 0 {
				t.Errorf("%s is not applied", v)
			}
		}
		if len(w.told) != 1 || w.told[0].From != 10 || w.told[0].Next != 0 {
			t.Errorf("told %+v", w.told)
		}
	})
}
