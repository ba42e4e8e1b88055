package stream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/traffic"
)

// sent keeps what a sender appended.
type sent struct {
	mu      sync.Mutex
	values  []string
	letters []traffic.DeadLetter
	fail    error
}

var (
	_ ingest.Appender    = (*sent)(nil)
	_ ingest.DeadLetters = (*sent)(nil)
)

func (s *sent) Append(_ context.Context, batches []ingest.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return &ingest.AppendError{Topic: "t", Failed: map[int]error{0: s.fail}}
	}
	for _, b := range batches {
		for _, v := range b.Values {
			s.values = append(s.values, string(v))
		}
	}
	return nil
}

func (s *sent) Put(_ context.Context, letters []traffic.DeadLetter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters = append(s.letters, letters...)
	return nil
}

func (s *sent) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.values, " ")
}

// readingOf reads inputs whose lines are all events, into to.
func readingOf(to *sent, inputs ...Input) *Reading {
	r := &Reading{files: Files{Progress: io.Discard, MaxBytes: 64}, inputs: inputs, allow: &Lateness{}}
	r.into(to, to, 1, func(line []byte, _ *traffic.Request) ([]byte, error) { return bytes.Clone(line), nil }, false)
	return r
}

func pipeInput() (Input, *io.PipeWriter) {
	from, to := io.Pipe()
	return Input{Name: "pipe", Size: -1, Open: func() (io.ReadCloser, error) { return from, nil }}, to
}

// Whoever writes into a pipe may pause for hours: what it has shown is sent meanwhile.
func TestWhatAPipeHasShownIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, pipe := pipeInput()
		var to sent
		r := readingOf(&to, in)
		done := make(chan error)
		go func() { done <- r.All(t.Context()) }()
		_, _ = io.WriteString(pipe, "event-1\nevent-2\nhal")
		time.Sleep(10 * sendAfter)
		if got := to.all(); got != "event-1 event-2" {
			t.Errorf("sent while the pipe is silent: %q", got)
		}
		_, _ = io.WriteString(pipe, "f\n")
		_ = pipe.Close()
		if err := <-done; err != nil || to.all() != "event-1 event-2 half" || len(to.letters) > 0 {
			t.Errorf("sent %q, letters %+v, %v", to.all(), to.letters, err)
		}
	})
}

// Nor has a pipe to fall silent: what a gateway writes ten times a second is sent as soon.
func TestWhatAPipeGoesOnShowingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, pipe := pipeInput()
		var to sent
		r := readingOf(&to, in)
		done := make(chan error)
		go func() { done <- r.All(t.Context()) }()
		for n := range 100 {
			shown := len(strings.Fields(to.all()))
			if behind := n - shown; time.Duration(behind)*sendAfter/2 > 2*sendAfter {
				t.Fatalf("after %d events %d are sent", n, shown)
			}
			_, _ = io.WriteString(pipe, "event\n")
			time.Sleep(sendAfter / 2)
		}
		_ = pipe.Close()
		if err := <-done; err != nil || len(strings.Fields(to.all())) != 100 {
			t.Errorf("sent %q, %v", to.all(), err)
		}
	})
}

// A sender that fails while a pipe is silent is no fault of what is read: it is the error, and no dead letter says otherwise.
func TestSenderThatFailsWhileAPipeIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, pipe := pipeInput()
		to := sent{fail: errors.New("no answer")}
		r := readingOf(&to, in)
		done := make(chan error)
		go func() { done <- r.All(t.Context()) }()
		_, _ = io.WriteString(pipe, "event-1\nhal")
		if err := <-done; !errors.Is(err, to.fail) || !strings.Contains(err.Error(), "1 events were given to Kafka without an answer") {
			t.Errorf("got %v", err)
		}
		if got := r.LiveSummary(); len(to.letters) > 0 || len(got.Broken) > 0 || got.Events != 0 {
			t.Errorf("letters %+v, summary %+v", to.letters, got)
		}
		_ = pipe.Close()
	})
}

// A pipe that shows nothing does not keep a reading from ending.
func TestReadingOfASilentPipeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, pipe := pipeInput()
		var to sent
		err := readingOf(&to, in).All(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("got %v", err)
		}
		_ = pipe.Close()
	})
}

// A file that was cut off does not keep the ones behind it from being sent, nor itself; the summary names it.
func TestReadingGoesOnBehindABrokenFile(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "%d-%x\n", i, uint64(i)*0x9e3779b97f4a7c1)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, text.String()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	cut, good := filepath.Join(dir, "cut.gz"), filepath.Join(dir, "good.log")
	if err := errors.Join(os.WriteFile(cut, packed.Bytes()[:packed.Len()/2], 0o600), os.WriteFile(good, []byte("last\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	inputs, err := Inputs([]string{cut, good}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	var to sent
	r := readingOf(&to, inputs...)
	if err := r.All(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := r.LiveSummary()
	if got.Events < 5000 || got.Events >= 20_000 || got.Events != int64(len(to.values)) || got.Lines != got.Events || to.values[got.Events-1] != "last" {
		t.Fatalf("%d values, summary %+v", len(to.values), got)
	}
	want := archive.Break{File: cut, Line: got.Lines, Reason: archive.ReasonTruncated, Detail: "unexpected EOF"}
	if len(got.Broken) != 1 || got.Broken[0] != want || got.Dead[archive.ReasonTruncated] != 1 || len(to.letters) != 1 {
		t.Errorf("broken %+v, want %+v; dead %v", got.Broken, want, got.Dead)
	}
}
