package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
)

// TestEnforceStandsAsideOfAnotherOnesRedis: all its parts end when Redis has become somebody else's, the process does
// not, and they begin anew once it is this installation's, and not while it does not answer. Any other failure of a
// part is the end.
func TestEnforceStandsAsideOfAnotherOnesRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var whose atomic.Pointer[blocklist.ForeignError]
		var away atomic.Bool
		var begun, atWork atomic.Int64
		broken := errors.New("broken")
		fail := make(chan error, 1)
		a := &aside{
			every: time.Second, timeout: time.Minute, log: slog.New(slog.DiscardHandler),
			foreign: prometheus.NewGauge(prometheus.GaugeOpts{Name: "foreign"}),
			own: func(context.Context) error {
				if away.Load() {
					return errors.New("redis does not answer")
				}
				if err := whose.Load(); err != nil {
					return err
				}
				return nil
			},
		}
		a.parts = []Part{
			{"watches", func(ctx context.Context) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case err := <-fail:
						return err
					case <-time.After(time.Second):
						if err := whose.Load(); err != nil {
							return err
						}
					}
				}
			}},
			{"writes", func(ctx context.Context) error {
				begun.Add(1)
				atWork.Add(1)
				defer atWork.Add(-1)
				<-ctx.Done()
				return nil
			}},
		}
		ended := make(chan error, 1)
		go func() { ended <- a.run(t.Context()) }()
		expect := func(when string, runs, working, foreign int) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if begun.Load() != int64(runs) || atWork.Load() != int64(working) ||
				testutil.ToFloat64(a.foreign) != float64(foreign) {
				t.Errorf("%s: begun %d times, %d at work, foreign %v; want %d, %d, %d", when, begun.Load(),
					atWork.Load(),
					testutil.ToFloat64(a.foreign), runs, working, foreign)
			}
			if len(ended) > 0 {
				t.Fatalf("%s: ended with %v", when, <-ended)
			}
		}
		expect("at first", 1, 1, 0)
		whose.Store(&blocklist.ForeignError{Mine: "ours"})
		expect("of somebody else", 1, 0, 1)
		away.Store(true)
		whose.Store(nil)
		expect("without an answer", 1, 0, 1)
		away.Store(false)
		expect("ours again", 2, 1, 0)
		fail <- broken
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("ended with %v", err)
		}
	})
}

// A process that is told to stop while ENFORCE stands aside does.
func TestEnforceThatStandsAsideEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &blocklist.ForeignError{Mine: "ours"}
		a := &aside{
			every: time.Second, timeout: time.Minute, log: slog.New(slog.DiscardHandler),
			foreign: prometheus.NewGauge(prometheus.GaugeOpts{Name: "foreign"}),
			own:     func(context.Context) error { return foreign },
			parts:   []Part{{"publishes", func(context.Context) error { return foreign }}},
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		if err := a.run(ctx); err != nil {
			t.Error(err)
		}
	})
}
