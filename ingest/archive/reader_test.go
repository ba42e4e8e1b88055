package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// archiveLog keeps what an Archive gave.
type archiveLog struct {
	events  []Event
	letters []traffic.DeadLetter
	fail    error
}

var _ Sink = (*archiveLog)(nil)

func (l *archiveLog) Send(_ context.Context, e Event) error {
	l.events = append(l.events, e)
	return l.fail
}

func (l *archiveLog) Refuse(_ context.Context, d traffic.DeadLetter) error {
	l.letters = append(l.letters, d)
	return nil
}

func (l *archiveLog) values() []string {
	out := make([]string, len(l.events))
	for i, e := range l.events {
		out[i] = string(e.Value)
	}
	return out
}

func (l *archiveLog) reasons() []string {
	out := make([]string, len(l.letters))
	for i, d := range l.letters {
		out[i] = d.Reason + " " + strconv.FormatInt(d.Offset, 10)
	}
	return out
}

// secondsLine decodes "12 name": an event at second 12. "- name" has no time.
func secondsLine(line []byte, r *traffic.Request) ([]byte, error) {
	at, name, ok := strings.Cut(string(line), " ")
	if !ok {
		return nil, errors.New("no space")
	}
	r.IP = name
	if at == "-" {
		return bytes.Clone(line), nil
	}
	n, err := strconv.Atoi(at)
	if err != nil {
		return nil, fmt.Errorf("time %q is no number", at)
	}
	r.Time, r.HasTime = traffic.Time(n)*1e6, true
	return bytes.Clone(line), nil
}

func archiveOver(sink Sink, change func(*Options)) *Reader {
	o := Options{
		Format: "seconds", Formats: "seconds", Decode: secondsLine, MaxBytes: 64, Replay: true,
		Now: func() traffic.Time { return 1e6 * 1e6 },
	}
	if change != nil {
		change(&o)
	}
	return NewReader(o, sink)
}

func readArchive(t *testing.T, a *Reader, input string) error {
	t.Helper()
	if err := a.Read(t.Context(), "a.log", io.NopCloser(strings.NewReader(input))); err != nil {
		return err
	}
	return a.Flush(t.Context())
}

