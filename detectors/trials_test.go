package detectors_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// base is the second 0 of trials: at a slice's and a day's beginning.
const base = traffic.Time(1_700_006_400_000_000)

// tryBench folds a log of requests in order of time under one rule.
type tryBench struct {
	*bench
	every   int   // records between snapshots that the partition is restored from; 0: none
	version int64 // under which requests are routed
}

func newTryBench(t testing.TB, v rules.Version) *tryBench {
	b := &tryBench{bench: newBench(t, 1), version: 1}
	b.learn(v)
	return b
}

func (b *tryBench) learn(v rules.Version) {
	b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: b.version, RecordFormat: rules.EvidenceRecordFormat, Rules: []rules.Version{v}}))
}

// request folds one request; those that neither count nor reach a block come to no partition.
func (b *tryBench) request(q oracle.TrialRequest, ip, device string) {
	k := b.event(0, traffic.Time(q.At)*second, ip, b.version)
	k.Format, k.Identity.Device = rules.EvidenceRecordFormat, device
	k.Good = detectors.NotGood
	if q.Good {
		k.Good = detectors.KnownGood
	}
	switch {
	case !q.Counted && !q.Reach && !q.Good:
		b.prev[0], b.next[0] = k.Prev, k.Offset
		return
	case !q.Counted && !q.Reach:
		k.Rules = nil
		b.prev[0], b.next[0], k.Prev = k.Prev, k.Offset, detectors.NoOffset
	case !q.Counted:
		k.Rules, k.Reached = nil, []int{0}
	case !q.Reach:
		k.Beyond = []int{0}
	}
	b.must(k)
}

// minutesOf sums what hits of kind statistics say, minute by minute: at a step of the ladder what would have been refused there.
func minutesOf(hits []detectors.Hit, step int) map[int64]oracle.TrialMinute {
	out := map[int64]oracle.TrialMinute{}
	for i := range hits {
		h := &hits[i]
		if h.Kind != detectors.KindStatistics {
			continue
		}
		at := int64(h.First) / 1e6
		m := out[at]
		m.Counted, m.Reached = m.Counted+h.Count, m.Reached+h.Trial.Reached
		if step == 0 {
			m.Refused, m.RefusedGood = m.Refused+h.Trial.Refused, m.RefusedGood+h.Trial.RefusedGood
		} else if len(h.Trial.RefusedAt) > 0 {
			m.Refused += h.Trial.RefusedAt[step]
		}
		out[at] = m
	}
	return out
}

func figures(t oracle.Trial) map[int64]oracle.TrialMinute {
	out := map[int64]oracle.TrialMinute{}
	for at, m := range t.Minutes {
		if *m != (oracle.TrialMinute{}) {
			out[at] = *m
		}
	}
	return out
}

func tryRule(d oracle.TrialRule, key, block []traffic.KeyField) rules.Version {
	v := rule(d.Limit, time.Duration(d.Window)*time.Second, time.Duration(d.Lateness)*time.Second)
	v.Key, v.Block.Key, v.Cooldown, v.MaxLag = key, block, time.Duration(d.Cooldown)*time.Second, time.Duration(d.MaxLag)*time.Second
	v.Block.TTL, v.Block.Extend = time.Duration(d.TTL)*time.Second, rules.ExtendNever
	if d.OnHit {
		v.Block.Extend = rules.ExtendOnHit
	}
	return v
}

