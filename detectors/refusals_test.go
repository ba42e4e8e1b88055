package detectors

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// refusalBench folds what gates refused, of one source partition.
type refusalBench struct {
	t    rapid.TB
	p    *Partition
	next int64
	at   traffic.Time // of append
	hits []Hit
}

func newRefusalBench(t rapid.TB) *refusalBench {
	b := &refusalBench{t: t, p: NewPartition(Config{Keyed: 5, Sources: 1, Generation: 1}), at: 1000 * minute}
	b.learn()
	return b
}

func (b *refusalBench) learn() {
	b.p.Learn(NewPlan(&rules.Routing{Number: 1, RecordFormat: rules.RefusalRecordFormat}))
}

// fold has the next record, as it comes from the log.
func (b *refusalBench) fold(k *Keyed) {
	b.t.Helper()
	k.Format, k.Generation, k.Offset, k.Prev = rules.RefusalRecordFormat, 1, b.next, b.next-1
	if k.Kind == KeyedEvent {
		b.next++
	}
	var read Keyed
	if err := DecodeKeyed(AppendKeyed(nil, k), &read); err != nil {
		b.t.Fatal(err)
	}
	var err error
	if b.hits, err = b.p.Fold(b.at, &read, b.hits); err != nil {
		b.t.Fatal(err)
	}
}

func (b *refusalBench) refused(rule, block string, at traffic.Time, good Good) {
	b.t.Helper()
	b.fold(&Keyed{Kind: KeyedEvent, Version: 1, Time: at, Progress: at, Good: good,
		Verdict: traffic.Verdict{Rule: rule, Block: block}})
}

// takeOver goes on with what a snapshot holds.
func (b *refusalBench) takeOver() {
	b.t.Helper()
	raw := b.p.Snapshot(nil)
	p, err := Restore(b.p.cfg, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	if again := p.Snapshot(nil); !slices.Equal(again, raw) {
		b.t.Fatalf("restored it is written as\n%x, was\n%x", again, raw)
	}
	b.p = p
	b.learn()
}

// end lets the minute of append time pass.
func (b *refusalBench) end() {
	b.t.Helper()
	b.at += minute
	b.fold(&Keyed{Kind: KeyedTick, Idle: true, Clock: b.at})
}

// sums are what hits tell of, by rule, block and minute: requests, and those of known-good sources.
func (b *refusalBench) sums() map[string][2]int64 {
	b.t.Helper()
	ids, sums := map[string]bool{}, map[string][2]int64{}
	for i := range b.hits {
		h := &b.hits[i]
		if h.Kind != KindRefused {
			continue
		}
		if ids[h.ID] {
			b.t.Fatalf("two sums have the id %s", h.ID)
		}
		ids[h.ID] = true
		if _, err := EncodeHit(h); err != nil {
			b.t.Fatal(err)
		}
		if h.First%minute != 0 || h.Last < h.First || h.Last >= h.First+minute {
			b.t.Fatalf("a sum of %s up to %s", h.First, h.Last)
		}
		name := fmt.Sprint(h.Rule, " ", h.Block, " ", int64(h.First/minute))
		sums[name] = [2]int64{sums[name][0] + h.Count, sums[name][1] + h.Known}
	}
	return sums
}

// Whatever gates refuse is in one sum of its rule, block and minute, however often a process takes over, and none of it
// is counted by a rule.
func TestRefusedRequestsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newRefusalBench(rt)
		want := map[string][2]int64{}
		for range rapid.IntRange(0, 60).Draw(rt, "records") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				b.takeOver()
			case 1:
				b.end()
			case 2:
				b.at += traffic.Time(rapid.Int64Range(0, int64(minute)).Draw(rt, "later"))
			default:
				rule, block := rapid.SampledFrom([]string{"flood", "logins", "gone"}).Draw(rt, "rule"),
					rapid.SampledFrom([]string{"00", "01", "0123456789abcdef"}).Draw(rt, "block")
				at := b.at - traffic.Time(rapid.Int64Range(-int64(minute), 3*int64(minute)).Draw(rt, "ago"))
				good := rapid.SampledFrom([]Good{NotJudged, NotGood, KnownGood}).Draw(rt, "good")
				b.refused(rule, block, at, good)
				name := fmt.Sprint(rule, " ", block, " ", int64(at/minute))
				known := int64(0)
				if good == KnownGood {
					known = 1
				}
				want[name] = [2]int64{want[name][0] + 1, want[name][1] + known}
			}
		}
		b.end()
		if got := b.sums(); !maps.Equal(got, want) {
			rt.Fatalf("sums %v, want %v", got, want)
		}
		if p := b.p; len(p.refusals.sums) > 0 || len(b.hits) > len(want)*20 {
			rt.Fatalf("%d hits of %d sums, %d are left", len(b.hits), len(want), len(p.refusals.sums))
		}
	})
}

// Whoever writes to the log may make up blocks and rules without end: no request is lost, and memory is bounded.
func TestRefusalsThatSomebodyMakesUp(t *testing.T) {
	b := newRefusalBench(t)
	const made = mostRefusalSums + 5000
	for i := range made {
		b.refused(fmt.Sprint("rule-", i), fmt.Sprint("block-", i), b.at, NotJudged)
	}
	if n := len(b.p.refusals.sums); n > mostRefusalSums+1 {
		t.Errorf("%d sums", n)
	}
	b.takeOver()
	b.end()
	total, rules := int64(0), map[string]int64{}
	for i := range b.hits {
		total += b.hits[i].Count
		rules[b.hits[i].Rule] += b.hits[i].Count
	}
	if total != made || len(b.hits) != mostRefusalSums+1 || rules[""] != made-mostRefusalSums {
		t.Errorf("%d requests in %d sums, %d of no rule", total, len(b.hits), rules[""])
	}
}
