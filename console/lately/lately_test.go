package lately

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// redis stands in for Redis: it holds so many blocks and releases, and each walk over its blocks takes some time.
type redis struct {
	blocks, releases int
	twice            bool // each is met twice
	takes            time.Duration

	mu      sync.Mutex
	away    error
	walks   int // over blocks
	under   int // walks at a time
	most    int // of under
	visited int // blocks and releases that were handed out
	asked   []blocklist.Filter
}

func subject(i int) traffic.Subject {
	return traffic.Subject(fmt.Sprintf("ip=198.%d.%d.%d%%2F32", 18+i>>16, i>>8&255, i&255))
}

// item is the i-th block or release. Every third is of another rule.
func item(i int, released bool) blocklist.Listed {
	l := blocklist.Listed{Subject: subject(i), Rule: "login-burst"}
	if i%3 == 0 {
		l.Rule = "guest-flood"
	}
	since := traffic.At(time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)).Add(time.Duration(i) * time.Microsecond)
	hit := fmt.Sprintf("%032x", i+1)
	if released {
		t := blocklist.NewTombstone(strings.Clone(l.Rule), "ann", since, since.Add(time.Hour))
		t.Hit, l.Tombstone = hit, &t
		return l
	}
	b := blocklist.NewBlock(strings.Clone(l.Rule), 1, hit, since, since.Add(time.Hour))
	l.Block, l.InForce = &b, true
	return l
}

func (r *redis) Each(ctx context.Context, _ traffic.Time, wanted blocklist.Wanted,
	take func(blocklist.Listed) bool) (int, error) {
	r.mu.Lock()
	n := r.releases
	if !wanted.Released {
		r.walks, n = r.walks+1, r.blocks
	}
	r.under++
	r.most = max(r.most, r.under)
	away := r.away
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.under--
	}()
	if !wanted.Released && r.takes > 0 {
		select {
		case <-time.After(r.takes):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if away != nil {
		return 0, away
	}
	for i := range n {
		again := 1
		if r.twice {
			again = 2
		}
		for range again {
			r.mu.Lock()
			r.visited++
			r.mu.Unlock()
			if !take(item(n-1-i, wanted.Released)) {
				return 1, nil
			}
		}
	}
	return 1, nil
}

func (r *redis) List(_ context.Context, _ traffic.Time, filter blocklist.Filter) (blocklist.Listing, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, filter)
	return blocklist.Listing{Items: []blocklist.Listed{item(0, false)}}, r.away
}

func (r *redis) set(away error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *redis) counted() (walks, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.walks, r.most
}

func newBlocks(t testing.TB, r *redis, most, released int) (*Blocks, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	b, err := New(Options{
		Source: r, Clock: func() traffic.Time { return traffic.At(time.Now()) }, Registerer: registry,
		Most: most, MostReleased: released,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, registry
}

func list(ctx context.Context, b *Blocks, f blocklist.Filter) (blocklist.Listing, error) {
	return b.List(ctx, traffic.At(time.Now()), f)
}

// However many ask at once, there is one walk; and the next one is not before the reading is some time old.
func TestOneWalkForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redis{blocks: 10, releases: 2, takes: 2 * time.Second}
		b, _ := newBlocks(t, r, 0, 0)
		defer b.Close()
		var asking sync.WaitGroup
		ask := func(f blocklist.Filter, want int) {
			asking.Go(func() {
				got, err := list(t.Context(), b, f)
				if err != nil || len(got.Items) != want || got.Cut {
					t.Errorf("%+v: %d items, cut %v, %v; want %d", f, len(got.Items), got.Cut, err, want)
				}
			})
		}
		for range 12 {
			ask(blocklist.Filter{}, 10)
			ask(blocklist.Filter{Tombstones: true}, 12)
			ask(blocklist.Filter{Rule: "guest-flood"}, 4)
			ask(blocklist.Filter{Rule: "guest-flood", Tombstones: true}, 5)
			ask(blocklist.Filter{Hit: fmt.Sprintf("%032x", 10)}, 1)
		}
		asking.Wait()
		time.Sleep(8*time.Second - time.Millisecond) // four times as long as it took
		ask(blocklist.Filter{}, 10)
		asking.Wait()
		if walks, most := r.counted(); walks != 1 || most != 1 {
			t.Fatalf("%d walks, %d at a time; want one", walks, most)
		}
		time.Sleep(2 * time.Millisecond)
		for range 12 {
			ask(blocklist.Filter{}, 10)
		}
		asking.Wait()
		if walks, most := r.counted(); walks != 2 || most != 1 {
			t.Fatalf("%d walks after a while, %d at a time; want 2, one", walks, most)
		}
	})
}