// A build before reads what this one writes, but where a trial has what only format 8 says: blocks that are narrower
// than the rule's windows, and another cooldown than the default one.
func TestOnlyACooldownNeedsFormat8(t *testing.T) {
	ip, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	for _, test := range []struct {
		block    []traffic.KeyField
		cooldown time.Duration
		want     byte
	}{
		{[]traffic.KeyField{ip}, rules.DefaultCooldown, 7},
		{[]traffic.KeyField{ip}, 3 * rules.DefaultCooldown, 7},
		{[]traffic.KeyField{ip, device}, rules.DefaultCooldown, 7},
		{[]traffic.KeyField{ip, device}, 3 * rules.DefaultCooldown, 8},
	} {
		r := oracle.TrialRule{Limit: 1, Window: 5, TTL: 100, OnHit: true, Cooldown: int64(test.cooldown / time.Second), MaxLag: 60}
		b := newTryBench(t, tryRule(r, []traffic.KeyField{ip}, test.block))
		for at := range int64(4) {
			b.request(oracle.TrialRequest{At: at, Counted: true, Reach: true}, "192.0.2.1", "tv")
		}
		raw := b.p.Snapshot(nil)
		if raw[0] != test.want {
			t.Errorf("blocks of %d fields, cooldown %s: format %d, want %d", len(test.block), test.cooldown, raw[0], test.want)
		}
		p, err := detectors.Restore(b.cfg, raw)
		if err != nil {
			t.Fatal(err)
		}
		if again := p.Snapshot(nil); !slices.Equal(again, raw) {
			t.Errorf("blocks of %d fields, cooldown %s: restored it is written as something else", len(test.block), test.cooldown)
		}
		if test.want == 8 {
			golden(t, "snapshot-8.bin", raw)
		}
	}
}

// What a partition tells of a rule's block, at its own limit and at others, is what a naive judge finds who keeps every request: also
// across snapshots, where the rule is edited, and where a stream falls idle and ticks alone tell of time.
func TestTrialsAreThoseOfANaiveJudge(t *testing.T) {
	ip, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	shapes := []struct{ key, block []traffic.KeyField }{
		{[]traffic.KeyField{ip}, []traffic.KeyField{ip}},
		{[]traffic.KeyField{ip, device}, []traffic.KeyField{ip}},
		{[]traffic.KeyField{device, ip}, []traffic.KeyField{ip, device}},
		{[]traffic.KeyField{ip}, []traffic.KeyField{ip, device}},
	}
	found := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		shape := rapid.SampledFrom(shapes).Draw(rt, "shape")
		r := oracle.TrialRule{
			Limit: rapid.SampledFrom([]int{0, 1, 2, 3, 5, 20, 100, 130}).Draw(rt, "limit"), Window: rapid.Int64Range(1, 90).Draw(rt, "window"),
			Lateness: rapid.Int64Range(0, 30).Draw(rt, "lateness"), TTL: rapid.Int64Range(1, 300).Draw(rt, "ttl"),
			Cooldown: rapid.SampledFrom([]int64{1, 10, 60}).Draw(rt, "cooldown"), OnHit: rapid.Bool().Draw(rt, "on hit"),
			MaxLag: rapid.SampledFrom([]int64{5, 59, 61, 1000}).Draw(rt, "max_lag"), Tuples: len(shape.block) > len(shape.key), Idle: 61,
		}
		ticks := rapid.Bool().Draw(rt, "ticks")
		if ticks {
			r.Idle = 60 // they come at whole seconds
		}
		v := tryRule(r, shape.key, shape.block)
		b := newTryBench(t, v)
		b.every = rapid.SampledFrom([]int{0, 1, 7, 50}).Draw(rt, "snapshot every")
		var log []oracle.TrialRequest
		now, folded := int64(base/second), 0
		newest := r
		for range rapid.IntRange(1, 30).Draw(rt, "stretches") {
			if rapid.IntRange(0, 9).Draw(rt, "edited") == 0 {
				newest.TTL, newest.OnHit = rapid.Int64Range(1, 300).Draw(rt, "ttl"), rapid.Bool().Draw(rt, "on hit")
				v = tryRule(newest, shape.key, shape.block)
				b.version++
				v.Number = int(b.version)
				b.learn(v)
			}
			now += rapid.SampledFrom([]int64{0, 1, 2, 5, 20, 100, 400}).Draw(rt, "after")
			who := fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 3).Draw(rt, "ip"))
			what := rapid.SampledFrom([]string{"d", "e"}).Draw(rt, "device")
			gap := rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(rt, "gap")
			q := oracle.TrialRequest{Counted: rapid.IntRange(0, 4).Draw(rt, "counted") > 0, Reach: rapid.IntRange(0, 3).Draw(rt, "reach") > 0, Good: rapid.IntRange(0, 19).Draw(rt, "good") == 0}
			names := map[traffic.Field]string{traffic.FieldIP: who, traffic.FieldDevice: what}
			for _, k := range shape.key {
				q.Key += names[k.Field] + " "
			}
			for _, k := range shape.block {
				q.Subject += names[k.Field] + " "
			}
			for range rapid.SampledFrom([]int{1, 1, 2, 5, r.Limit + 1, r.Limit * 2}).Draw(rt, "requests") {
				now += gap
				q.At, q.Rule = now, nil
				if q.Counted || q.Reach { // the rule hears of it
					edited := newest
					q.Rule = &edited
				}
				log = append(log, q)
				if ticks {
					b.idle(now)
				}
				b.request(q, who, what)
				if folded++; b.every > 0 && folded%b.every == 0 {
					b.restart(v)
				}
			}
		}
		if told := r.Judge(log); !sameHolds(b.p.Holds(v.ID), told.Blocks, now, found) {
			rt.Fatalf("until second %d held are\n%v, wanted\n%v", now-int64(base/second), b.p.Holds(v.ID), told.Blocks)
		}
		b.end()
		for step, limit := range detectors.LimitLadder(r.Limit) {
			under := func(r oracle.TrialRule) oracle.TrialRule {
				r.Limit, r.Slices = limit, limit > detectors.SlidingExact
				return r
			}
			at, log := under(r), slices.Clone(log)
			for i := range log {
				if log[i].Rule != nil {
					edited := under(*log[i].Rule)
					log[i].Rule = &edited
				}
			}
			if r.Tuples && r.Limit <= detectors.SlidingExact && at.Slices {
				continue // where the rule's own window is exact and the tried one is not, a narrower block begins one request late
			}
			want := figures(at.Judge(log))
			got := minutesOf(b.hits, step)
			if step > 0 {
				for _, m := range []map[int64]oracle.TrialMinute{want, got} {
					for at, x := range m {
						x.RefusedGood = 0
						m[at] = x
					}
				}
			}
			if !maps.Equal(got, want) {
				rt.Fatalf("limit %d: minutes are\n%v, wanted\n%v", limit, got, want)
			}
		}
	})
	t.Logf("compared were %v", found) // how a closing hit lengthens is shown by TestVirtualBlocksAreExtended, too
	if found["made"] == 0 {
		t.Error("no block stood at any end: nothing was compared")
	}
}

