package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

func TestTruthMakesTheSameEventsAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSettings(rt)
		sink := &memorySink{}
		text, out, err := written(t, s, Header{}, sink)
		if err != nil || !out.Complete || int(out.Events) != len(sink.values) {
			rt.Fatalf("%+v, %v, %d taken", out, err, len(sink.values))
		}
		truth := parsed(t, text)
		st, n := NewStream(s), 0
		err = truth.Each(func(e *Event, f Fate) {
			if got := st.Append(nil, e, truth.Header.Started); !bytes.Equal(got, sink.values[n]) {
				rt.Fatalf("event %d is %s, sent was %s", n, got, sink.values[n])
			}
			if !f.Certain {
				rt.Fatalf("event %d is not certain", n)
			}
			n++
		})
		if err != nil || n != len(sink.values) || truth.End == nil || truth.End.Events != int64(n) || !truth.End.Complete {
			rt.Fatalf("%d of %d events, %v, end %+v", n, len(sink.values), err, truth.End)
		}
	})
}

// A load that is killed at any byte of its truth leaves a truth of what was announced until then.
func TestTruthOfAKilledLoad(t *testing.T) {
	s := settings(5)
	s.Rate, s.Duration = 200, 60*time.Second // three chunks
	text, _, err := written(t, s, Header{Namespace: "weir", Partitions: 3, Rules: []RuleUsed{{"a", 1, 1}}}, &memorySink{})
	if err != nil {
		t.Fatal(err)
	}
	whole := parsed(t, text)
	if len(whole.Chunks) < 3 {
		t.Fatalf("%d chunks", len(whole.Chunks))
	}
	first := strings.IndexByte(text, '\n') + 1
	if _, err := ReadTruth("truth", strings.NewReader(text[:first-1])); err == nil {
		t.Error("half a header is read")
	}
	// What a truth foretells depends on what was read of it alone, so that it is made once for all cuts that read the same.
	var read *Truth
	var certain, all int
	for cut := first; cut < len(text); cut++ {
		truth := parsed(t, text[:cut])
		if !reflect.DeepEqual(truth.Header, whole.Header) || truth.End != nil {
			t.Fatalf("cut at %d: %+v", cut, truth)
		}
		if !reflect.DeepEqual(truth, read) {
			read, certain, all = truth, 0, 0
			if err := truth.Each(func(_ *Event, f Fate) {
				all++
				if f.Certain {
					certain++
				}
			}); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		lines := strings.Count(text[first:cut], "\n")
		if want := lines / 2; certain/maxChunk != want && certain != int(whole.End.Events) || all < certain {
			t.Fatalf("cut at %d, after %d lines: %d of %d events certain", cut, lines, certain, all)
		}
	}
}

func TestTruthRefuses(t *testing.T) {
	s := settings(5)
	s.Duration = 2 * time.Second
	text, _, err := written(t, s, Header{}, &memorySink{})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(text, "\n")
	header, sending, acked, end := lines[0], lines[1], lines[2], lines[3]
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "truth: no truth in it"},
		{"something else", "hello\n", "truth:1: not the header"},
		{"a later format", strings.Replace(text, `"truth":1`, `"truth":2`, 1), "truth:1: got truth 2 of generator 1"},
		{"another generator", strings.Replace(text, `"generator":1`, `"generator":9`, 1), "use the weir that wrote it"},
		{"bad parameters", strings.Replace(text, `"viewers":50`, `"viewers":0`, 1), "truth:1: parameters: --viewers: got 0"},
		{"an unknown line", header + `{"sent":1}` + "\n", "truth:2: json: unknown field"},
		{"two in one", header + `{"sending":{"events":1,"sum":""},"end":{"at":"2026-01-01T00:00:00Z","events":1,"complete":true}}` + "\n", "truth:2: allowed: one of"},
		{"an answer to nothing", header + acked, "truth:2: acked: nothing was announced"},
		{"two answers", header + sending + acked + acked, "truth:4: acked: nothing was announced"},
		{"more than announced", header + sending + `{"acked":{"events":9999,"at":"2026-01-01T00:00:00Z"}}` + "\n", "truth:3: acked: got 9999 events"},
		{"after the end", text + end, "truth:5: got a line after the end"},
	} {
		if _, err := ReadTruth("truth", strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", tc.name, err, tc.want)
		}
	}
	changed := parsed(t, strings.Replace(text, `"seed":5`, `"seed":6`, 1))
	if err := changed.Each(func(*Event, Fate) {}); err == nil || !strings.Contains(err.Error(), "the truth was changed") {
		t.Errorf("another seed: got %v", err)
	}
	tooLong := parsed(t, header+strings.Replace(sending, `"events":`, `"events":4`, 1))
	if err := tooLong.Each(func(*Event, Fate) {}); err == nil || !strings.Contains(err.Error(), "is over before it") {
		t.Errorf("more events than the load has: got %v", err)
	}
}

func TestPacedLoadIsSentWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := settings(5)
		clock := func() traffic.Time { return traffic.At(time.Now()) }
		start := clock()
		w, err := NewTruthWriter(&bytes.Buffer{}, Header{Started: start, Parameters: s})
		if err != nil {
			t.Fatal(err)
		}
		sink, seen, all := &memorySink{}, 0, allEvents(s)
		o := RunOptions{Settings: s, Start: start, Paced: true, Sink: sink, Truth: w, Clock: clock}
		o.Sent = func(n, _ int) {
			for _, e := range all[seen : seen+n] {
				if late := clock().Sub(start) - e.Sent; late < 0 || late > 2*chunkEvery {
					t.Fatalf("event %d is sent %s after it was due", e.Number, late)
				}
			}
			seen += n
		}
		out, err := Run(t.Context(), o)
		if err != nil || !out.Complete || seen != len(all) || out.Behind > 2*chunkEvery {
			t.Errorf("%+v, %v, %d of %d sent", out, err, seen, len(all))
		}
	})
}

