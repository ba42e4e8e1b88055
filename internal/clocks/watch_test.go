package clocks_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/traffic"
)

func now() traffic.Time { return traffic.At(time.Now()) }

func TestApartIsWhatTheWayOfTheAnswerCannotExplain(t *testing.T) {
	const second = time.Second
	at := traffic.At(time.Unix(1_800_000_000, 0))
	for name, c := range map[string]struct {
		theirs, took, want time.Duration
	}{
		"between both":             {2 * second, 3 * second, 0},
		"at the question":          {0, 3 * second, 0},
		"at the answer":            {3 * second, 3 * second, 0},
		"before the question":      {-7 * second, 3 * second, -7 * second},
		"after the answer":         {70 * second, 3 * second, 67 * second},
		"after an answer at once":  {70 * second, 0, 70 * second},
		"before, a slow answer":    {-second, 60 * second, -second},
		"as late as a slow answer": {59 * second, 60 * second, 0},
	} {
		r := clocks.Reading{Theirs: at.Add(c.theirs), Asked: at, Answered: at.Add(c.took)}
		if got := r.Apart(); got != c.want {
			t.Errorf("%s: %s apart, want %s", name, got, c.want)
		}
	}
}

func TestHeardKeepsWhatDiffersMostUntilItIsTaken(t *testing.T) {
	var h clocks.Heard
	if _, any := h.Take(); any {
		t.Error("something was heard of nobody")
	}
	at := now()
	for _, apart := range []time.Duration{time.Second, -9 * time.Second, 4 * time.Second} {
		h.Add(clocks.Reading{Theirs: at.Add(apart), Asked: at, Answered: at})
	}
	if r, any := h.Take(); !any || r.Apart() != -9*time.Second {
		t.Errorf("heard %v, %v; want 9s behind", r.Apart(), any)
	}
	if _, any := h.Take(); any {
		t.Error("what was taken was heard again")
	}
}

// skewed is a store whose clock differs, or that is away.
type skewed struct{ is atomic.Pointer[skew] }

type skew struct {
	apart time.Duration
	err   error
	mute  bool
}

func newSkewed() *skewed {
	s := &skewed{}
	s.set(skew{})
	return s
}

func (s *skewed) set(is skew) { s.is.Store(&is) }

func (s *skewed) read(_ context.Context, clock func() traffic.Time) (clocks.Reading, bool, error) {
	asked, is := clock(), s.is.Load()
	return clocks.Reading{Theirs: asked.Add(is.apart), Asked: asked, Answered: asked}, !is.mute, is.err
}

func TestAWatchSaysOnceWhereClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis, postgres := newSkewed(), newSkewed()
		var log bytes.Buffer
		var told [][]clocks.Offset
		left := 0
		registry := prometheus.NewRegistry()
		w, err := clocks.NewWatch(clocks.Options{
			Sources: []clocks.Source{{Store: "redis", Read: redis.read}, {Store: "postgres", Read: postgres.read}},
			Clock:   now, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: registry,
			Announce: func(_ context.Context, offsets []clocks.Offset) error {
				told = append(told, offsets)
				return nil
			},
			Leave: func(ctx context.Context) error { left++; return ctx.Err() },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		step := func(name string, wantLines ...string) {
			t.Helper()
			time.Sleep(clocks.Every)
			synctest.Wait()
			lines := strings.FieldsFunc(log.String(), func(c rune) bool { return c == '\n' })
			log.Reset()
			if len(lines) != len(wantLines) {
				t.Fatalf("%s: logged %q, want %q", name, lines, wantLines)
			}
			for i, want := range wantLines {
				for part := range strings.SplitSeq(want, " … ") {
					if !strings.Contains(lines[i], part) {
						t.Errorf("%s: logged %q, want %q", name, lines[i], want)
					}
				}
			}
		}
		time.Sleep(time.Second) // between two comparisons
		step("clocks agree")
		redis.set(skew{apart: 1500 * time.Millisecond})
		step("a little", `level=WARN … store=redis … "1.5s behind redis"`)
		step("still a little")
		redis.set(skew{apart: -70 * time.Second})
		step("wrong", `level=ERROR … store=redis … "1m10s ahead of redis"`)
		redis.set(skew{apart: -4 * time.Second})
		step("better, and not good")
		redis.set(skew{err: errors.New("away")})
		step("away")
		if n, err := testutil.GatherAndCount(registry, "weir_clock_offset_seconds"); n != 1 || err != nil {
			t.Errorf("%d offsets are shown while one of two stores is away, %v", n, err)
		}
		redis.set(skew{})
		step("agree again", "level=INFO … store=redis")
		postgres.set(skew{apart: 6 * time.Second})
		step("the other", "level=ERROR … store=postgres")
		if got, want := w.Worst(), 6*time.Second; got != want {
			t.Errorf("worst is %s, want %s", got, want)
		}
		const help = "By how much the clock of a store is ahead of this process's, at the least; negative: behind. " +
			"Compared every 15 s; absent where the store was not heard."
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
			# HELP weir_clock_offset_seconds `+help+`
			# TYPE weir_clock_offset_seconds gauge
			weir_clock_offset_seconds{store="postgres"} 6
			weir_clock_offset_seconds{store="redis"} 0
		`)); err != nil {
			t.Error(err)
		}
		postgres.set(skew{apart: 6 * time.Second, mute: true})
		step("not heard")
		cancel()
		if err := <-done; err != nil || left != 1 {
			t.Errorf("it ended with %v, and took leave %d times", err, left)
		}
		if last := told[8]; !slices.Equal(last, []clocks.Offset{{"postgres", 6 * time.Second}, {"redis", 0}}) {
			t.Errorf("told %v", last)
		}
		if last := told[9]; !slices.Equal(last, []clocks.Offset{{"redis", 0}}) {
			t.Errorf("told %v of a store that was not heard", last)
		}
	})
}

func TestAWatchGoesOnWhereItCannotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tries := 0
		redis := newSkewed()
		redis.set(skew{apart: time.Minute})
		w, err := clocks.NewWatch(clocks.Options{
			Sources: []clocks.Source{{Store: "redis", Read: redis.read}},
			Clock:   now, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
			Announce: func(context.Context, []clocks.Offset) error { tries++; return errors.New("permission denied") },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*clocks.Every+time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "permission denied"); tries != 11 || n != 1 {
			t.Errorf("%d tries were told of %d times:\n%s", tries, n, log.String())
		}
	})
}

func TestAWatchAsksForWhatItNeeds(t *testing.T) {
	if _, err := clocks.NewWatch(clocks.Options{}); err == nil {
		t.Error("a watch of nothing was made")
	}
}
