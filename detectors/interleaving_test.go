package detectors_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The story that is told in many orders: some sources, each at its own rate, so that their fullest windows lie on both
// sides of the limit.
const (
	toldSources  = 8 // source partitions
	toldKeyed    = 2
	toldKeys     = 80
	toldWindow   = 60 * second
	toldLateness = 30 * second
	toldSkew     = 5 * second // how far the reading of one source partition runs ahead of another
	toldLimit    = 20
	toldBurst    = 8
)

// told is one event of the story.
type told struct {
	at  traffic.Time
	key int
}

func toldAddress(key int) string { return fmt.Sprintf("192.0.2.%d", key) }

// tell makes the story: six windows long, at 8 to 23 events a window. The times of a key all differ.
func tell() []told {
	rnd := rand.New(rand.NewPCG(8, 1))
	used := map[told]bool{}
	var out []told
	for key := range toldKeys {
		for n := 6 * (8 + key%16); n > 0; {
			e := told{origin + traffic.Time(rnd.Int64N(int64(6*toldWindow))), key}
			if !used[e] {
				used[e] = true
				out = append(out, e)
				n--
			}
		}
	}
	slices.SortFunc(out, func(a, b told) int { return int(a.at - b.at) })
	return out
}

// interleaving is the story as it stands in `requests`, every second event of a source partition behind ones that are
// newer, and as it comes to the keyed log.
type interleaving struct {
	keyed    [toldKeyed][]detectors.Record
	arrivals [toldKeys][]traffic.Time // of each key, in the order of the keyed log
	behind   int                      // events that came after a newer one of their source partition
}

// sent is an event on its way to a source partition's log.
type sent struct {
	told
	arrival traffic.Time
}

// requests deals the story to the source partitions. An event arrives less than the lateness after its time, so
// what came before it in its partition is less than the lateness newer: none is late.
func requests(rnd *rand.Rand, story []told) [toldSources][]sent {
	var logs [toldSources][]sent
	for _, e := range story {
		p := rnd.IntN(toldSources)
		s := sent{e, e.at}
		if len(logs[p])%2 == 1 {
			s.arrival += toldLateness/6 + traffic.Time(rnd.Int64N(int64(toldLateness*5/6)))
		}
		logs[p] = append(logs[p], s)
	}
	for p := range logs {
		sort.SliceStable(logs[p], func(i, j int) bool { return logs[p][i].arrival < logs[p][j].arrival })
	}
	return logs
}

// interleave reads the source partitions as ROUTE does: each in its order, its progress the greatest event time so far, one
// record for each event on the keyed partition of its key.
func interleave(rnd *rand.Rand, story []told, ruleCount int) *interleaving {
	logs := requests(rnd, story)
	out := &interleaving{}
	var next [toldSources]int
	var progress [toldSources]traffic.Time
	var prev [toldSources][toldKeyed]int64
	for p := range toldSources {
		progress[p] = traffic.BeforeTime
		for q := range toldKeyed {
			prev[p][q] = detectors.NoOffset
		}
	}
	all := make([]int, ruleCount)
	for i := range all {
		all[i] = i
	}
	for now := origin; ; now += 1000 {
		p := pickSource(rnd, &logs, &next)
		if p < 0 {
			break
		}
		e, offset := logs[p][next[p]], int64(next[p])
		next[p]++
		if e.at < progress[p] {
			out.behind++
		}
		progress[p] = max(progress[p], e.at)
		q := e.key % toldKeyed
		out.keyed[q] = append(out.keyed[q], detectors.Record{Appended: now, Keyed: detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Source: p, Offset: offset, Prev: prev[p][q], Time: e.at, Progress: progress[p],
			Version: 1, Rules: all, Identity: identityOf(toldAddress(e.key)),
		}})
		prev[p][q] = offset
		out.arrivals[e.key] = append(out.arrivals[e.key], e.at)
	}
	for q := range toldKeyed {
		for p := range toldSources {
			out.keyed[q] = append(out.keyed[q], detectors.Record{Appended: origin, Keyed: detectors.Keyed{
				Kind: detectors.KeyedTick, Generation: 1, Source: p, Offset: int64(next[p]), Prev: prev[p][q], Time: traffic.EndOfTime,
			}})
		}
	}
	return out
}

// pickSource draws one of the source partitions whose next event is due about now, -1 when all are read.
func pickSource(rnd *rand.Rand, logs *[toldSources][]sent, next *[toldSources]int) int {
	least := traffic.EndOfTime
	for p := range logs {
		if next[p] < len(logs[p]) {
			least = min(least, logs[p][next[p]].arrival)
		}
	}
	var due []int
	for p := range logs {
		if next[p] < len(logs[p]) && logs[p][next[p]].arrival <= least+toldSkew {
			due = append(due, p)
		}
	}
	if len(due) == 0 {
		return -1
	}
	return due[rnd.IntN(len(due))]
}

// flagged folds the keyed logs, in batches, and gives the (rule, source) pairs that had a hit.
func (in *interleaving) flagged(t *testing.T, rnd *rand.Rand, versions []rules.Version) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for q, records := range in.keyed {
		p := detectors.NewPartition(detectors.Config{Keyed: q, Sources: toldSources, Generation: 1, Secret: detectors.Secret{4}})
		p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: versions}))
		var hits []detectors.Hit
		for len(records) > 0 {
			n := min(1+rnd.IntN(60), len(records))
			var err error
			if _, hits, err = p.FoldAll(records[:n], hits); err != nil {
				t.Fatal(err)
			}
			records = records[n:]
		}
		if c := p.Counts(); c.Late != 0 || c.Duplicates != 0 || c.Counted+c.OutOfOrder != int64(len(versions))*c.Events || p.Keys() != 0 {
			t.Fatalf("keyed %d: %+v, %d keys left: nothing is late here, and all of it ends", q, c, p.Keys())
		}
		for i := range hits {
			if h := &hits[i]; h.Kind == detectors.KindHit && h.Phase == detectors.PhaseOpen {
				out[h.Rule+" "+string(h.Subject)] = true
			}
		}
	}
	return out
}

// TestInterleavings reads the same events of eight source partitions in a hundred orders, half of the events out of order
// within the lateness. No window finds a source over that is not by the oracle over the events sorted by time, and those that promise
// that order makes no difference find all of them every time.
func TestInterleavings(t *testing.T) {
	story := tell()
	tellers := everyTeller(story)
	var versions []rules.Version
	for _, w := range tellers {
		versions = append(versions, w.version)
	}
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		in := interleave(rnd, story, len(versions))
		if in.behind*100 < 49*len(story) {
			t.Fatalf("seed %d: only %d of %d events are out of order", seed, in.behind, len(story))
		}
		got := in.flagged(t, rnd, versions)
		for _, w := range tellers {
			w.judge(t, seed, got)
		}
	}
	for _, w := range tellers {
		w.conclude(t)
	}
}

// toldRule is a rule of the story.
func toldRule(a rules.Algorithm) rules.Version {
	v := rule(toldLimit, time.Duration(toldWindow)*time.Microsecond, time.Duration(toldLateness)*time.Microsecond)
	v.ID, v.Algorithm = string(a), a
	if a == rules.AlgorithmTokenBucket || a == rules.AlgorithmLeakyBucket {
		v.Burst = toldBurst
	}
	return v
}