func gzipped(t testing.TB, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestArchiveLines(t *testing.T) {
	huge := strings.Repeat("x", 3*stretchBytes)
	for _, tc := range []struct {
		name, input string
		want        []string
		reasons     []string
	}{
		{"plain", "1 a\n2 b\n", []string{"1 a", "2 b"}, nil},
		{"no last line ending", "1 a\n2 b", []string{"1 a", "2 b"}, nil},
		{"CR LF", "1 a\r\n2 b\r\n", []string{"1 a", "2 b"}, nil},
		{"byte order mark", "\xef\xbb\xbf1 a\n", []string{"1 a"}, nil},
		{"nothing", "", []string{}, nil},
		{"empty line", "1 a\n\n2 b\n", []string{"1 a", "2 b"}, []string{"empty 2"}},
		{"malformed", "1 a\nnope\n2 b\n", []string{"1 a", "2 b"}, []string{"malformed 2"}},
		{"malformed first", "nope\n1 a\n", []string{"1 a"}, []string{"malformed 1"}},
		{"NUL and invalid UTF-8", "1 a\x00b\n2 \xff\xfe\n", []string{"1 a\x00b", "2 \xff\xfe"}, nil},
		{"exactly the bound", "1 " + strings.Repeat("x", 62) + "\n2 b\n", []string{"1 " + strings.Repeat("x", 62), "2 b"}, nil},
		{"one over the bound", "1 " + strings.Repeat("x", 63) + "\n2 b\n", []string{"2 b"}, []string{"oversized 1"}},
		{"one over the bound, CR LF", "1 " + strings.Repeat("x", 63) + "\r\n2 b\n", []string{"2 b"}, []string{"oversized 1"}},
		{"huge", "1 a\n2 " + huge + "\n3 c\n", []string{"1 a", "3 c"}, []string{"oversized 2"}},
		{"huge at the end", "1 a\n2 " + huge, []string{"1 a"}, []string{"oversized 2"}},
		{"no time", "1 a\n- b\n", []string{"1 a"}, []string{"no_time 2"}},
		{"future", "1 a\n1000001 b\n2 c\n", []string{"1 a", "2 c"}, []string{"future 2"}},
	} {
		for _, packing := range []string{"plain", "gzip", "zstd"} {
			t.Run(tc.name+", "+packing, func(t *testing.T) {
				input := tc.input
				if packing != "plain" {
					input = string(packings(t, tc.input)[packing].file)
				}
				var log archiveLog
				a := archiveOver(&log, nil)
				if err := readArchive(t, a, input); err != nil {
					t.Fatal(err)
				}
				if got := log.values(); !slices.Equal(got, tc.want) {
					t.Errorf("events %q, want %q", got, tc.want)
				}
				if got := log.reasons(); !slices.Equal(got, tc.reasons) {
					t.Errorf("dead letters %q, want %q", got, tc.reasons)
				}
				if got := a.Counts(); got.Events != int64(len(tc.want)) || got.Lines != int64(len(tc.want)+len(tc.reasons)) {
					t.Errorf("counts %+v", got)
				}
			})
		}
	}
}

func TestArchiveDeadLetterNamesFileAndLine(t *testing.T) {
	var log archiveLog
	long := "2 " + strings.Repeat("y", 2*traffic.DeadLetterBytes)
	a := archiveOver(&log, func(o *Options) { o.MaxBytes = traffic.DeadLetterBytes + 5 })
	if err := readArchive(t, a, "1 a\n"+long+"\n"); err != nil {
		t.Fatal(err)
	}
	if len(log.letters) != 1 {
		t.Fatalf("dead letters %v, want one", log.letters)
	}
	d := log.letters[0]
	if !strings.HasPrefix(d.Detail, "a.log:2: got 32770 bytes") || d.Size != len(long) || d.Topic != "a.log" || d.Offset != 2 {
		t.Errorf("dead letter %q size %d topic %q offset %d", d.Detail, d.Size, d.Topic, d.Offset)
	}
	if len(d.Value) != traffic.DeadLetterBytes {
		t.Errorf("kept %d bytes, want %d", len(d.Value), traffic.DeadLetterBytes)
	}
}

// A file that breaks off is read up to there, and so are the files after it. What is lost is told with its place.
func TestArchiveBreaksOff(t *testing.T) {
	var text strings.Builder
	lineAt := func(i int) string { return fmt.Sprintf("%d %x", 1000+i/100, uint64(i)*0x9e3779b97f4a7c1) }
	const lines = 30_000
	for i := range lines {
		text.WriteString(lineAt(i) + "\n")
	}
	away := errors.New("input/output error")
	for name, p := range packings(t, text.String()) {
		damaged := slices.Clone(p.file)
		damaged[len(damaged)-1] ^= 0xff // of a checksum, or of the size
		for _, tt := range []struct {
			name, reason string
			file         io.Reader
			least        int64
		}{
			{"cut in its middle", ReasonTruncated, bytes.NewReader(p.file[:len(p.file)*3/4]), 1000},
			{"without its end", ReasonTruncated, bytes.NewReader(p.file[:len(p.file)-2]), 20_000},
			{"nothing but a header", ReasonTruncated, bytes.NewReader(p.file[:5]), 0},
			{"damaged at its end", ReasonUnreadable, bytes.NewReader(damaged), 20_000},
			{"on a disk that fails", ReasonUnreadable, io.MultiReader(bytes.NewReader(p.file[:len(p.file)*3/4]), &failing{"", away}), 1000},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				var log archiveLog
				a := archiveOver(&log, nil)
				if err := errors.Join(a.Read(t.Context(), "old.log", io.NopCloser(tt.file)), readArchive(t, a, "2000 z\n")); err != nil {
					t.Fatal(err)
				}
				got := a.Counts()
				if got.Events < tt.least+1 || got.Lines != got.Events || log.values()[got.Events-1] != "2000 z" {
					t.Fatalf("counts %+v", got)
				}
				for i, line := range log.values()[:got.Events-1] {
					if line != lineAt(i) {
						t.Fatalf("line %d is %q, want %q", i+1, line, lineAt(i))
					}
				}
				if len(got.Broken) != 1 || len(log.letters) != 1 || got.Refused[tt.reason] != 1 {
					t.Fatalf("broken %+v, letters %+v, refused %v", got.Broken, log.letters, got.Refused)
				}
				d, lost := log.letters[0], got.Broken[0]
				if lost.File != "old.log" || lost.Line != got.Lines || lost.Reason != tt.reason || lost.Detail == "" {
					t.Errorf("broken %+v, want line %d", lost, got.Lines)
				}
				if d.Reason != tt.reason || d.Topic != "old.log" || d.Offset != lost.Line || d.Detail != fmt.Sprintf("old.log:%d: %s", lost.Line, lost.Detail) {
					t.Errorf("letter %+v of %+v", d, lost)
				}
				if n := int(lost.Line) - 1; n < lines && !strings.HasPrefix(lineAt(n), string(d.Value)) {
					t.Errorf("the letter has %q, which is not of line %d", d.Value, lost.Line)
				}
			})
		}
	}
}