// sameHolds compares the blocks that stand, from when on and until when, by what the clients of a block are called
// there.
func sameHolds(got map[string][2]traffic.Time, want map[string]*oracle.Blocks, now int64, found map[string]int) bool {
	standing := 0
	for _, b := range want {
		if len(b.Spans) == 0 || b.Spans[len(b.Spans)-1].Until <= now {
			continue
		}
		s := b.Spans[len(b.Spans)-1]
		standing++
		hold := [2]traffic.Time{traffic.Time(s.Begin) * second, traffic.Time(s.Until) * second}
		if !slices.Contains(slices.Collect(maps.Values(got)), hold) {
			return false
		}
		found["made"]++
		if b.Lengthened {
			found["lengthened"]++
		}
	}
	for _, hold := range got {
		if hold[1] > traffic.Time(now)*second {
			standing--
		}
	}
	return standing == 0
}

// idle folds the ticks of a router that has read everything, up to a second.
func (b *tryBench) idle(until int64) {
	for at := max(b.now/second+1, base/second); at <= traffic.Time(until); at++ {
		b.now = max(b.now, at*second)
		k := b.tick(0, b.top[0])
		k.Format, k.Idle, k.Clock = rules.EvidenceRecordFormat, true, at*second
		b.must(k)
	}
}

// restart writes the partition down and goes on from there.
func (b *tryBench) restart(v rules.Version) {
	raw := b.p.Snapshot(nil)
	p, err := detectors.Restore(b.cfg, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	if again := p.Snapshot(nil); !slices.Equal(again, raw) {
		b.t.Fatalf("a restored partition is written differently: %d and %d bytes", len(again), len(raw))
	}
	b.p = p
	b.learn(v)
}
