package backtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirhq/weir/ingest/archive"
)

// Times before 1970 are times like others: clocks that were never set, and clients that make them up.
func TestTimesBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:59Z"} {
		for _, window := range []string{"1s", "7s", "1m", "31d"} {
			at, err := time.Parse(time.RFC3339, first)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			for range 3 {
				text.WriteString(lineOf(at, "192.0.2.1", "", "", "/a"))
			}
			text.WriteString(lineOf(at.Add(time.Second/2), "192.0.2.1", "", "", "/a"))
			o := Options{Format: "weir", Rules: parseRules(t, fmt.Sprintf("id: r\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: %s\n", window))}
			r := run1(t, o, inMemory("log", text.Bytes()))
			got := r.Rules[0]
			if r.Events != 4 || got.Sources != 1 || got.Over != 2 || len(got.Peaks) == 0 || got.Peaks[len(got.Peaks)-1].To < 4 {
				t.Errorf("%s, window %s: %d events, %d sources, %d over, peaks %v, examples %v", first, window, r.Events, got.Sources, got.Over, got.Peaks, r.Examples)
			}
		}
	}
}

// Lines of any length below the bound may follow each other: what a block leaves for the next one may be more than that holds.
func TestLongLines(t *testing.T) {
	t.Parallel()
	const stretch = 64 << 10 // of lines that archive.LineReader gives together
	for _, size := range []int{stretch - 1, stretch, 300_000, 600_000, 1_000_000} {
		line := strings.Replace(lineOf(begin, "192.0.2.1", "", "", "/a"), "{", fmt.Sprintf(`{"padding":"%s",`, strings.Repeat("x", size-200)), 1)
		for _, many := range []int{2, 3, 7} {
			o := Options{Format: "weir", Rules: parseRules(t, "id: r\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\n")}
			r := run1(t, o, inMemory("log", []byte(strings.Repeat(line, many))))
			if r.Events != int64(many) || r.Rules[0].Over != int64(many-1) {
				t.Errorf("%d lines of %d bytes: %d events, %d over, refused %v", many, len(line), r.Events, r.Rules[0].Over, r.Refused)
			}
		}
	}
}

// Sources that are made for their hashes take no more memory than others, and the chart no more time.
func TestSourcesMadeForTheirHashes(t *testing.T) {
	t.Parallel()
	c := &peakCounter{slice: 1, share: 1}
	for i := range uint64(10_000) {
		c.add(i<<40, 5, 1)
	}
	if c.sources.n > peakSources+20 || c.share > maxPeakShare {
		t.Fatalf("%d sources are followed, each for %d", c.sources.n, c.share)
	}
	found := make([]followed, c.sources.n)
	for i := range found {
		found[i] = followed{1, int64(c.share)}
	}
	buckets := distribute(found, map[int]int64{1: 0})
	if len(buckets) != 1 || buckets[0].Sources != int64(len(found))*maxPeakShare {
		t.Errorf("buckets %v", buckets)
	}
}

// packedOf is what write writes, packed.
func packedOf(t *testing.T, with string, write func(w io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	var z io.WriteCloser = gzip.NewWriter(&b)
	if with == "zstd" {
		packer, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		z = packer
	}
	if err := errors.Join(write(z), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A small file that unpacks into much takes no more memory than any other, whether that is one endless line or a great many. Nor
// does one that asks for a window of terabytes get it.
func TestBombs(t *testing.T) {
	const unpacked = 256 << 20
	repeat := func(text string) func(io.Writer) error {
		piece := []byte(strings.Repeat(text, 1<<20/len(text)))
		return func(w io.Writer) error {
			for range unpacked / len(piece) {
				if _, err := w.Write(piece); err != nil {
					return err
				}
			}
			return nil
		}
	}
	good := plainLog(100)
	for _, tt := range []struct {
		name   string
		file   []byte
		reason string
		lines  int64 // of the file
	}{
		{"an endless line in gzip", packedOf(t, "gzip", repeat("x")), "oversized", 1},
		{"an endless line in zstd", packedOf(t, "zstd", repeat("x")), "oversized", 1},
		{"nothing in gzip", packedOf(t, "gzip", repeat("\x00")), "oversized", 1},
		{"a window of terabytes", []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x01, 0x00, 0x00}, archive.ReasonUnreadable, 0},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := run1(t, plainOptions(t), inMemory("bomb.log", tt.file), inMemory("good.log", good))
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > unpacked/2 {
			t.Errorf("%s: %d MiB allocated for a file of %d bytes", tt.name, got>>20, len(tt.file))
		}
		if r.Events != 100 || r.Lines != 100+tt.lines || r.Refused[tt.reason] != 1 || len(r.Examples) != 1 || !strings.HasPrefix(r.Examples[0], "bomb.log:") {
			t.Errorf("%s: %d events of %d lines, refused %v, examples %q", tt.name, r.Events, r.Lines, r.Refused, r.Examples)
		}
	}
}

// A zstd file that was cut off or damaged is read up to there, as a gzip file is.
func TestBrokenZstd(t *testing.T) {
	text := plainLog(20_000)
	packed := packedOf(t, "zstd", func(w io.Writer) error { _, err := w.Write(text); return err })
	bad := slices.Clone(packed)
	bad[len(bad)-1] ^= 0xff // of the checksum
	for _, tt := range []struct {
		name, reason string
		file         []byte
		least        int64
	}{
		{"truncated", archive.ReasonTruncated, packed[:len(packed)*3/4], 1000},
		{"no end", archive.ReasonTruncated, packed[:len(packed)-2], 10_000},
		{"damaged", archive.ReasonUnreadable, bad, 10_000},
	} {
		r := run1(t, plainOptions(t), inMemory("some.zst", tt.file), inMemory("good.log", text))
		if r.Events < 20_000+tt.least || r.Events >= 40_001 || r.Refused[tt.reason] != 1 || len(r.Examples) != 1 || !strings.HasPrefix(r.Examples[0], "some.zst:") {
			t.Errorf("%s: %d events, refused %v, examples %q", tt.name, r.Events, r.Refused, r.Examples)
		}
	}
}
