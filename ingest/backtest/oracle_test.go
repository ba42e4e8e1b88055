package backtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

// Episodes are those of the oracle over the sorted log, whatever the order of the log within the lateness or the reorder
// buffer, and however it is cut up: by source partitions, files and workers.
func TestEpisodesAreThoseOfTheOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const late = 60
		limit, window := rapid.IntRange(0, 5).Draw(t, "limit"), rapid.Int64Range(1, 100).Draw(t, "window")
		limits := []int{limit, limit + 2}
		partitions := rapid.IntRange(1, 4).Draw(t, "partitions")
		sources := map[traffic.Subject][]oracle.Event{}
		lines := [][]byte{}
		now := int64(1000)
		for i := range rapid.IntRange(1, 200).Draw(t, "events") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 2, 10, 50, 300}).Draw(t, "after")
			at := now - rapid.SampledFrom([]int64{0, 0, 0, 1, 20, late}).Draw(t, "late by")
			who := rapid.IntRange(1, 4).Draw(t, "who")
			path := rapid.SampledFrom([]string{"/a", "/a", "/b"}).Draw(t, "path")
			if path == "/a" {
				subject := traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32", who))
				sources[subject] = append(sources[subject], oracle.Event{Time: at, Offset: int64(i)})
			}
			lines = append(lines, []byte(lineOf(begin.Add(time.Duration(at)*time.Second), fmt.Sprintf("192.0.2.%d", who), "", "", path)))
		}
		o := Options{Format: "weir", Partitions: partitions, Workers: rapid.IntRange(1, 8).Draw(t, "workers"), Sweep: Sweep{Field: SweepLimit, Limits: limits}}
		if rapid.Bool().Draw(t, "reorder") {
			o.Reorder = late * time.Second
		}
		lateness := late
		if o.Reorder > 0 {
			lateness = 0
		}
		o.Rules = parseRules(t, fmt.Sprintf("id: r\nowner: tests\nmatch: {path: /a}\nkey: [ip]\nlimit: %d\nwindow: %ds\nlateness: %ds\n", limit, window, lateness))
		cut := rapid.IntRange(0, len(lines)).Draw(t, "second file from")
		got := run1(t, o, inMemory("one", bytes.Join(lines[:cut], nil)), inMemory("two", bytes.Join(lines[cut:], nil)))
		for i, limit := range limits {
			want := map[episode]int{}
			var over int64
			for subject, events := range sources {
				events = slices.Clone(events)
				for i := range events {
					events[i].Limit = limit
				}
				for _, e := range oracle.Sliding(events, window, 24*60*60) {
					second := func(s int64) traffic.Time { return traffic.Time(begin.Add(time.Duration(s) * time.Second).UnixMicro()) }
					want[episode{"r", subject, second(e.First), second(e.Last), e.Count}]++
					over += e.Count
				}
			}
			r := &got.Rules[i]
			if !maps.Equal(episodesOf(r), want) || r.Over != over || r.Episodes != int64(len(want)) {
				t.Fatalf("limit %d: %d over\n got %v\nwant %v", limit, r.Over, episodesOf(r), want)
			}
		}
	})
}
