package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errBroke = errors.New("broke")

// story notes what happened, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// stage is a part that takes a while to end.
func (s *story) stage(name string, ending time.Duration) Part {
	return Part{name, func(ctx context.Context) error {
		<-ctx.Done()
		<-time.After(ending) // the clock of the synctest bubble
		s.add(name)
		return nil
	}}
}

func TestServeEndsGroupByGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		err := Serve(ctx, slog.New(slog.DiscardHandler), StageTimeout,
			[]Part{s.stage("route", 2*time.Second)}, []Part{s.stage("detect", time.Second)},
			[]Part{s.stage("record", 500*time.Millisecond), s.stage("enforce", 0)})
		if want := []string{"route", "detect", "enforce", "record"}; err != nil || !slices.Equal(s.lines, want) {
			t.Errorf("ended %q with %v, want %q", s.lines, err, want)
		}
	})
}

func TestServeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begun := time.Now()
		err := Serve(ctx, slog.New(slog.DiscardHandler), StageTimeout,
			[]Part{s.stage("route", 0)}, []Part{s.stage("detect", time.Hour)}, []Part{s.stage("record", time.Second)})
		var stuck *StuckError
		if !errors.As(err, &stuck) || !slices.Contains(stuck.parts, "detect") || slices.Contains(stuck.parts, "route") || stuck.Unwrap() != nil {
			t.Errorf("got %v, want an error that names detect", err)
		}
		if took := time.Since(begun); took != StageTimeout {
			t.Errorf("took %s, want %s", took, StageTimeout)
		}
		time.Sleep(2 * time.Hour) // let detect end
	})
}

// Why all had to end is told also where some of them do not come to it.
func TestServeTellsTheCauseBesideWhatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		err := Serve(t.Context(), slog.New(slog.DiscardHandler), StageTimeout, []Part{s.stage("route", time.Hour)},
			[]Part{{"detect", func(context.Context) error { return errBroke }}})
		var stuck *StuckError
		if !errors.As(err, &stuck) || !errors.Is(stuck.Unwrap(), errBroke) || err.Error() != "detect: broke\nroute did not end within 7s; what was under way is done again at the next start" {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Hour) // let route end
	})
}

func TestServeEndsAllWhenOnePartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		err := Serve(t.Context(), slog.New(slog.DiscardHandler), StageTimeout, []Part{s.stage("route", 0)},
			[]Part{{"detect", func(context.Context) error { return errBroke }}}, []Part{s.stage("record", 0)})
		if !errors.Is(err, errBroke) || !strings.HasPrefix(err.Error(), "detect: ") || len(s.lines) != 2 {
			t.Errorf("got %v, and %q ended; want detect's error, and the others ended", err, s.lines)
		}
	})
}
