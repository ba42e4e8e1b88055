package gate

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// timedEvery is how many checks there are to one that is timed: reading the clock twice costs as much as a check.
const timedEvery = 64

type metrics struct {
	checks    atomic.Uint64
	decisions *decisions
	untold    prometheus.Counter
	notHTTP   prometheus.Counter
	tooLarge  prometheus.Counter
	noAddress [traffic.NumMissingReasons]prometheus.Counter
	repeated  [traffic.NumFields]prometheus.Counter
	duration  prometheus.Histogram
}

// next counts a check and returns its number.
func (m *metrics) next() uint64 { return m.checks.Add(1) }

func newMetrics(to prometheus.Registerer, observing func() bool, blocking func() []string, clock func() traffic.Time) (*metrics, error) {
	noAddress := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_gate_no_address_total", Help: "Requests whose client address could not be told, by reason.",
	}, []string{"reason"})
	missing := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_gate_missing_total",
		Help: "Requests that carry an identity in a way that says nobody's, by field and reason: repeated, its header has several lines.",
	}, []string{"field", "reason"})
	malformed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_gate_malformed_total",
		Help: "Checks that were refused since they could not be read: no HTTP (not_http), or more than 2 MiB to look at (too_large).",
	}, []string{"reason"})
	m := &metrics{
		decisions: newDecisions(blocking, clock),
		notHTTP:   malformed.WithLabelValues(notHTTP),
		tooLarge:  malformed.WithLabelValues(tooLarge),
		untold: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_gate_untold_total",
			Help: "Checks of nginx that lacked X-Original-Method, X-Original-URI or X-Original-Host: no block that is about what is missing holds such a request."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_gate_check_seconds", Help: "Time of a check, of one in 64.",
			Buckets: []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 1e-4, 1e-3, 1e-2}}),
	}
	for why := range m.noAddress {
		if reason := traffic.MissingReason(why); reason.Concerns(traffic.FieldIP) {
			m.noAddress[why] = noAddress.WithLabelValues(reason.String())
		} else {
			m.noAddress[why] = prometheus.NewCounter(prometheus.CounterOpts{}) // not published: no address is missing for that reason
		}
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		m.repeated[f] = missing.WithLabelValues(f.String(), traffic.MissingRepeated.String())
	}
	observes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_gate_observing", Help: "1 while the gate observes, which refuses nobody; 0 while it holds what is blocked."},
		func() float64 {
			if observing() {
				return 1
			}
			return 0
		})
	for _, c := range []prometheus.Collector{m.decisions, noAddress, missing, malformed, m.untold, m.duration, observes} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