// Lines that fail while the format is still in doubt are told, too, where the file breaks off before that is known.
func TestArchiveBreaksOffWhileItsFormatIsInDoubt(t *testing.T) {
	var log archiveLog
	a := archiveOver(&log, nil)
	if err := a.Read(t.Context(), "a.log", io.NopCloser(&failing{"bad\nbad\nhalf", errors.New("input/output error")})); err != nil {
		t.Fatal(err)
	}
	if got := log.reasons(); !slices.Equal(got, []string{"malformed 1", "malformed 2", "unreadable 3"}) || string(log.letters[2].Value) != "half" {
		t.Errorf("dead letters %q, the last of %q", got, log.letters[2].Value)
	}
}

func TestArchiveWrongFormat(t *testing.T) {
	t.Run("stops before a dead letter is written", func(t *testing.T) {
		var log archiveLog
		err := readArchive(t, archiveOver(&log, nil), strings.Repeat("{\"a\":1}\n", probeLines+10))
		var wrong *FormatError
		if !errors.As(err, &wrong) || wrong.Line != 1 || wrong.Lines != probeLines {
			t.Fatalf("got %v, want a FormatError of line 1", err)
		}
		if !strings.HasPrefix(err.Error(), "a.log:1: ") || len(log.letters) != 0 || len(log.events) != 0 {
			t.Errorf("error %q, %d letters, %d events", err, len(log.letters), len(log.events))
		}
	})
	t.Run("one good line among the first is enough", func(t *testing.T) {
		var log archiveLog
		input := strings.Repeat("bad\n", probeLines-1) + "1 a\n" + strings.Repeat("bad\n", probeLines)
		if err := readArchive(t, archiveOver(&log, nil), input); err != nil {
			t.Fatal(err)
		}
		if len(log.letters) != 2*probeLines-1 || len(log.events) != 1 {
			t.Errorf("%d letters and %d events", len(log.letters), len(log.events))
		}
	})
	t.Run("a short file of bad lines becomes dead letters", func(t *testing.T) {
		var log archiveLog
		if err := readArchive(t, archiveOver(&log, nil), "bad\nbad\n"); err != nil {
			t.Fatal(err)
		}
		if len(log.letters) != 2 {
			t.Errorf("%d letters, want 2", len(log.letters))
		}
	})
}

func TestArchiveSpike(t *testing.T) {
	for _, tc := range []struct {
		name  string
		times []int
		want  []int // seconds refused
	}{
		{"one line far ahead of both", []int{10, 9000, 20}, []int{9000}},
		{"just an hour ahead", []int{10, 3610, 10}, nil},
		{"a second more than an hour", []int{10, 3611, 10}, []int{3611}},
		{"two in a row are a jump of the clock", []int{10, 9000, 9001, 20}, nil},
		{"far ahead of the line before only", []int{10, 9000, 8000, 8001}, nil},
		{"far ahead of the line after only", []int{9000, 9001, 20}, nil},
		{"the first line has one neighbour", []int{9000, 10, 20}, nil},
		{"the last line has one neighbour", []int{10, 20, 9000}, nil},
		{"one behind the other", []int{10, 9000, 20, 9000, 30}, []int{9000, 9000}},
		{"an old line is never refused", []int{9000, 10, 9001}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log archiveLog
			var input strings.Builder
			for i, s := range tc.times {
				fmt.Fprintf(&input, "%d n%d\n", s, i)
			}
			if err := readArchive(t, archiveOver(&log, nil), input.String()); err != nil {
				t.Fatal(err)
			}
			var refused []int
			for _, d := range log.letters {
				if d.Reason != ReasonAhead {
					t.Errorf("reason %q", d.Reason)
				}
				refused = append(refused, tc.times[d.Offset-1])
			}
			if !slices.Equal(refused, tc.want) {
				t.Errorf("refused %v, want %v", refused, tc.want)
			}
			if len(log.events)+len(log.letters) != len(tc.times) {
				t.Errorf("%d events and %d letters of %d lines", len(log.events), len(log.letters), len(tc.times))
			}
		})
	}
}

