package backtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
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
	for _, size := range []int{blockBytes - 1, blockBytes, 300_000, 600_000, 1_000_000} {
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
	c := &peakCounter{slice: 1, share: 1, sources: map[uint64]*peakSource{}}
	for i := range uint64(10_000) {
		c.add(i<<40, 5, 1)
	}
	if len(c.sources) > peakSources+20 || c.share > maxPeakShare {
		t.Fatalf("%d sources are followed, each for %d", len(c.sources), c.share)
	}
	found := make([]followed, len(c.sources))
	for i := range found {
		found[i] = followed{1, int64(c.share)}
	}
	buckets := distribute(found, map[int]int64{1: 0})
	if len(buckets) != 1 || buckets[0].Sources != int64(len(found))*maxPeakShare {
		t.Errorf("buckets %v", buckets)
	}
}
