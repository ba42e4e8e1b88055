package detectors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// edited is a history of routing versions: each edits the rules of the one before it.
type edited struct {
	routings map[int64]*rules.Routing
	newest   int64
}

// drawEdits draws routing versions as a rule store makes them: what an edit leaves of windows is what rules.NextVersion says.
func drawEdits(t *rapid.T) *edited {
	e := &edited{routings: map[int64]*rules.Routing{}}
	var acting []rules.Version
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		d := rule(rapid.IntRange(0, 4).Draw(t, "limit"), time.Duration(rapid.IntRange(2, 40).Draw(t, "window"))*time.Second,
			time.Duration(rapid.IntRange(0, 40).Draw(t, "lateness"))*time.Second).Document
		d.ID, d.MaxLag, d.Cooldown, d.Block.TTL = fmt.Sprint("rule-", i), rules.DefaultMaxLag, 10*time.Second, time.Duration(rapid.IntRange(1, 200).Draw(t, "ttl"))*time.Second
		v, _ := rules.NextVersion(nil, d)
		acting = append(acting, v)
	}
	var resets []rules.Reset
	for e.newest++; ; e.newest++ {
		r := &rules.Routing{Stream: "live", Number: e.newest, RecordFormat: rules.EvidenceRecordFormat}
		for i := range acting {
			v := acting[i]
			if rapid.IntRange(0, 4).Draw(t, "raised") == 0 {
				v.Raised = &rules.Raise{Limit: v.Limit + 2, Until: base + traffic.Time(rapid.IntRange(1, 200).Draw(t, "until"))*second}
			}
			r.Rules = append(r.Rules, v)
			if rapid.IntRange(0, 3).Draw(t, "pending") == 0 {
				next := acting[i]
				next.Pending, next.Number, next.Lineage, next.Limit = true, next.Number+1, next.Lineage+1, next.Limit+1
				r.Rules = append(r.Rules, next)
				if rapid.Bool().Draw(t, "is promoted") { // and goes on with its windows in the next version
					next.Pending = false
					acting[i] = next
				}
			}
		}
		if e.newest > 1 && rapid.IntRange(0, 2).Draw(t, "reset") == 0 {
			x := rapid.SampledFrom(acting).Draw(t, "of")
			if slices.Equal(x.Key, byIP()) {
				resets = append(resets, rules.Reset{Rule: x.ID, Key: x.Key, Subject: subjectOf("192.0.2.1"), Since: e.newest})
			}
		}
		for _, x := range resets {
			r.Reset(x)
		}
		if e.routings[e.newest] = r; e.newest == 5 || rapid.IntRange(0, 4).Draw(t, "edits") == 0 {
			return e
		}
		for i := range acting {
			acting[i] = edit(t, acting[i])
		}
	}
}

func byIP() []traffic.KeyField { return []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}} }

// edit is the next version of a rule, with some of its members changed.
func edit(t *rapid.T, v rules.Version) rules.Version {
	d := v.Document
	if d.Block != nil {
		block := *d.Block
		d.Block = &block
	}
	device := traffic.KeyField{Field: traffic.FieldDevice}
	changes := map[string]func(){
		"limit":     func() { d.Limit = rapid.IntRange(0, 130).Draw(t, "limit") },
		"window":    func() { d.Window = time.Duration(rapid.IntRange(2, 40).Draw(t, "window")) * time.Second },
		"lateness":  func() { d.Lateness = time.Duration(rapid.IntRange(0, 40).Draw(t, "lateness")) * time.Second },
		"cooldown":  func() { d.Cooldown = time.Duration(rapid.IntRange(1, 30).Draw(t, "cooldown")) * time.Second },
		"algorithm": func() { d.Algorithm = rapid.SampledFrom(rules.Algorithms()).Draw(t, "algorithm") },
		"distinct":  func() { d.Algorithm, d.Count = rules.AlgorithmSliding, rules.Count{Distinct: &device} },
		"sum":       func() { d.Algorithm, d.Count = rules.AlgorithmSlidingLog, rules.Count{Sum: "attrs.cost"} },
		"events":    func() { d.Algorithm, d.Count = rules.AlgorithmSliding, rules.Count{} },
		"key":       func() { d.Key = rapid.SampledFrom([][]traffic.KeyField{byIP(), append(byIP(), device)}).Draw(t, "key") },
		"candidate": func() { d.Candidate = &rules.Candidate{Limit: d.Limit + rapid.IntRange(-2, 3).Draw(t, "candidate")} },
		"near":      func() { d.Near = 60 },
		"no block":  func() { d.Block = nil },
		"block": func() {
			d.Block = &rules.Block{Key: rapid.SampledFrom([][]traffic.KeyField{byIP(), append(byIP(), device)}).Draw(t, "block key"),
				TTL: time.Duration(rapid.IntRange(1, 200).Draw(t, "ttl")) * time.Second, Extend: rapid.SampledFrom([]rules.Extend{rules.ExtendNever, rules.ExtendOnHit}).Draw(t, "extend")}
		},
	}
	names := []string{"limit", "limit", "window", "lateness", "cooldown", "algorithm", "distinct", "sum", "events", "key", "candidate", "near", "no block", "block", "block"}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		changes[rapid.SampledFrom(names).Draw(t, "change")]()
	}
	if !slices.Contains(d.Algorithm.Counts(), d.Count.Kind()) {
		d.Count = rules.Count{}
	}
	if d.Candidate != nil && d.Candidate.Limit < 0 {
		d.Candidate = nil
	}
	if d.Algorithm == rules.AlgorithmTokenBucket || d.Algorithm == rules.AlgorithmLeakyBucket {
		d.Near, d.Limit = 0, max(d.Limit, 1)
	}
	next, _ := rules.NextVersion(&v, d)
	return next
}

