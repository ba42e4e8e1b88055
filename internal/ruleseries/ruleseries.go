// Package ruleseries keeps Prometheus series by rule. Rules are bounded by configuration, but over years many come and go:
// the series of a rule begin when it comes, at 0, so that a rate sees its first event, and are gone with it.
package ruleseries

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// ruleLabel is the first label of all metrics by rule.
const ruleLabel = "rule"

// Rules is the set of the rules that are there, and the collector of the metrics whose series follow it. It is safe for
// concurrent use; a scrape sees the set before a change or after it.
type Rules struct {
	mu      sync.RWMutex
	present map[string]bool
	metrics []metric
}

var _ prometheus.Collector = (*Rules)(nil)

// metric is what Rules asks of each of its metrics. The caller holds the lock.
type metric interface {
	prometheus.Collector
	come(rule string)
	gone(rule string)
}

// New returns an empty set without metrics. All metrics are to be made before it is registered.
func New() *Rules { return &Rules{present: map[string]bool{}} }

// Counters makes a counter by rule and then labels. Each rule begins with a series at 0 for each of begin, which are values
// of labels; series of other values come when Of asks for them.
func (r *Rules) Counters(opts prometheus.CounterOpts, labels []string, begin ...[]string) *Series[prometheus.Counter] {
	v := prometheus.NewCounterVec(opts, append([]string{ruleLabel}, labels...))
	return enter(r, v, begin, func() prometheus.Counter { return prometheus.NewCounter(opts) })
}

// Gauges makes a gauge, as Counters makes a counter.
func (r *Rules) Gauges(opts prometheus.GaugeOpts, labels []string, begin ...[]string) *Series[prometheus.Gauge] {
	v := prometheus.NewGaugeVec(opts, append([]string{ruleLabel}, labels...))
	return enter(r, v, begin, func() prometheus.Gauge { return prometheus.NewGauge(opts) })
}

// Keep says which rules there are: series of new ones begin, those of all others are deleted. What Of has resolved before is
// to be resolved again.
func (r *Rules) Keep(rules []string) {
	wanted := make(map[string]bool, len(rules))
	for _, rule := range rules {
		wanted[rule] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for rule := range r.present {
		if wanted[rule] {
			continue
		}
		delete(r.present, rule)
		for _, m := range r.metrics {
			m.gone(rule)
		}
	}
	for rule := range wanted {
		if r.present[rule] {
			continue
		}
		r.present[rule] = true
		for _, m := range r.metrics {
			m.come(rule)
		}
	}
}

// Describe implements prometheus.Collector.
func (r *Rules) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range r.metrics {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (r *Rules) Collect(ch chan<- prometheus.Metric) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, m := range r.metrics {
		m.Collect(ch)
	}
}

// Series are the series of one metric.
type Series[M any] struct {
	rules *Rules
	vec   vec[M]
	begin [][]string
	spare func() M // makes a series that is not published
}

// vec is what the vectors of client_golang have in common.
type vec[M any] interface {
	prometheus.Collector
	WithLabelValues(values ...string) M
	DeletePartialMatch(labels prometheus.Labels) int
}

func enter[M any](r *Rules, v vec[M], begin [][]string, spare func() M) *Series[M] {
	s := &Series[M]{rules: r, vec: v, begin: begin, spare: spare}
	r.metrics = append(r.metrics, s)
	return s
}

// Of resolves the series of a rule and values. Resolving costs a look-up and a lock: where events are counted, its answer is
// kept until the rules change. For a rule that is not there it is a series that nobody sees, so that what is told late of a
// rule that is gone does not bring its series back.
func (s *Series[M]) Of(rule string, values ...string) M {
	s.rules.mu.RLock()
	defer s.rules.mu.RUnlock()
	return s.of(rule, values)
}

// Only is Of, and deletes all other series of the rule: for a metric that says something about the rule in its labels.
func (s *Series[M]) Only(rule string, values ...string) M {
	s.rules.mu.Lock()
	defer s.rules.mu.Unlock()
	s.gone(rule)
	return s.of(rule, values)
}

func (s *Series[M]) of(rule string, values []string) M {
	if !s.rules.present[rule] {
		return s.spare()
	}
	return s.vec.WithLabelValues(append([]string{rule}, values...)...)
}

func (s *Series[M]) come(rule string) {
	for _, values := range s.begin {
		s.of(rule, values)
	}
}

func (s *Series[M]) gone(rule string) { s.vec.DeletePartialMatch(prometheus.Labels{ruleLabel: rule}) }

// Describe implements prometheus.Collector.
func (s *Series[M]) Describe(ch chan<- *prometheus.Desc) { s.vec.Describe(ch) }

// Collect implements prometheus.Collector.
func (s *Series[M]) Collect(ch chan<- prometheus.Metric) { s.vec.Collect(ch) }
