package rulestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// BenchmarkApply stores n new rules, then an edit of one of them, with allow lists that they name. Ten times the rules shall take
// ten times as long. What the process spends is reported beside what PostgreSQL and the way there take.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var docs []rules.Document
			var opts rulestore.ApplyOptions
			for i := range n / 50 {
				opts.AllowLists = append(opts.AllowLists, rules.AllowList{ID: fmt.Sprintf("list-%03d", i), Owner: "tests",
					Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: fmt.Sprintf("192.0.2.%d/32", i), Reason: "a probe"}}})
			}
			for i := range n {
				d := historytest.Document(fmt.Sprintf("rule-%05d", i))
				d.Match.Path = fmt.Sprintf("/service-%d/{id}", i)
				d.Allow = []string{fmt.Sprintf("list-%03d", i/50)}
				docs = append(docs, d)
			}
			var stored, edited time.Duration
			for b.Loop() {
				b.StopTimer()
				bed := historytest.New(b)
				bed.Publish(b, rules.Format{Name: "weir"})
				b.StartTimer()
				begun := time.Now()
				if _, err := bed.Rules.Apply(b.Context(), rulestore.WithSources(&rules.Set{Rules: docs}), "ann", "", opts); err != nil {
					b.Fatal(err)
				}
				stored += time.Since(begun)
				begun = time.Now()
				docs[n/2].Limit++
				if _, err := bed.Rules.Apply(b.Context(), rulestore.WithSources(&rules.Set{Rules: docs}), "ann", "", opts); err != nil {
					b.Fatal(err)
				}
				edited += time.Since(begun)
			}
			b.ReportMetric(float64(stored.Nanoseconds())/float64(b.N)/float64(n), "ns/stored-rule")
			b.ReportMetric(float64(edited.Nanoseconds())/float64(b.N)/float64(n), "ns/rule-of-an-edit")
		})
	}
}