func TestArchiveLiveTakesTimesAsTheyAre(t *testing.T) {
	var log archiveLog
	a := archiveOver(&log, func(o *Options) { o.Replay = false })
	if err := readArchive(t, a, "10 a\n9000000000 b\n- c\n20 d\n"); err != nil {
		t.Fatal(err)
	}
	if got, want := log.values(), []string{"10 a", "9000000000 b", "- c", "20 d"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestArchiveSinkErrorEndsTheReading(t *testing.T) {
	full := errors.New("broker is away")
	log := archiveLog{fail: full}
	err := readArchive(t, archiveOver(&log, nil), "1 a\n2 b\n3 c\n")
	if !errors.Is(err, full) || len(log.events) != 1 {
		t.Errorf("got %v after %d events, want the sink's error after one", err, len(log.events))
	}
}

func TestArchiveEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log archiveLog
	err := archiveOver(&log, nil).Read(ctx, "a.log", io.NopCloser(strings.NewReader("1 a\n2 b\n")))
	if !errors.Is(err, context.Canceled) || len(log.events) != 0 {
		t.Errorf("got %v after %d events, want context.Canceled after none", err, len(log.events))
	}
}

// Input whose disorder is within the buffer's reach comes out as a stable sort would give it; other input comes out
// whole, and what came too late is counted.
func TestReorderAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.IntRange(1, 30).Draw(t, "within")
		times := rapid.SliceOfN(rapid.IntRange(0, 60), 0, 80).Draw(t, "times")
		r := newReorder(time.Duration(within)*time.Second, reorderBytes)
		var got []Event
		emit := func(e Event) error { got = append(got, e); return nil }
		events := make([]Event, len(times))
		newest, disorder := 0, 0
		for i, s := range times {
			events[i] = Event{Line: int64(i), Time: traffic.Time(s) * 1e6, HasTime: true}
			newest = max(newest, s)
			disorder = max(disorder, newest-s)
			if err := r.push(events[i], emit); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.flush(emit); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(events) {
			t.Fatalf("%d events came out of %d", len(got), len(events))
		}
		want := slices.Clone(events)
		slices.SortStableFunc(want, func(a, b Event) int { return int(a.Time - b.Time) })
		sorted := slices.EqualFunc(got, want, func(a, b Event) bool { return a.Line == b.Line })
		if disorder <= within && (!sorted || r.tooLate != 0) {
			t.Fatalf("disorder %d within %d: not sorted, or %d too late", disorder, within, r.tooLate)
		}
		behind := int64(0)
		for i, top := 0, traffic.BeforeTime; i < len(got); i++ {
			if got[i].Time < top {
				behind++
			}
			top = max(top, got[i].Time)
		}
		if behind != r.tooLate {
			t.Fatalf("%d events came out behind a newer one, counted %d", behind, r.tooLate)
		}
	})
}

func TestReorderIsBounded(t *testing.T) {
	r := newReorder(time.Hour, 100)
	sent := 0
	for i := range 50 {
		e := Event{Time: traffic.Time(i) * 1e6, HasTime: true, Value: make([]byte, 10)}
		if err := r.push(e, func(Event) error { sent++; return nil }); err != nil {
			t.Fatal(err)
		}
		if r.bytes > 100 {
			t.Fatalf("holds %d bytes, bound 100", r.bytes)
		}
	}
	if sent != 40 || r.forced != 40 {
		t.Errorf("%d sent early, %d counted; want 40", sent, r.forced)
	}
}

func TestArchiveCountsByReason(t *testing.T) {
	var log archiveLog
	a := archiveOver(&log, func(o *Options) { o.Reorder = 5 * time.Second })
	if err := readArchive(t, a, "30 a\n10 b\nbad\n\n31 c\n40 d\n20 e\n"); err != nil {
		t.Fatal(err)
	}
	got := a.Counts()
	if want := map[string]int64{format.ReasonMalformed: 1, format.ReasonEmpty: 1}; !maps.Equal(got.Refused, want) {
		t.Errorf("refused %v, want %v", got.Refused, want)
	}
	// 10 leaves when 30 has been seen; 40 lets 30 and 31 go, so 20 comes too late.
	if got.Events != 5 || got.TooLate != 1 || got.First != 10e6 || got.Last != 40e6 {
		t.Errorf("counts %+v", got)
	}
}
