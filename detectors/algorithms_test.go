package detectors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// everyRule is a rule of each legal pair of algorithm and count, of each form that its state takes: exact and not.
func everyRule(limit int, window, lateness time.Duration) []rules.Version {
	var out []rules.Version
	add := func(a rules.Algorithm, count rules.Count, limit int, change func(*rules.Version)) {
		v := rule(limit, window, lateness)
		v.ID = fmt.Sprintf("r%02d-%s-%s", len(out), a, count.Kind())
		v.Algorithm, v.Count = a, count
		if change != nil {
			change(&v)
		}
		out = append(out, v)
	}
	device := rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldDevice}}
	for _, a := range rules.Algorithms() {
		for _, kind := range a.Counts() {
			count := map[rules.CountKind]rules.Count{rules.CountDistinct: device, rules.CountSum: {Sum: "attrs.cost"}}[kind]
			add(a, count, limit, nil)
		}
	}
	add(rules.AlgorithmSliding, rules.Count{}, detectors.SlidingExact+1, nil)
	add(rules.AlgorithmSliding, device, detectors.SlidingExact+1, nil)
	add(rules.AlgorithmSlidingLog, rules.Count{}, 300, nil)
	add(rules.AlgorithmTokenBucket, rules.Count{}, limit, func(v *rules.Version) { v.Burst = 2*limit + 1 })
	add(rules.AlgorithmFixed, rules.Count{}, limit, func(v *rules.Version) {
		v.Block.Key = []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}}
	})
	return out
}

// many drives one partition with all rules of a routing version at once.
type many struct {
	*bench
	rules []rules.Version
}

func newMany(t testing.TB, sources int, budget int64, versions []rules.Version) *many {
	b := newBench(t, sources)
	b.cfg.Budget = budget
	b.p = detectors.NewPartition(b.cfg)
	m := &many{b, versions}
	m.learn(b.p)
	return m
}

func (m *many) learn(p *detectors.Partition) {
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: m.rules}))
}

// send folds an event for all rules; it is so many units.
func (m *many) send(source int, at traffic.Time, ip, device string, units int64) {
	k := m.event(source, at, ip, 1)
	k.Identity.Device = device
	k.Rules = nil
	for i := range m.rules {
		k.Rules = append(k.Rules, i)
		k.Units = append(k.Units, units)
	}
	m.must(k)
}

// everyAlgorithm has folded some events of a few keys under every rule: also late ones, and enough for each form.
func everyAlgorithm(t testing.TB) *many {
	m := newMany(t, 2, 0, everyRule(2, 10*time.Second, 40*time.Second))
	for i := range 700 {
		at := origin + traffic.Time(i)*second/20
		if i%9 == 8 {
			at -= 25 * second
		}
		m.send(i%2, at, fmt.Sprintf("192.0.2.%d", 1+i%3), fmt.Sprintf("d%d", i/2), int64(1+i%4))
	}
	m.must(m.tick(1, m.top[1]))
	return m
}
