package archive

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// appended keeps what was appended; each call that fails keeps nothing.
type appended struct {
	calls  int
	values map[int][]string
	fail   error
	once   map[int]error // partitions that fail in the next call
}

var _ ingest.Appender = (*appended)(nil)

func (a *appended) Append(_ context.Context, batches []ingest.Batch) error {
	if a.fail != nil {
		return a.fail
	}
	a.calls++
	failed := a.once
	a.once = nil
	for _, b := range batches {
		if failed[b.Partition] != nil {
			continue
		}
		for _, v := range b.Values {
			a.values[b.Partition] = append(a.values[b.Partition], string(v))
		}
	}
	if len(failed) > 0 {
		return &ingest.AppendError{Topic: "t", Failed: failed}
	}
	return nil
}

type letters []traffic.DeadLetter

var _ ingest.DeadLetters = (*letters)(nil)

func (l *letters) Put(_ context.Context, more []traffic.DeadLetter) error {
	*l = append(*l, more...)
	return nil
}

func TestArchiveSenderKeepsAnAddressInOnePartition(t *testing.T) {
	log := appended{values: map[int][]string{}}
	s := NewSender(&log, &letters{}, 4, nil)
	const n = 3 * sendEvents
	for i := range n {
		ip := fmt.Sprintf("192.0.2.%d", i%50)
		if err := s.Send(t.Context(), Event{File: "a", Line: int64(i + 1), IP: ip, Value: fmt.Appendf(nil, "%s %06d", ip, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	home, last, total := map[string]int{}, map[string]string{}, 0
	for p, values := range log.values {
		for _, v := range values {
			ip, number := v[:len(v)-7], v[len(v)-6:]
			if at, seen := home[ip]; seen && at != p {
				t.Fatalf("%s is in partitions %d and %d", ip, at, p)
			}
			if number <= last[ip] {
				t.Fatalf("%s: %s came after %s", ip, number, last[ip])
			}
			home[ip], last[ip] = p, number
			total++
		}
	}
	if total != n || s.Acked() != n || s.AckedLine("a") != n {
		t.Errorf("%d values, %d acknowledged up to line %d; want %d", total, s.Acked(), s.AckedLine("a"), n)
	}
	if len(log.values) != 4 {
		t.Errorf("50 addresses use %d of 4 partitions", len(log.values))
	}
}

func TestArchiveSenderAppendsBySize(t *testing.T) {
	log := appended{values: map[int][]string{}}
	s := NewSender(&log, &letters{}, 1, nil)
	for i := range 10 {
		if err := s.Send(t.Context(), Event{File: "a", Line: int64(i + 1), Value: make([]byte, sendBytes/2)}); err != nil {
			t.Fatal(err)
		}
	}
	if log.calls != 5 || s.Acked() != 10 {
		t.Errorf("%d appends with %d events, want 5 with 10", log.calls, s.Acked())
	}
}

func TestArchiveSenderTellsHowFarItCame(t *testing.T) {
	log := appended{values: map[int][]string{}}
	s := NewSender(&log, &letters{}, 1, nil)
	send := func(line int64) {
		t.Helper()
		if err := s.Send(t.Context(), Event{File: "a", Line: line, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	send(1)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(2)
	log.fail = &ingest.AppendError{Topic: "t", Failed: map[int]error{0: errors.New("no answer")}}
	if err := s.Flush(t.Context()); !errors.Is(err, log.fail) {
		t.Errorf("got %v, want the appender's error", err)
	}
	if s.Acked() != 1 || s.AckedLine("a") != 1 {
		t.Errorf("acknowledged %d up to line %d, want 1", s.Acked(), s.AckedLine("a"))
	}
}

func TestArchiveSenderSendsWhatIsDueBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := appended{values: map[int][]string{}}
		s := NewSender(&log, &letters{}, 1, NewPace(1))
		begin := time.Now()
		for i, second := range []traffic.Time{0, 0, 10} {
			if err := s.Send(t.Context(), Event{File: "a", Line: int64(i + 1), Time: second * 1e6, HasTime: true, Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if s.Acked() != 2 || time.Since(begin) != 10*time.Second {
			t.Errorf("%d acknowledged after %s, want 2 while the third waited 10s", s.Acked(), time.Since(begin))
		}
	})
}

func TestArchiveSenderGivesAgainOnlyWhatWasNotWritten(t *testing.T) {
	for _, tc := range []struct {
		name    string
		trouble error
		again   bool
	}{
		{"a leader that has moved", &ingest.UnwrittenError{Err: errors.New("not the leader")}, true},
		{"an answer that does not come", errors.New("i/o timeout"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := appended{values: map[int][]string{}, once: map[int]error{1: tc.trouble}}
				s := NewSender(&log, &letters{}, 2, nil)
				for i := range 40 {
					if err := s.Send(t.Context(), Event{File: "a", Line: int64(i + 1), IP: fmt.Sprint(i), Value: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
				err := s.Flush(t.Context())
				if got := err == nil; got != tc.again {
					t.Fatalf("got %v", err)
				}
				if total := len(log.values[0]) + len(log.values[1]); tc.again && (total != 40 || s.Acked() != 40) {
					t.Errorf("%d events written, %d acknowledged; want 40: each once", total, s.Acked())
				}
				if !tc.again && (log.calls != 1 || s.Acked() != 0) {
					t.Errorf("%d appends, %d acknowledged; want one append and nothing acknowledged", log.calls, s.Acked())
				}
			})
		})
	}
}

func TestPaceFollowsEventTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(10)
		begin := time.Now()
		for _, tc := range []struct {
			second int64
			want   time.Duration
		}{{100, 0}, {110, time.Second}, {105, time.Second}, {130, 3 * time.Second}, {130, 3 * time.Second}} {
			if err := p.Wait(t.Context(), traffic.Time(tc.second)*1e6); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begin); got != tc.want {
				t.Errorf("event of second %d went out after %s, want %s", tc.second, got, tc.want)
			}
		}
	})
}

func TestPaceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := NewPace(1)
		if err := p.Wait(ctx, 0); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(ctx, 3600*1e6); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}
