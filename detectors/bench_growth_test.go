package detectors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkGrowth is how the cost of an event, from its record to its windows, grows with the number of keys, of rules of
// one key and of keyed partitions in a process: each in turn, the others as in the first row. Records come as from chunks
// of ten thousand events, so that many partitions have few each.
func BenchmarkGrowth(b *testing.B) {
	for _, g := range []growth{
		{keys: 100_000, rules: 1, parts: 1},
		{keys: 10_000, rules: 1, parts: 1}, {keys: 500_000, rules: 1, parts: 1},
		{keys: 100_000, rules: 2, parts: 1}, {keys: 100_000, rules: 4, parts: 1}, {keys: 100_000, rules: 8, parts: 1},
		{keys: 100_000, rules: 1, parts: 16}, {keys: 100_000, rules: 1, parts: 64}, {keys: 100_000, rules: 1, parts: 256},
	} {
		b.Run(fmt.Sprintf("keys=%d/rules=%d/partitions=%d", g.keys, g.rules, g.parts), g.run)
	}
}

type growth struct{ keys, rules, parts int }

const (
	growthEvents = 1_000_000
	growthChunk  = 10_000
)

func (g growth) run(b *testing.B) {
	versions := make([]rules.Version, g.rules)
	all := make([]int, g.rules)
	for i := range versions {
		versions[i], all[i] = rule(120, time.Hour, time.Minute), i
		versions[i].ID = fmt.Sprintf("r%d", i)
	}
	// Of each chunk, the records of each partition; a key is always on the same one.
	chunks := make([][][]detectors.Record, growthEvents/growthChunk)
	prev := make([]int64, g.parts)
	for q := range prev {
		prev[q] = detectors.NoOffset
	}
	for i, k := range stream(growthEvents, g.keys) {
		q := int(uint64(i) * 2654435761 % uint64(g.keys) % uint64(g.parts))
		k.Prev, prev[q] = prev[q], k.Offset
		k.Rules = all
		c := &chunks[i/growthChunk]
		if *c == nil {
			*c = make([][]detectors.Record, g.parts)
		}
		(*c)[q] = append((*c)[q], detectors.Record{Appended: origin + traffic.Time(i), Keyed: k})
	}
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		parts := make([]*detectors.Partition, g.parts)
		for q := range parts {
			parts[q] = detectors.NewPartition(detectors.Config{Keyed: q, Sources: 1, Generation: 1, Secret: detectors.Secret{1}})
			parts[q].Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: versions}))
		}
		b.StartTimer()
		for _, c := range chunks {
			for q, records := range c {
				foldSome(b, parts[q], records, true)
			}
		}
		b.StopTimer()
		counted, keys := int64(0), 0
		for _, p := range parts {
			counted, keys = counted+p.Counts().Counted, keys+p.Keys()
		}
		if counted != int64(growthEvents*g.rules) || keys != g.keys*g.rules {
			b.Fatalf("%d windows counted and %d held, want %d and %d", counted, keys, growthEvents*g.rules, g.keys*g.rules)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/growthEvents, "ns/event")
	b.ReportMetric(0, "ns/op")
}
