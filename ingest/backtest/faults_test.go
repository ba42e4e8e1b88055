package backtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// plainLog has n events of 50 addresses, one a second.
func plainLog(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(lineOf(begin.Add(time.Duration(i)*time.Second), fmt.Sprintf("192.0.2.%d", i*i%50), "", "", "/a"))
	}
	return b.Bytes()
}

const plainRule = "id: plain\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: 60s\nblock: {key: [ip], ttl: 2m}\n"

func plainOptions(t fataler) Options { return Options{Format: "weir", Rules: parseRules(t, plainRule)} }

func zipped(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// bare is a result without what differs between two equal runs.
func bare(r *Result) Result {
	out := *r
	out.Took, out.Rules = 0, slices.Clone(r.Rules)
	for i := range out.Rules {
		out.Rules[i].Hits = nil
	}
	return out
}

func hitsOf(r *RuleResult) []detectors.Hit {
	out := slices.Collect(r.Hits)
	for i := range out {
		out[i].Seen = 0
	}
	return out
}

func TestSameWithAnyWorkersAndAnyFile(t *testing.T) {
	t.Parallel()
	text := plainLog(9_000)
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write(text) // a buffer takes everything
	_ = z.Close()
	o := plainOptions(t)
	o.Partitions, o.Budget, o.Sweep = 3, 1<<15, Sweep{Field: SweepLimit, Limits: []int{1, 2, 3}}
	var want *Result
	cut := bytes.LastIndexByte(text[:len(text)/2], '\n') + 1
	files := map[string][]File{
		"plain":   {inMemory("log", text)},
		"gzip":    {inMemory("log", zipped(text))},
		"members": {inMemory("log", append(zipped(text[:cut-7]), zipped(text[cut-7:])...))},
		"zstd":    {inMemory("log", packed.Bytes())},
		"bom, CR": {inMemory("log", append([]byte("\xef\xbb\xbf"), bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))...))},
		"slow":    {{Name: "log", Size: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(&oddReader{rest: text}), nil }}},
		"two":     {inMemory("log", text[:cut]), inMemory("log", text[cut:len(text)-1])},
	}
	for _, workers := range []int{1, 2, 3, 4, 8} {
		o.Workers = workers
		for name, list := range files {
			got := run1(t, o, list...)
			if want == nil {
				want = got
			}
			// Where blocks of lines end differs with what a line takes; nothing that is found may.
			if a, b := bare(got), bare(want); !reflect.DeepEqual(a, b) {
				t.Errorf("%s with %d workers:\n got %+v\nwant %+v", name, workers, a, b)
			}
			for i := range got.Rules {
				if !reflect.DeepEqual(hitsOf(&got.Rules[i]), hitsOf(&want.Rules[i])) {
					t.Errorf("%s with %d workers: other hits", name, workers)
				}
			}
		}
	}
	if r := want.Rules[0]; r.Episodes < 10 || want.Evicted == 0 || r.Block.Refused == 0 || r.Block.Held == 0 {
		t.Errorf("the log tries nothing: %+v", r)
	}
}

// oddReader gives pieces of odd sizes.
type oddReader struct {
	rest []byte
	n    int
}

func (r *oddReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	r.n = r.n%4099 + 1
	n := copy(p[:min(r.n*7, len(p))], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	text := plainLog(20_000)
	packed := zipped(text)
	noise := make([]byte, 200_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise) // never fails
	bad := slices.Clone(packed)
	copy(bad[len(bad)/2:], noise[:1000])
	for _, tt := range []struct {
		name   string
		text   []byte
		reason string
		least  int64 // events
	}{
		{"truncated", packed[:len(packed)*3/4], archive.ReasonTruncated, 10_000},
		{"damaged", bad, archive.ReasonUnreadable, 5_000},
		{"no end", packed[:len(packed)-3], archive.ReasonTruncated, 19_000},
		{"half binary", append(slices.Clone(text), noise...), "malformed", 20_000},
		{"binary first", append(append(noise[:3000:3000], '\n'), text...), "malformed", 20_000},
		{"a line too long", append(append(bytes.Repeat([]byte("x"), 3<<20), '\n'), text...), "oversized", 20_000},
		{"only a line too long", append(slices.Clone(text), bytes.Repeat([]byte("x"), 3<<20)...), "oversized", 20_000},
		{"empty lines", append([]byte("\n\r\n"), text...), "empty", 20_000},
		{"no time", append([]byte(`{"v":1,"ip":"192.0.2.1"}`+"\n"), text...), archive.ReasonNoTime, 20_000},
		{"future", append([]byte(lineOf(time.Now().Add(time.Hour), "192.0.2.1", "", "", "/")), text...), archive.ReasonFuture, 20_000},
		{"ahead", append(append(slices.Clone(text), lineOf(begin.Add(1000*time.Hour), "192.0.2.1", "", "", "/")...), lineOf(begin.Add(20_000*time.Second), "192.0.2.1", "", "", "/")...), archive.ReasonAhead, 20_001},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := plainOptions(t)
			r := run1(t, o, inMemory("some.log", tt.text), inMemory("good.log", text))
			if r.Events < tt.least+20_000 || r.Events > 40_001 || r.Refused[tt.reason] == 0 || len(r.Examples) == 0 || len(r.Examples) > 3 || !strings.HasPrefix(r.Examples[0], "some.log:") {
				t.Errorf("%d events of %d lines, refused %v, examples %q", r.Events, r.Lines, r.Refused, r.Examples)
			}
			var refused int64
			for reason, n := range r.Refused {
				if reason != archive.ReasonTruncated && reason != archive.ReasonUnreadable {
					refused += n
				}
			}
			if r.Lines != r.Events+refused {
				t.Errorf("%d lines are not %d events and %d refused", r.Lines, r.Events, refused)
			}
			if tt.name != "damaged" && !strings.Contains(r.Examples[0], ": "+tt.reason+": ") {
				t.Errorf("examples %q", r.Examples)
			}
		})
	}
}

