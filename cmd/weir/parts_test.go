package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
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
func (s *story) stage(name string, ending time.Duration) part {
	return part{name, func(ctx context.Context) error {
		<-ctx.Done()
		<-time.After(ending) // the clock of the synctest bubble
		s.add(name)
		return nil
	}}
}

func TestServeEndsWaveByWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		err := serve(ctx, slog.New(slog.DiscardHandler), stageBudget,
			[]part{s.stage("route", 2*time.Second)}, []part{s.stage("detect", time.Second)},
			[]part{s.stage("record", 500*time.Millisecond), s.stage("enforce", 0)})
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
		err := serve(ctx, slog.New(slog.DiscardHandler), stageBudget,
			[]part{s.stage("route", 0)}, []part{s.stage("detect", time.Hour)}, []part{s.stage("record", time.Second)})
		var stuck *stuckError
		if !errors.As(err, &stuck) || !slices.Contains(stuck.parts, "detect") || slices.Contains(stuck.parts, "route") {
			t.Errorf("got %v, want an error that names detect", err)
		}
		if took := time.Since(begun); took != stageBudget {
			t.Errorf("took %s, want %s", took, stageBudget)
		}
		time.Sleep(2 * time.Hour) // let detect end
	})
}

func TestServeEndsAllWhenOnePartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		err := serve(t.Context(), slog.New(slog.DiscardHandler), stageBudget, []part{s.stage("route", 0)},
			[]part{{"detect", func(context.Context) error { return errBroke }}}, []part{s.stage("record", 0)})
		if !errors.Is(err, errBroke) || !strings.HasPrefix(err.Error(), "detect: ") || len(s.lines) != 2 {
			t.Errorf("got %v, and %q ended; want detect's error, and the others ended", err, s.lines)
		}
	})
}

func TestPatientReader(t *testing.T) {
	t.Run("gives everything, and tells of silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			from, to := io.Pipe()
			silences := 0
			r := newPatientReader(t.Context(), from, func() error { silences++; return nil })
			go func() {
				_, _ = io.WriteString(to, "one\n")
				time.Sleep(10 * idleAfter)
				_, _ = io.WriteString(to, "two\n")
				_ = to.Close()
			}()
			got, err := io.ReadAll(r)
			if err != nil || string(got) != "one\ntwo\n" {
				t.Errorf("read %q, %v", got, err)
			}
			if silences == 0 {
				t.Error("nobody was told of the silence between")
			}
			_ = r.Close()
		})
	})
	t.Run("ends with its context while nothing comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			from, to := io.Pipe()
			r := newPatientReader(ctx, from, func() error { return nil })
			if _, err := r.Read(make([]byte, 10)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the context's error", err)
			}
			_ = r.Close()
			_ = to.Close()
		})
	})
}

func TestProgressLine(t *testing.T) {
	p := &progress{total: 4_000_000}
	p.read.Store(1_000_000)
	p.events.Store(12_000)
	if got, want := p.line(10*time.Second), "12000 events, 1.0MB of 4.0MB (25 %), 1.2k events/s, about 30s left"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	p.total = 0
	if got, want := p.line(10*time.Second), "12000 events, 1.0MB, 1.2k events/s"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTableCellsAreSafeForTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", "plain": "plain", "a\x1b[2Jb\nc\x00": "a·[2Jb·c·", "\xff\xfe": "··", "\u202eevil": "·evil",
		strings.Repeat("x", maxCell+1): strings.Repeat("x", maxCell) + "…",
	} {
		if got := cell(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestEmptyListIsAnEmptyArray(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, output: "json"}
	if err := list(a, []string(nil), nil, func(string) []string { return nil }); err != nil || out.String() != "[]\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestParseSince(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]traffic.Time{
		"": 0, "24h": traffic.At(at.Add(-24 * time.Hour)), "7d": traffic.At(at.Add(-7 * day)), "2026-01-01T00:00:00Z": traffic.At(at.Add(-30*day - 12*time.Hour)),
	} {
		if got, err := parseSince(text, at); err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := parseSince("2026-01-31T12:00:01Z", at); err == nil || !strings.Contains(err.Error(), "lies ahead of now, 2026-01-31T12:00:00Z") {
		t.Errorf("of the future: %v", err)
	}
}

func TestShorterThanRouted(t *testing.T) {
	routed := func(offsets ...int64) map[int]*ingest.Announcement {
		out := map[int]*ingest.Announcement{}
		for p, o := range offsets {
			out[p] = &ingest.Announcement{Offset: o}
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		log     map[int]ingest.Bounds
		commits map[int]*ingest.Announcement
		want    bool
	}{
		{"as it was", map[int]ingest.Bounds{0: {End: 10}, 1: {End: 20}}, routed(10, 15), false},
		{"made anew and empty", map[int]ingest.Bounds{0: {}, 1: {}}, routed(10, 15), true},
		{"made anew, one partition never used", map[int]ingest.Bounds{0: {End: 3}, 1: {}}, routed(10, 0), true},
		{"one partition lost its end", map[int]ingest.Bounds{0: {End: 5}, 1: {End: 20}}, routed(10, 15), false},
		{"shorter but not from its beginning", map[int]ingest.Bounds{0: {Start: 2, End: 5}, 1: {}}, routed(10, 15), false},
		{"nothing was routed", map[int]ingest.Bounds{0: {}, 1: {}}, routed(0, 0), false},
		{"no commits", map[int]ingest.Bounds{0: {}, 1: {}}, nil, false},
	} {
		if got := shorterThanRouted(tc.log, tc.commits); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