// drawLog draws what routers write under the versions: mostly in order, of few sources.
func (e *edited) drawLog(t *rapid.T, b *bench) (out []logged) {
	now, version := base, int64(1)
	for range rapid.IntRange(1, 25).Draw(t, "stretches") {
		now += second * traffic.Time(rapid.SampledFrom([]int{0, 1, 1, 3, 20, 70, 400}).Draw(t, "after"))
		if rapid.IntRange(0, 3).Draw(t, "next version") == 0 {
			version = min(version+1, e.newest)
		}
		source, ip := rapid.IntRange(0, len(b.next)-1).Draw(t, "source"), fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 3).Draw(t, "ip"))
		device, of := rapid.SampledFrom([]string{"", "d", "e"}).Draw(t, "device"), version
		if rapid.IntRange(0, 5).Draw(t, "older") == 0 {
			of = max(1, version-1)
		}
		what, good := rapid.IntRange(0, 6).Draw(t, "what"), detectors.Good(rapid.IntRange(0, 2).Draw(t, "good"))
		for range rapid.SampledFrom([]int{1, 2, 4, 8, 30}).Draw(t, "events") {
			b.now = max(b.now, now)
			at := now - second*traffic.Time(rapid.SampledFrom([]int{0, 0, 0, 0, 5, 50}).Draw(t, "delay"))
			if k := e.event(b, source, at, ip, device, of, what); k.Kind != 0 {
				if what != hint {
					k.Good = good
				}
				b.now += 1000
				out = append(out, logged{b.now, k})
			}
			now += second / 4
		}
		if rapid.IntRange(0, 2).Draw(t, "tick") == 0 {
			s := rapid.IntRange(0, len(b.next)-1).Draw(t, "tick of")
			b.now += 1000
			out = append(out, logged{b.now, b.tick(s, b.top[s])})
		}
	}
	for s := range b.next {
		b.now += 1000
		out = append(out, logged{b.now, b.tick(s, traffic.EndOfTime)})
	}
	return out
}

// hint is what of an event that tells of a good source alone.
const hint = 6

// event is one that all rules count, or some of which the block alone reaches, or that tells of a good source alone.
func (e *edited) event(b *bench, source int, at traffic.Time, ip, device string, version int64, what int) detectors.Keyed {
	k := b.event(source, at, ip, version)
	k.Format, k.Identity.Device, k.Rules = rules.EvidenceRecordFormat, device, nil
	if what == hint {
		b.prev[source], k.Prev, k.Good = k.Prev, detectors.NoOffset, detectors.KnownGood
		return k
	}
	all := e.routings[version].Rules
	for i := range all {
		v := &all[i]
		switch lacks := device == "" && len(v.Key) > 1; {
		case lacks || what == 5 || what == 4 && i == 0:
			if v.Block != nil && !lacks {
				k.Reached = append(k.Reached, i)
			}
		case device == "" && v.Count.Kind() == rules.CountDistinct:
		default:
			k.Rules = append(k.Rules, i)
			k.Units = append(k.Units, int64(1+what))
			if v.Block != nil && what == 3 {
				k.Beyond = append(k.Beyond, i)
			}
		}
	}
	if len(k.Rules)+len(k.Reached) == 0 {
		b.prev[source] = k.Prev
		return detectors.Keyed{}
	}
	return k
}

// goOn folds a record as a detector does, which learns a routing version when a record names it.
func (e *edited) goOn(t *rapid.T, p *detectors.Partition, l *logged) []detectors.Hit {
	for {
		hits, err := p.Fold(l.appended, &l.keyed, nil)
		if unknown := (*detectors.UnknownVersionError)(nil); errors.As(err, &unknown) {
			p.Learn(detectors.NewPlan(e.routings[unknown.Version]))
			continue
		}
		if err != nil {
			t.Fatalf("folding %+v: %v", l.keyed, err)
		}
		return hits
	}
}

// A partition that is restored from its snapshot before every record, and so at any of them, tells what one tells that never stops, and ends
// in the same state: over edits, pending versions, resets, blocks under trial, running counts, and whatever was evicted.
func TestRestoredAnywhereGoesOnAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEdits(rt)
		b := newBench(t, rapid.IntRange(1, 2).Draw(rt, "sources"))
		b.now, b.cfg.Budget = base, rapid.SampledFrom([]int64{0, 0, 1 << 20, 60_000}).Draw(rt, "budget")
		log := e.drawLog(rt, b)
		steady, restored := detectors.NewPartition(b.cfg), detectors.NewPartition(b.cfg)
		for i := range log {
			raw := restored.Snapshot(nil)
			p, err := detectors.Restore(b.cfg, raw)
			if err != nil {
				rt.Fatalf("restoring before record %d: %v", i, err)
			}
			restored = p
			want, got := encode(t, e.goOn(rt, steady, &log[i])), encode(t, e.goOn(rt, restored, &log[i]))
			for n := range max(len(got), len(want)) {
				if n >= len(got) || n >= len(want) || got[n] != want[n] {
					rt.Fatalf("record %d, %+v:\n got %s\nwant %s", i, log[i].keyed, strings.Join(got[min(n, len(got)):], "\n     "), strings.Join(want[min(n, len(want)):], "\n     "))
				}
			}
			if x, y := restored.Snapshot(nil), steady.Snapshot(nil); !slices.Equal(x, y) {
				at := 0
				for at < min(len(x), len(y)) && x[at] == y[at] {
					at++
				}
				rt.Fatalf("the states differ after record %d, %+v, from byte %d of %d and %d on:\n got %q\nwant %q", i, log[i].keyed, at, len(x), len(y), x[max(0, at-60):min(len(x), at+20)], y[max(0, at-60):min(len(y), at+20)])
			}
		}
	})
}