func TestStoppedLoadLetsItsChunkEnd(t *testing.T) {
	for _, tc := range []struct {
		takes time.Duration
		cut   bool
	}{{lastChunk - time.Second, false}, {lastChunk + time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := settings(5)
			clock := func() traffic.Time { return traffic.At(time.Now()) }
			var text bytes.Buffer
			w, err := NewTruthWriter(&text, Header{Started: clock(), Parameters: s})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			sink := &memorySink{}
			sink.onChunk = func(sending context.Context) {
				if sink.chunks == 10 {
					stop()
					<-time.After(tc.takes) // the clock of the synctest bubble
					if got := sending.Err() != nil; got != tc.cut {
						t.Errorf("after %s: the chunk's context ended: %v", tc.takes, got)
					}
				}
			}
			out, err := Run(ctx, RunOptions{
				Settings: s, Start: clock(), Paced: true, Sink: sink, Truth: w, Clock: clock, Sent: func(int, int) {},
			})
			if err != nil || out.Complete || sink.chunks != 10 || int(out.Events) != len(sink.values) {
				t.Errorf("%+v, %v after %d chunks", out, err, sink.chunks)
			}
			if truth := parsed(t, text.String()); len(truth.Chunks) != 10 || truth.Chunks[9].Acked.Events != truth.Chunks[9].Events {
				t.Errorf("%d chunks in the truth", len(truth.Chunks))
			}
		})
	}
}

// Events without an answer do not end a load, and the truth knows which those are; a load that nobody answers any more
// ends.
func TestLoadGoesOnBehindWhatHasNoAnswer(t *testing.T) {
	unanswered := fmt.Errorf("%w: the broker restarts", ErrUnanswered)
	for _, tc := range []struct {
		name      string
		from, to  int // chunks that get no answer but for their first events
		ackOf     int
		ends      bool
		stopsWith error
	}{
		{"two chunks", 3, 4, 0, false, unanswered},
		{"all from then on", 3, 1 << 30, 0, true, unanswered},
		{"another error", 3, 4, 2, true, errRefused},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := settings(5)
			s.Duration = 20 * time.Minute
			clock := func() traffic.Time { return traffic.At(time.Now()) }
			start := clock()
			var text bytes.Buffer
			w, err := NewTruthWriter(&text, Header{Started: start, Parameters: s})
			if err != nil {
				t.Fatal(err)
			}
			sink, told := &memorySink{ackOf: tc.ackOf}, 0
			sink.onChunk = func(context.Context) {
				if sink.fails = nil; sink.chunks >= tc.from && sink.chunks <= tc.to {
					sink.fails = tc.stopsWith
				}
			}
			out, err := Run(t.Context(), RunOptions{Settings: s, Start: start, Paced: true, Sink: sink, Truth: w,
				Clock: clock, Sent: func(int, int) {}, Failed: func(error) { told++ }})
			if (err != nil) != tc.ends || tc.ends && !errors.Is(err, tc.stopsWith) || out.Complete == tc.ends {
				t.Fatalf("%s: %+v, %v", tc.name, out, err)
			}
			if lasted := clock().Sub(start); tc.ends && errors.Is(err, ErrUnanswered) &&
				(lasted < unansweredFor || lasted > unansweredFor+time.Minute) {
				t.Errorf("%s: ended after %s", tc.name, lasted)
			}
			certain, unsure := int64(0), int64(0)
			if err := parsed(t, text.String()).Each(func(_ *Event, f Fate) {
				if f.Certain {
					certain++
				} else {
					unsure++
				}
			}); err != nil || certain != out.Events || !tc.ends && (unsure != out.Unsure || told != 2 || unsure == 0) {
				t.Errorf("%s: the truth has %d certain and %d unsure, told of %d chunks, %v; outcome %+v", tc.name,
					certain, unsure,
					told, err, out)
			}
		})
	}
}

func TestFailedLoadKeepsWhatIsCertain(t *testing.T) {
	s := settings(5)
	s.Rate, s.Duration = 400, time.Minute
	text, out, err := written(t, s, Header{}, &memorySink{failAt: 3, ackOf: 17})
	if !errors.Is(err, errRefused) || out.Complete || out.Events != 2*maxChunk+17 {
		t.Fatalf("%+v, %v", out, err)
	}
	truth, certain, all := parsed(t, text), 0, 0
	if err := truth.Each(func(_ *Event, f Fate) {
		if f.Certain != (all < 2*maxChunk+17) {
			t.Fatalf("event %d: certain %v", all, f.Certain)
		}
		if all++; f.Certain {
			certain++
		}
	}); err != nil || certain != 2*maxChunk+17 || all != 3*maxChunk {
		t.Errorf("%d of %d certain, %v", certain, all, err)
	}
}

func FuzzReadTruth(f *testing.F) {
	s := settings(5)
	s.Duration = 2 * time.Second
	text, _, err := written(f, s, Header{Namespace: "weir", Partitions: 2}, &memorySink{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(text))
	f.Add([]byte(text[:len(text)/2]))
	f.Add([]byte(strings.Replace(text, "acked", "end", 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		truth, err := ReadTruth("truth", bytes.NewReader(b))
		if err != nil {
			return
		}
		if err := truth.Header.Parameters.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, c := range truth.Chunks {
			if c.Events < 1 || c.Events > maxChunk || c.Acked.Events < 0 || c.Acked.Events > c.Events {
				t.Fatalf("chunk %+v", c)
			}
		}
		truth.LastAck()
		truth.Earliest()
	})
}
