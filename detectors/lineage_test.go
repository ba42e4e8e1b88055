package detectors

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// keyedRouting has a rule for each key; of their paths, those of two rules in turn are the same.
func keyedRouting(keys [][]traffic.KeyField) *rules.Routing {
	r := &rules.Routing{Number: 1, RecordFormat: rules.LanguageRecordFormat}
	for i, key := range keys {
		r.Rules = append(r.Rules, rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: fmt.Sprintf("rule-%05d", i), Match: rules.Match{Path: fmt.Sprintf("/service-%d/{id}", i/2)}, Key: key, Limit: 10, Window: time.Minute,
		}})
	}
	return r
}

// Rules share fingerprints exactly where their keys are the same set of fields, found in the same places.
func TestRulesShareFingerprintsByKey(t *testing.T) {
	ip, wide := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 64}
	device, id := traffic.KeyField{Field: traffic.FieldDevice}, traffic.KeyField{Field: traffic.FieldParam, Name: "id"}
	host := traffic.KeyField{Field: traffic.FieldHost}
	either := traffic.KeyField{Field: traffic.FieldFallback, Name: "{id}|ip", V4: 32, V6: 64}
	r := keyedRouting([][]traffic.KeyField{
		{ip, device}, {device, ip}, {wide, device}, {ip}, // 0 to 3
		{ip, id}, {id, ip}, {ip, id}, {id, ip}, // 4 and 5 of one path, 6 and 7 of another
		{either}, {either}, {host, ip}, {ip, host}, {either}, {}, {},
	})
	p := NewPartition(Config{})
	p.Learn(NewPlan(r))
	for i, want := range []int{0, 0, 2, 3, 4, 4, 6, 6, 8, 8, 10, 10, 12, 13, 13} {
		if got := p.routings.get(1).bindings[i].group; got != want {
			t.Errorf("rule %d: group %d, want %d", i, got, want)
		}
	}
}

// What is the same for all partitions is worked out once: a partition keeps places of its own alone.
func TestPartitionsShareAPlan(t *testing.T) {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	r := keyedRouting([][]traffic.KeyField{{ip}, {{Field: traffic.FieldHost}}})
	r.Rules[0].Near = 50
	plan := NewPlan(r)
	a, b := NewPartition(Config{}), NewPartition(Config{Keyed: 1})
	a.Learn(plan)
	b.Learn(plan)
	for i := range r.Rules {
		x, y := &a.routings.get(1).bindings[i], &b.routings.get(1).bindings[i]
		if x.planned != y.planned || x.lineage == y.lineage || len(x.beside) != len(y.beside) {
			t.Fatalf("rule %d: %+v and %+v", i, x, y)
		}
	}
	if x, y := a.routings.get(1).bindings[0].beside[0], b.routings.get(1).bindings[0].beside[0]; x.planned != y.planned || x.lineage == y.lineage || x.lineage.id != "rule-00000/1~near" {
		t.Errorf("beside: %+v and %+v", x, y)
	}
	many := NewPlan(keyedRouting(make([][]traffic.KeyField, 1000)))
	a.Learn(many)
	if n := testing.AllocsPerRun(5, func() { a.Learn(many) }); n > 100 {
		t.Errorf("%v allocations for 1000 rules that are known", n)
	}
}

// BenchmarkPlan is what a detector does once with an edited rule set.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			r := keyedRouting(distinctKeys(n))
			b.ReportAllocs()
			for b.Loop() {
				NewPlan(r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}

func distinctKeys(n int) [][]traffic.KeyField {
	keys := make([][]traffic.KeyField, n)
	for i := range keys {
		keys[i] = []traffic.KeyField{{Field: traffic.FieldParam, Name: "id"}, {Field: traffic.FieldAttr, Name: fmt.Sprintf("tenant%d", i)}}
	}
	return keys
}

// BenchmarkLearn is what each keyed partition does with an edited rule set: ten times the rules shall take ten times as long. It
// knows as many versions as it keeps.
func BenchmarkLearn(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			r := keyedRouting(distinctKeys(n))
			p := NewPartition(Config{})
			for range KeptRoutings {
				r.Number++
				p.Learn(NewPlan(r))
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				r.Number++
				plan := NewPlan(r)
				b.StartTimer()
				p.Learn(plan)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}
