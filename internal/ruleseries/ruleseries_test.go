package ruleseries_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/internal/ruleseries"
)

// expose compares all that is published with what is wanted, in the text format without help.
func expose(t *testing.T, reg *prometheus.Registry, want ...string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got = append(got, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("published:\n%s\nwant:\n%s", g, w)
	}
}

func TestSeriesFollowTheRules(t *testing.T) {
	rules := ruleseries.New()
	hits := rules.Counters(prometheus.CounterOpts{Name: "hits_total", Help: "Hits."}, []string{"phase"}, []string{"open"}, []string{"closed"})
	open := rules.Gauges(prometheus.GaugeOpts{Name: "open", Help: "Open."}, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(rules)
	expose(t, reg)

	rules.Keep([]string{"a", "b"})
	first := hits.Of("a", "open")
	first.Inc()
	hits.Of("a", "merged").Add(3)
	open.Of("b").Set(7)
	hits.Of("unknown", "open").Inc()
	expose(t, reg, "hits_total{phase=closed,rule=a} 0", "hits_total{phase=closed,rule=b} 0", "hits_total{phase=merged,rule=a} 3",
		"hits_total{phase=open,rule=a} 1", "hits_total{phase=open,rule=b} 0", "open{rule=a} 0", "open{rule=b} 7")

	rules.Keep([]string{"b", "c"})
	first.Inc()
	hits.Of("a", "open").Inc()
	open.Of("a").Set(1)
	expose(t, reg, "hits_total{phase=closed,rule=b} 0", "hits_total{phase=closed,rule=c} 0",
		"hits_total{phase=open,rule=b} 0", "hits_total{phase=open,rule=c} 0", "open{rule=b} 7", "open{rule=c} 0")

	rules.Keep([]string{"a"})
	expose(t, reg, "hits_total{phase=closed,rule=a} 0", "hits_total{phase=open,rule=a} 0", "open{rule=a} 0")
	rules.Keep(nil)
	expose(t, reg)
}

func TestOnlyOneSeriesOfARule(t *testing.T) {
	rules := ruleseries.New()
	info := rules.Gauges(prometheus.GaugeOpts{Name: "info", Help: "Info."}, []string{"mode"})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(rules)
	rules.Keep([]string{"a", "b"})
	expose(t, reg)
	info.Only("a", "shadow").Set(1)
	info.Only("b", "shadow").Set(1)
	info.Only("a", "block").Set(1)
	info.Only("gone", "block").Set(1)
	expose(t, reg, "info{mode=block,rule=a} 1", "info{mode=shadow,rule=b} 1")
}

// TestScrapesSeeWholeChanges scrapes while the rules change: no scrape sees a rule in one metric and not in the other.
func TestScrapesSeeWholeChanges(t *testing.T) {
	rules := ruleseries.New()
	rules.Counters(prometheus.CounterOpts{Name: "one_total", Help: "One."}, nil, nil)
	info := rules.Gauges(prometheus.GaugeOpts{Name: "two", Help: "Two."}, []string{"mode"}, []string{"shadow"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 500 {
			rules.Keep([]string{fmt.Sprint(i), fmt.Sprint(i + 1)})
			info.Only(fmt.Sprint(i), "block").Set(1)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if n := testutil.CollectAndCount(rules); n != 4 && n != 0 {
			t.Fatalf("a scrape sees %d series, want 2 rules in 2 metrics", n)
		}
	}
}
