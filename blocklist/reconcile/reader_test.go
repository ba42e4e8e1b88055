package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// asker is a Standing that keeps what it is told, and a history that may fail.
type asker struct {
	bulk
	mu     sync.Mutex
	asked  int
	fail   error
	hangs  bool // takes the question and never answers
	start  time.Time
	begun  []time.Duration // readings, since start
	ended  int
	blocks int // of the present reading
}

func (a *asker) Asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func (a *asker) BeginReading() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun, a.blocks = append(a.begun, time.Since(a.start)), 0
}

func (a *asker) EndReading() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended++
}

func (a *asker) Stands(blocklist.Name, *blocklist.Block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks++
}

func (a *asker) Modes(context.Context) ([]rules.ModeState, error) {
	return []rules.ModeState{{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1}}, nil
}

func (a *asker) ActiveBlocks(ctx context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.fail != nil {
		return nil, a.fail
	}
	return a.bulk.ActiveBlocks(ctx, q)
}

func (a *asker) answer(fail error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = fail
}

func (a *asker) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
}

func (a *asker) times() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.begun)
}

// read runs a Reader of most decisions for an asker within a bubble; it ends with the test.
func (a *asker) read(t *testing.T, log *bytes.Buffer, most int) *Reader {
	t.Helper()
	a.start = time.Now()
	r, err := NewReader(ReaderOptions{
		Modes: a, Active: a, Standing: a, Clock: func() traffic.Time { return traffic.At(time.Now()) },
		Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.most = most
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *Reader) outcomes() string {
	n := func(outcome string) int { return int(testutil.ToFloat64(r.readings.WithLabelValues(outcome))) }
	return fmt.Sprintf("%d complete, %d cut, %d failed", n(readComplete), n(readCut), n(readFailed))
}

// Those who ask at about the same time share a reading; partitions that move all the time are read four times a minute at most;
// and there is one reading more, a minute after the last of them.
func TestReadingsAreShared(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	tests := []struct {
		name string
		asks []time.Duration
		want []time.Duration
	}{
		{"nobody", nil, nil},
		{"one", []time.Duration{500 * ms}, []time.Duration{3 * s, 61 * s}},
		{"three at a time", []time.Duration{500 * ms, 1500 * ms, 2500 * ms}, []time.Duration{3 * s, 63 * s}},
		{"another one within the pause", []time.Duration{500 * ms, 4500 * ms}, []time.Duration{3 * s, 18 * s, 65 * s}},
		{"another one after it", []time.Duration{500 * ms, 30500 * ms}, []time.Duration{3 * s, 33 * s, 91 * s}},
		{"as the second reading is due", []time.Duration{500 * ms, 60500 * ms}, []time.Duration{3 * s, 63 * s, 121 * s}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{bulk: manyBlocks(3, traffic.At(time.Now().Add(time.Minute)))}
				var log bytes.Buffer
				r := a.read(t, &log, readMost)
				for _, at := range tt.asks {
					time.Sleep(at - time.Since(a.start))
					a.ask()
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := a.times(); !slices.Equal(got, tt.want) || a.ended != len(tt.want) || log.Len() > 0 {
					t.Errorf("readings began after %v, %d ended; want %v\n%s", got, a.ended, tt.want, log.String())
				}
				if got, want := r.outcomes(), fmt.Sprintf("%d complete, 0 cut, 0 failed", len(tt.want)); got != want {
					t.Errorf("counted: %s, want %s", got, want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a := &asker{}
		a.read(t, &bytes.Buffer{}, readMost)
		for second := range 300 {
			time.Sleep(time.Duration(second)*s + 500*ms - time.Since(a.start))
			a.ask()
		}
		if got := a.times(); len(got) < 19 || len(got) > 21 {
			t.Errorf("%d readings in five minutes in which partitions moved each second, want one in 15 s: %v", len(got), got)
		}
	})
}

// While history is away it is asked more and more seldom, and the log says so now and then. What it says then is told.
func TestAReadingThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{bulk: manyBlocks(3, traffic.At(time.Now().Add(time.Hour)))}
		var log bytes.Buffer
		r := a.read(t, &log, readMost)
		a.answer(errors.New("connection refused"))
		time.Sleep(500 * time.Millisecond)
		a.ask()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		got := a.times()
		if want := []time.Duration{3, 5, 9, 17, 33, 65, 125, 185}; len(got) < 10 || len(got) > 16 || got[1] != want[1]*time.Second || got[7] != want[7]*time.Second {
			t.Errorf("tried after %v, want %v and so on", got, want)
		}
		if n := strings.Count(log.String(), "cannot read from history"); n < 1 || n > 10 || a.ended != 0 || !strings.Contains(log.String(), "connection refused") {
			t.Errorf("%d readings ended; logged\n%s", a.ended, log.String())
		}
		log.Reset()
		a.answer(nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if a.ended != 1 || a.blocks != 3 || strings.Count(log.String(), "works again") != 1 {
			t.Errorf("%d readings ended, the last one with %d blocks; logged\n%s", a.ended, a.blocks, log.String())
		}
		if want := fmt.Sprintf("1 complete, 0 cut, %d failed", len(a.times())-1); r.outcomes() != want {
			t.Errorf("counted: %s, want %s", r.outcomes(), want)
		}

		a.answer(errors.New("connection refused")) // another trouble begins with a short pause
		time.Sleep(21*time.Minute - time.Since(a.start))
		a.ask()
		before := len(a.times())
		time.Sleep(15 * time.Second)
		if got := len(a.times()) - before; got != 3 {
			t.Errorf("%d tries in the first quarter of a minute, want 3", got)
		}
	})
}

// A history of too many decisions is read as far as that goes, which is said; it is no trouble that another try would end.
func TestAReadingIsBounded(t *testing.T) {
	for _, tt := range []struct {
		decisions, most, told int
		outcomes              string
	}{
		{3 * sliceSize, 3 * sliceSize, 3 * sliceSize, "2 complete, 0 cut, 0 failed"},
		{3*sliceSize + 1, 3 * sliceSize, 3 * sliceSize, "0 complete, 2 cut, 0 failed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &asker{bulk: manyBlocks(tt.decisions, traffic.At(time.Now().Add(time.Hour)))}
			var log bytes.Buffer
			r := a.read(t, &log, tt.most)
			time.Sleep(500 * time.Millisecond)
			a.ask()
			time.Sleep(time.Hour)
			synctest.Wait()
			if cut := strings.Count(log.String(), "more decisions in force than are read"); a.blocks != tt.told || r.outcomes() != tt.outcomes || cut != 2-a.ended {
				t.Errorf("%d of %d told, %s, %d complete; logged\n%s", a.blocks, tt.decisions, r.outcomes(), a.ended, log.String())
			}
		})
	}
}

// A process that ends does not complain that what it was about was cut short.
func TestAReadingEndsWithItsProcess(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		a := &asker{hangs: true}
		a.read(t, &log, readMost)
		a.ask()
		time.Sleep(20 * time.Second)
	})
	if log.Len() > 0 {
		t.Errorf("logged\n%s", log.String())
	}
}

func TestAReaderNeedsItsOptions(t *testing.T) {
	a := &asker{}
	whole := ReaderOptions{
		Modes: a, Active: a, Standing: a, Clock: func() traffic.Time { return 1 }, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	}
	for name, without := range map[string]func(o *ReaderOptions){
		"Modes": func(o *ReaderOptions) { o.Modes = nil }, "Active": func(o *ReaderOptions) { o.Active = nil },
		"Standing": func(o *ReaderOptions) { o.Standing = nil }, "Clock": func(o *ReaderOptions) { o.Clock = nil },
		"Logger": func(o *ReaderOptions) { o.Logger = nil }, "Registerer": func(o *ReaderOptions) { o.Registerer = nil },
	} {
		o := whole
		without(&o)
		if _, err := NewReader(o); err == nil || !strings.Contains(err.Error(), name+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, err := NewReader(whole); err != nil {
		t.Error(err)
	}
	if _, err := NewReader(whole); err == nil {
		t.Error("two readers fit into one registry")
	}
}
