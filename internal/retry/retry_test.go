package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitsDoubleUpToTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBackoff(100*time.Millisecond, 500*time.Millisecond)
		for i, want := range []time.Duration{100, 200, 400, 500, 500} {
			want *= time.Millisecond
			start := time.Now()
			if next := b.Next(); next != want {
				t.Errorf("wait %d: Next %v, want %v", i, next, want)
			}
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("wait %d took %v, want %v", i, took, want)
			}
		}
		b.Reset()
		if b.Next() != 100*time.Millisecond {
			t.Errorf("after a reset %v", b.Next())
		}
		if next := NewBackoff(time.Second, time.Millisecond).Next(); next != time.Second {
			t.Errorf("a most below the least: %v", next)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestDoTriesUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tries := 0
		err := Do(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), "waiting for it", func(context.Context) error {
			if tries++; tries < 4 {
				return errors.New("refused")
			}
			return nil
		})
		if err != nil || tries != 4 || strings.Count(out.String(), "waiting for it") != 1 {
			t.Errorf("%v after %d tries; logged\n%s", err, tries, out.String())
		}
	})
}

// The reason is what was wrong while there was time, not that the last try was cut short.
func TestDoSaysWhatIsWrongWhenTimeRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		tries := 0
		err := Do(ctx, slog.New(slog.NewTextHandler(&out, nil)), "waiting for it", func(ctx context.Context) error {
			if tries++; tries < 4 {
				return errors.New("refused")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || err.Error() != "refused" || strings.Contains(out.String(), "deadline") {
			t.Errorf("got %v, want what was refused; logged\n%s", err, out.String())
		}
	})
}

func TestTroubleIsToldOfAtOnceThenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var trouble Trouble
		lines := func() int { defer out.Reset(); return strings.Count(out.String(), "\n") }

		trouble.Over(log, "works") // it never failed: nothing to say
		if n := lines(); n != 0 {
			t.Errorf("%d lines before any failure", n)
		}
		for range 300 { // half a minute of tries, ten a second
			trouble.Failed(log, "cannot", errors.New("refused"), "server", "a")
			time.Sleep(100 * time.Millisecond)
		}
		if n := lines(); n != 5 { // at 0, 1, 3, 7 and 15 s
			t.Errorf("%d lines in 30 s of one failure, want 5", n)
		}
		for i := range 100 { // another text each time
			trouble.Failed(log, "cannot", errors.New(strings.Repeat("x", i+1)))
			time.Sleep(100 * time.Millisecond)
		}
		if n := lines(); n < 9 || n > 11 {
			t.Errorf("%d lines in 10 s of failures that differ, want one a second", n)
		}
		trouble.Over(log, "works again")
		trouble.Over(log, "works again")
		if text := out.String(); strings.Count(text, "works again") != 1 {
			t.Errorf("told of the end:\n%s", text)
		}
		out.Reset()
		trouble.Failed(log, "cannot", errors.New("refused"))
		if n := lines(); n != 1 {
			t.Errorf("%d lines of the next failure, want one at once", n)
		}
		time.Sleep(time.Hour)
		for range 7200 {
			trouble.Failed(log, "cannot", errors.New("refused"))
			time.Sleep(time.Second)
		}
		if n := lines(); n < 24 || n > 34 {
			t.Errorf("%d lines in two hours, want one in five minutes", n)
		}
	})
}

// A server that takes connections and never answers gives each try an error of its own port.
func TestThePortOfEachTryIsNoOtherTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var trouble Trouble
		for i := range 15 { // half a minute
			trouble.Failed(log, "cannot", fmt.Errorf("redis: read tcp 127.0.0.1:%d->127.0.0.1:6379: i/o timeout", 40_000+i))
			time.Sleep(2 * time.Second)
		}
		if n := strings.Count(out.String(), "\n"); n != 5 { // at 0, 2, 4, 8 and 16 s
			t.Errorf("%d lines of one failure:\n%s", n, out.String())
		}
		if !strings.Contains(out.String(), "127.0.0.1:40000->127.0.0.1:6379") {
			t.Errorf("the error is not told as it is:\n%s", out.String())
		}
		out.Reset()
		trouble.Failed(log, "cannot", errors.New("redis: read tcp 127.0.0.1:40000->127.0.0.2:6379: i/o timeout"))
		if out.Len() == 0 {
			t.Error("another server is no other trouble")
		}
	})
}
