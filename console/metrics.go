package console

import "github.com/prometheus/client_golang/prometheus"

// Why a request or a viewer is turned away.
const (
	refusedHost = "host" // asked for under a name that is not this server's
	refusedFull = "full" // as many viewers as there may be
)

type metrics struct {
	reads   *prometheus.CounterVec // store, outcome
	refused *prometheus.CounterVec // reason
	dropped prometheus.Counter
}

func newMetrics(to prometheus.Registerer, h *hub) (*metrics, error) {
	m := &metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_console_reads_total", Help: "Times that the console read a store."}, []string{"store", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_console_refused_total", Help: "Requests that the console turned away."}, []string{"reason"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_console_dropped_viewers_total", Help: "Viewers that did not take what they were sent."}),
	}
	viewers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_console_viewers", Help: "Open streams of the console."},
		func() float64 { return float64(h.count()) })
	for _, c := range []prometheus.Collector{m.reads, m.refused, m.dropped, viewers} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) read(store string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.reads.WithLabelValues(store, outcome).Inc()
}