// Who goes away before the reading is there takes it from nobody.
func TestWhoGoesAwayEndsNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redis{blocks: 3, takes: 5 * time.Second}
		b, _ := newBlocks(t, r, 0, 0)
		defer b.Close()
		first, leave := context.WithCancel(t.Context())
		gone, stays := make(chan error, 1), make(chan error, 1)
		go func() { _, err := list(first, b, blocklist.Filter{}); gone <- err }()
		synctest.Wait()
		go func() {
			got, err := list(t.Context(), b, blocklist.Filter{})
			if len(got.Items) != 3 {
				err = errors.Join(err, fmt.Errorf("%d items, want 3", len(got.Items)))
			}
			stays <- err
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
		if err := <-stays; err != nil {
			t.Error(err)
		}
		if walks, _ := r.counted(); walks != 1 {
			t.Errorf("%d walks, want 1", walks)
		}
	})
}

// A Redis that does not answer is one error for all, and is left alone for a while, whatever is changed meanwhile.
func TestAFailureIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("redis is away")
		r := &redis{blocks: 3, takes: 3 * time.Second, away: broken}
		b, registry := newBlocks(t, r, 0, 0)
		defer b.Close()
		fails := func() {
			t.Helper()
			var asking sync.WaitGroup
			for range 12 {
				asking.Go(func() {
					if got, err := list(t.Context(), b, blocklist.Filter{}); !errors.Is(err, broken) ||
						len(got.Items) != 0 {
						t.Errorf("%d items, %v; want %v", len(got.Items), err, broken)
					}
				})
			}
			asking.Wait()
		}
		go func() { time.Sleep(time.Second); b.Forget() }() // while it is asked
		fails()
		r.set(nil)
		b.Forget()
		fails()
		time.Sleep(999 * time.Millisecond)
		fails()
		if walks, _ := r.counted(); walks != 1 {
			t.Fatalf("%d walks within a second of a failure, want 1", walks)
		}
		time.Sleep(2 * time.Millisecond)
		if got, err := list(t.Context(), b, blocklist.Filter{}); err != nil || len(got.Items) != 3 {
			t.Errorf("when it answers again: %d items, %v; want 3", len(got.Items), err)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP weir_console_block_readings_total Walks over the blocks in Redis for all who ask for listings.
# TYPE weir_console_block_readings_total counter
weir_console_block_readings_total{outcome="cut"} 0
weir_console_block_readings_total{outcome="failed"} 1
weir_console_block_readings_total{outcome="whole"} 1
`)); err != nil {
			t.Error(err)
		}
	})
}

// Redis that hangs ends with the reading's own time, not with that of who asked.
func TestAReadingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redis{takes: time.Hour}
		b, _ := newBlocks(t, r, 0, 0)
		defer b.Close()
		begun := time.Now()
		if _, err := list(t.Context(), b, blocklist.Filter{}); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != within {
			t.Errorf("after %s: %v; want its deadline after %s", time.Since(begun), err, within)
		}
	})
}

// After a change whoever asks gets what was read from then on, also where a walk had begun before; others get theirs.
func TestAChangeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redis{blocks: 3, takes: 2 * time.Second}
		b, _ := newBlocks(t, r, 0, 0)
		defer b.Close()
		begun := time.Now()
		took := make(chan time.Duration, 2)
		ask := func() {
			_, err := list(t.Context(), b, blocklist.Filter{})
			if err != nil {
				t.Error(err)
			}
			took <- time.Since(begun)
		}
		go ask()
		time.Sleep(time.Second)
		b.Forget()
		go ask()
		synctest.Wait()
		b.Forget() // the second one is to begin anyhow: it is enough for who has asked by now
		for _, want := range []time.Duration{2 * time.Second, 4 * time.Second} {
			if got := <-took; got != want {
				t.Errorf("an answer after %s, want %s", got, want)
			}
		}
		go ask()
		synctest.Wait()
		if walks, most := r.counted(); walks != 2 || most != 1 || len(took) != 1 {
			t.Fatalf("%d walks, %d at a time, %d answers; want 2, 1 and 1", walks, most, len(took))
		}
		b.Forget()
		go ask()
		synctest.Wait()
		if walks, _ := r.counted(); walks != 3 {
			t.Errorf("%d walks, want 3", walks)
		}
		<-took
		<-took
	})
}

// What Redis holds beyond the bound is not kept, and is told: of each kind by itself, and of filters, too.
func TestWhatIsCutIsTold(t *testing.T) {
	for _, tt := range []struct {
		blocks, releases       int
		twice                  bool
		keeps, keepsAll        int // without and with releases
		cut, cutAll            bool
		visitedMost            int
		ofRule, ofRuleReleased int
	}{
		{blocks: 10, releases: 5, keeps: 10, keepsAll: 15, visitedMost: 15, ofRule: 4, ofRuleReleased: 6},
		{blocks: 11, releases: 5, keeps: 10, keepsAll: 15, cut: true, cutAll: true, visitedMost: 16, ofRule: 3,
			ofRuleReleased: 5},
		{blocks: 10, releases: 6, keeps: 10, keepsAll: 15, cutAll: true, visitedMost: 16, ofRule: 4, ofRuleReleased: 5},
		{blocks: 300_000, releases: 300_000, keeps: 10, keepsAll: 15, cut: true, cutAll: true, visitedMost: 17,
			ofRule: 3, ofRuleReleased: 4},
		{blocks: 5, releases: 2, twice: true, keeps: 5, keepsAll: 7, visitedMost: 14, ofRule: 2, ofRuleReleased: 3},
		{},
	} {
		t.Run(fmt.Sprintf("%d and %d", tt.blocks, tt.releases), func(t *testing.T) {
			r := &redis{blocks: tt.blocks, releases: tt.releases, twice: tt.twice}
			b, _ := newBlocks(t, r, 10, 5)
			for _, ask := range []struct {
				filter blocklist.Filter
				want   int
				cut    bool
			}{
				{blocklist.Filter{}, tt.keeps, tt.cut}, {blocklist.Filter{Tombstones: true}, tt.keepsAll, tt.cutAll},
				{blocklist.Filter{Rule: "guest-flood"}, tt.ofRule, tt.cut},
				{blocklist.Filter{Rule: "guest-flood", Tombstones: true}, tt.ofRuleReleased, tt.cutAll},
				{blocklist.Filter{Rule: "no-rule"}, 0, tt.cut},
			} {
				got, err := list(t.Context(), b, ask.filter)
				if err != nil || len(got.Items) != ask.want || got.Cut != ask.cut {
					t.Errorf("%+v: %d items, cut %v, %v; want %d, %v", ask.filter, len(got.Items), got.Cut, err,
						ask.want, ask.cut)
				}
				for i := 1; i < len(got.Items); i++ {
					if got.Items[i-1].Compare(&got.Items[i]) >= 0 {
						t.Errorf("%+v: %s does not come before %s", ask.filter, got.Items[i-1].Subject,
							got.Items[i].Subject)
					}
				}
				if cap(got.Items) != len(got.Items) && ask.filter.Rule == "" {
					t.Error("who appends to what all are given writes into it")
				}
			}
			if r.walks != 1 || r.visited > tt.visitedMost {
				t.Errorf("%d walks, %d visited; want 1, %d at most", r.walks, r.visited, tt.visitedMost)
			}
		})
	}
}

// What one source has is asked of Redis itself, and of nothing else.
func TestASubjectIsAskedFor(t *testing.T) {
	r := &redis{blocks: 300_000}
	b, _ := newBlocks(t, r, 10, 5)
	f := blocklist.Filter{Subject: subject(0), Rule: "guest-flood", Tombstones: true}
	got, err := list(t.Context(), b, f)
	if err != nil || len(got.Items) != 1 || got.Cut || r.walks != 0 || len(r.asked) != 1 || r.asked[0] != f {
		t.Errorf("%d items, cut %v, %v, after %d walks and %v", len(got.Items), got.Cut, err, r.walks, r.asked)
	}
}

func TestOptionsAreRequired(t *testing.T) {
	whole := Options{Source: &redis{}, Clock: func() traffic.Time { return 1 }, Registerer: prometheus.NewRegistry()}
	for name, o := range map[string]Options{
		"source":     {Clock: whole.Clock, Registerer: whole.Registerer},
		"clock":      {Source: whole.Source, Registerer: whole.Registerer},
		"registerer": {Source: whole.Source, Clock: whole.Clock},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("without %s it is made", name)
		}
	}
}
