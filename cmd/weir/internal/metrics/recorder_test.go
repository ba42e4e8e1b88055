package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is what a registry says of one, beside its series.
type metric struct {
	name, kind, help string
	labels           []string
}

// recorder is a registry that remembers what was registered with it, since a description does not tell the type of a metric,
// and a vector without series shows none.
type recorder struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

func newRecorder() *recorder { return &recorder{Registry: prometheus.NewRegistry()} }

var _ prometheus.Registerer = (*recorder)(nil)

// Register implements prometheus.Registerer.
func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(all ...prometheus.Collector) {
	r.collectors = append(r.collectors, all...)
	r.Registry.MustRegister(all...)
}

// metrics are all that were registered.
func (r *recorder) metrics(t *testing.T) []metric {
	t.Helper()
	var all []metric
	for _, c := range r.collectors {
		kinds := kindsOf(t, c)
		for _, d := range described(t, c) {
			if d.kind = kinds[d.name]; d.kind == "" {
				d.kind = kindOf(c, d.name)
			}
			if !slices.ContainsFunc(all, func(m metric) bool { return m.name == d.name }) {
				all = append(all, d)
			}
		}
	}
	return all
}

// kindsOf gives the types of the metrics that a collector shows now, by name.
func kindsOf(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	kinds := map[string]string{}
	drain(c.Collect, func(m prometheus.Metric) {
		var shown dto.Metric
		if err := m.Write(&shown); err != nil {
			t.Fatal(err)
		}
		kind := "untyped"
		switch {
		case shown.Counter != nil:
			kind = "counter"
		case shown.Gauge != nil:
			kind = "gauge"
		case shown.Histogram != nil:
			kind = "histogram"
		case shown.Summary != nil:
			kind = "summary"
		}
		kinds[parseDesc(t, m.Desc()).name] = kind
	})
	return kinds
}

// kindOf is the type of a metric that has no series. Of collectors of our own the name says it: promtool holds them to that.
func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.SummaryVec:
		return "summary"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

func described(t *testing.T, c prometheus.Collector) []metric {
	t.Helper()
	var all []metric
	drain(c.Describe, func(d *prometheus.Desc) { all = append(all, parseDesc(t, d)) })
	return all
}

// drain gives to take what send sends.
func drain[T any](send func(chan<- T), take func(T)) {
	sent := make(chan T)
	go func() {
		defer close(sent)
		send(sent)
	}()
	for v := range sent {
		take(v)
	}
}

// descPattern is how client_golang prints a description, which shows its parts in no other way.
var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[a-z]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func parseDesc(t *testing.T, d *prometheus.Desc) metric {
	t.Helper()
	parts := descPattern.FindStringSubmatch(d.String())
	if parts == nil {
		t.Fatalf("cannot read %s", d)
	}
	name, err := strconv.Unquote(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	help, err := strconv.Unquote(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	m := metric{name: name, help: help}
	for _, constant := range regexp.MustCompile(`([a-zA-Z_]+)="`).FindAllStringSubmatch(parts[3], -1) {
		m.labels = append(m.labels, constant[1])
	}
	if parts[4] != "" {
		m.labels = append(m.labels, strings.Split(parts[4], ",")...)
	}
	slices.Sort(m.labels)
	return m
}

// exposition is a page on which each metric has one series, with every label.
func exposition(all []metric) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, l+`="x"`)
		}
		if m.kind == "histogram" {
			bucket := strings.Join(append(slices.Clone(labels), `le="+Inf"`), ",")
			fmt.Fprintf(&b, "%s_bucket{%s} 1\n%s_sum{%s} 1\n%s_count{%s} 1\n", m.name, bucket, m.name, strings.Join(labels, ","), m.name, strings.Join(labels, ","))
			continue
		}
		fmt.Fprintf(&b, "%s{%s} 1\n", m.name, strings.Join(labels, ","))
	}
	return b.String()
}
