package console

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// stores stands in for PostgreSQL and Redis; a test changes what they hold while the console reads.
type stores struct {
	mu       sync.Mutex
	rules    []rulestore.Rule
	hits     []history.RecordedHit
	listed   []blocklist.Listed
	away     map[string]error // by part
	reads    map[string]int   // by part
	pulse    Pulse
	problems []Problem
}

func (s *stores) asked(part string) error {
	if s.reads == nil {
		s.reads = map[string]int{}
	}
	s.reads[part]++
	return s.away[part]
}

// ruleList is the rule store among stores.
type ruleList struct{ *stores }

func (s ruleList) List(context.Context) ([]rulestore.Rule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rules), s.asked(partHistory)
}

func (s *stores) Hits(_ context.Context, q history.HitQuery) ([]history.RecordedHit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []history.RecordedHit
	for _, h := range s.hits {
		if h.Rule == q.Rule && h.Last >= q.Since && h.Stream == q.Stream {
			out = append(out, h)
		}
	}
	slices.SortStableFunc(out, func(a, b history.RecordedHit) int { return int(b.Last - a.Last) })
	return first(out, q.Limit), nil
}

func (s *stores) List(_ context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out blocklist.Listing
	for _, l := range s.listed {
		if l.Tombstone == nil || filter.Tombstones {
			out.Items = append(out.Items, l)
		}
	}
	return out, s.asked(partBlocks)
}

func (s *stores) beat() Pulse {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulse
	p.Problems = slices.Clone(s.problems)
	return p
}

// change runs a change of what the stores hold.
func (s *stores) change(how func(s *stores)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(s)
}

var (
	_ History = (*stores)(nil)
	_ Blocks  = (*stores)(nil)
)

func wallClock() traffic.Time { return traffic.At(time.Now()) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func options(s *stores) Options {
	return Options{
		Rules: ruleList{s}, History: s, Blocks: s, Pulse: s.beat, Clock: wallClock, Logger: quiet(), Registerer: prometheus.NewRegistry(),
	}
}

func newConsole(t testing.TB, o Options) *Console {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs c until the test ends, or the function that it returns is called.
func run(t testing.TB, c *Console) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
