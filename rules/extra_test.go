package rules

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// diverseRouting has n rules of which each has extra fields of its own: what compares rules with each other compares most here.
func diverseRouting(n int) *Routing {
	r := &Routing{
		Stream: "live", Number: 1, RecordFormat: LanguageRecordFormat, SecretID: "s", Identity: traffic.DefaultIdentityMap(),
		Format: Format{Name: "weir", MaxEventBytes: 1 << 20},
	}
	for i := range n {
		r.Rules = append(r.Rules, Version{Number: 1, Lineage: 1, Document: Document{
			ID: fmt.Sprintf("rule-%05d", i), Owner: "tests", Match: Match{Methods: []string{"GET"}, Path: fmt.Sprintf("/service-%d/{id}", i)},
			Key: []traffic.KeyField{
				{Field: traffic.FieldParam, Name: "id"}, {Field: traffic.FieldAttr, Name: fmt.Sprintf("tenant%d", i)}, {Field: traffic.FieldIP, V4: 32, V6: 64},
			},
			Missing: MissingSkip, Limit: 10, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute,
		}})
	}
	return r
}

// Fields are one exactly where a comparison with all others says so.
func TestExtrasAreThoseOfComparison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Routing{}
		for range rapid.IntRange(1, 12).Draw(t, "rules") {
			some := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "one") }
			m := Match{Path: some("", "/a/{id}", `/a" "b/{id}`), PathAs: PathAs(some("", "raw")), PathCase: PathCase(some("", "ignore"))}
			if m.Path == "" {
				m.Paths = []string{some("/a/{id}", "/b/{id}"), some("/a/{id}", "/c/{id}")}
			}
			d := Document{Match: m, Key: []traffic.KeyField{
				{Field: traffic.FieldParam, Name: some("id", "no")}, {Field: traffic.FieldAttr, Name: some("a", "b")}, {Field: traffic.FieldFallback, Name: some("host|{id}", "route|{no}")},
			}}
			r.Rules = append(r.Rules, Version{Document: d})
		}
		x := r.Extras()
		for i, f := range x.Fields {
			for j, g := range x.Fields[:i] {
				if f.Field == g.Field && (f.Field.Field != traffic.FieldParam || f.match.samePaths(g.match)) {
					t.Fatalf("fields %d and %d are both %+v of %+v", j, i, f.Field, f.match)
				}
			}
		}
		for i, uses := range x.ByRule {
			for _, u := range uses {
				f := x.Fields[u.Index]
				if f.Field != u.Field || f.Field.Field == traffic.FieldParam && !f.match.samePaths(&r.Rules[i].Match) {
					t.Fatalf("rule %d uses %+v, which is %+v of %+v", i, u, f.Field, f.match)
				}
			}
		}
	})
}

// BenchmarkRouting is what every process does with a routing version, by steps: ten times the rules shall take ten times as long.
func BenchmarkRouting(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		r := diverseRouting(n)
		text, err := r.Encode()
		if err != nil {
			b.Fatal(err)
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"extras", func() error { r.Extras(); return nil }},
			{"index", func() error { r.Index(); return nil }},
			{"validate", r.Validate},
			{"encode", func() error { _, err := r.Encode(); return err }},
			{"decode", func() error { _, err := DecodeRouting(text); return err }},
		} {
			b.Run(fmt.Sprintf("%s/rules=%d", step.name, n), func(b *testing.B) {
				for b.Loop() {
					if err := step.do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
			})
		}
	}
}
