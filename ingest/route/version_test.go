package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// diverseRouting has n rules of which each has a dimension, and fields beside the identity, of its own.
func diverseRouting(n int, when string) *rules.Routing {
	r := watchRouting()
	r.RecordFormat, r.Rules = rules.LanguageRecordFormat, nil
	for i := range n {
		r.Rules = append(r.Rules, rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: fmt.Sprintf("rule-%05d", i), Owner: "tests", Match: rules.Match{Path: fmt.Sprintf("/service-%d/{id}", i), When: when},
			Key:     []traffic.KeyField{{Field: traffic.FieldParam, Name: "id"}, {Field: traffic.FieldAttr, Name: fmt.Sprintf("attrs.tenant%d", i)}},
			Missing: rules.MissingSkip, Limit: 10, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		}})
	}
	return r
}

// Rules have one dimension exactly where they find its values in the same places.
func TestDimensionsAreThoseOfTheFirstFields(t *testing.T) {
	r := diverseRouting(3, "")
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	r.Rules[1].Match = r.Rules[0].Match // so that {id} is that of the first rule
	for i, key := range [][]traffic.KeyField{{ip}, {ip, {Field: traffic.FieldHost}}, {{Field: traffic.FieldIP, V4: 24, V6: 64}}, {}, {{Field: traffic.FieldFallback, Name: "{id}|ip", V4: 32, V6: 64}}} {
		v := r.Rules[0]
		v.ID, v.Key = fmt.Sprintf("s%d", i), key
		r.Rules = append(r.Rules, v)
	}
	v := compiled(t, routedOptions(true), r)
	for i, want := range []int{0, 0, 1, 2, 2, 3, ruleDimension, 4} {
		if got := v.rules[i].dimension; got != want {
			t.Errorf("rule %s: dimension %d, want %d", v.rules[i].id, got, want)
		}
	}
	if len(v.dimensions) != 5 {
		t.Errorf("%d dimensions", len(v.dimensions))
	}
}

// BenchmarkCompile is what a router does before it can go on under an edited rule set: ten times the rules shall take ten times
// as long.
func BenchmarkCompile(b *testing.B) {
	for _, when := range []string{"", `event.status == 402 && event.attrs.model.startsWith("large")`} {
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("when=%t/rules=%d", when != "", n), func(b *testing.B) {
				r, opt := diverseRouting(n, when), routedOptions(true)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := compile(r, opt); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
			})
		}
	}
}