// Each place at which a file breaks off is told, also where so many bad lines come before it that they are all examples.
func TestEachBrokenFileIsTold(t *testing.T) {
	t.Parallel()
	packed := zipped(append([]byte("bad\nbad\nbad\nbad\n"), plainLog(20_000)...))
	r := run1(t, plainOptions(t), inMemory("one.gz", packed[:len(packed)-3]), inMemory("two.gz", packed[:len(packed)/2]), inMemory("whole.gz", packed))
	if len(r.Broken) != 2 || r.Broken[0].String() != "one.gz:20005: truncated: unexpected EOF" || r.Broken[1].File != "two.gz" || r.Broken[1].Line < 1000 || r.Refused[archive.ReasonTruncated] != 2 {
		t.Errorf("broken %v, refused %v", r.Broken, r.Refused)
	}
	if len(r.Examples) != 3 || slices.Contains(r.Examples, r.Broken[0].String()) {
		t.Errorf("examples %q", r.Examples)
	}
}

func TestNothingCouldBeRead(t *testing.T) {
	t.Parallel()
	o := plainOptions(t)
	o.Format = "combined"
	o.Identity = identity()
	o.Workers = 2 // what is read ahead of what is decoded grows with them
	long := plainLog(300_000)
	var read atomic.Int64
	file := inMemory("wrong.log", long)
	file.Open = func() (io.ReadCloser, error) { return &countedReader{io.NopCloser(bytes.NewReader(long)), &read}, nil }
	for _, f := range []File{inMemory("short.log", plainLog(5)), file} {
		r, err := Run(t.Context(), o, []File{f}, nil)
		var wrong *archive.FormatError
		if !errors.As(err, &wrong) || wrong.File != f.Name || wrong.Line != 1 || wrong.Format != "combined" || r == nil || r.Refused["malformed"] == 0 {
			t.Errorf("%s: %v, result %+v", f.Name, err, r)
		}
		if told := len(r.GivenUp) == 1 && r.GivenUp[0] == f.Name; told != (f.Name == "wrong.log") {
			t.Errorf("given up: %v", r.GivenUp)
		}
	}
	if n := read.Load(); n > int64(len(long))*3/4 {
		t.Errorf("%d bytes of %d were read of a file in another format", n, len(long))
	}
	if _, err := Run(t.Context(), o, []File{inMemory("empty.log", nil)}, nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	_, err := Run(t.Context(), o, []File{{Name: "gone.log", Open: func() (io.ReadCloser, error) { return os.Open("gone.log") }}}, nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if r, err := Run(t.Context(), o, []File{inMemory("torn.gz", zipped(long)[:9])}, nil); err == nil {
		t.Errorf("a file of nothing but its header: %+v", r)
	}
}

// An interrupted run ends, also where a file gives nothing, and leaves no goroutine behind: see TestMain.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	line := plainLog(1)
	for _, blocks := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		from, to := io.Pipe()
		go func() {
			for range 100_000 {
				if _, err := to.Write(line); err != nil {
					return
				}
			}
			if blocks {
				cancel() // nothing more comes, and no end either
				return
			}
			_ = to.Close()
		}()
		o := plainOptions(t)
		o.Identity = identity()
		told := 0
		_, err := Run(ctx, o, []File{{Name: "stdin", Size: -1, Open: func() (io.ReadCloser, error) { return from, nil }}}, func(p Progress) {
			if told++; !blocks && p.Events > 10 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a reader that blocks: %t: %v", blocks, err)
		}
		cancel()
		_ = from.Close()
	}
}

func TestSinceUntilAndProgress(t *testing.T) {
	t.Parallel()
	text := plainLog(1000)
	o := plainOptions(t)
	o.Since, o.Until = traffic.Time(begin.Add(100*time.Second).UnixMicro()), traffic.Time(begin.Add(300*time.Second).UnixMicro())
	o.Identity = identity()
	var last Progress
	r, err := Run(t.Context(), o, []File{inMemory("log", text)}, func(p Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	if r.Events != 200 || r.LeftOut != 800 || r.First != o.Since || r.Last != o.Until.Add(-time.Second) || r.Rules[0].Matched != 200 {
		t.Errorf("%+v", r)
	}
	if want := (Progress{int64(len(text)), int64(len(text)), 1000, 200}); last != want {
		t.Errorf("progress %+v, want %+v", last, want)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	o.Since, o.Until = 0, 0
	alone := run1(t, o, inMemory("log", bytes.Join(lines[100:300], nil)))
	equalRules(t, "of the same events alone", &r.Rules[0], &alone.Rules[0])
}
