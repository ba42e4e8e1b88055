package turns

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// What came of a question that wanted a turn.
const (
	outcomeAtOnce = "at-once"
	outcomeWaited = "waited"
	outcomeOwn    = "own-busy" // refused: the actor's own ones took too long
	outcomeAll    = "all-busy" // refused: those of all did
	outcomeLeft   = "left"     // whoever asked had gone
)

type metrics struct{ turns *prometheus.CounterVec }

func newMetrics(to prometheus.Registerer, t *Turns) (*metrics, error) {
	m := &metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_console_turns_total", Help: "Questions to console and API that wanted a turn.",
	}, []string{"outcome"})}
	for _, outcome := range []string{outcomeAtOnce, outcomeWaited, outcomeOwn, outcomeAll, outcomeLeft} {
		m.turns.WithLabelValues(outcome)
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_console_questions", Help: "Questions to console and API that are being answered.",
	}, func() float64 { n, _ := t.under(); return float64(n) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_console_questions_waiting", Help: "Questions to console and API that wait for their turn.",
	}, func() float64 { _, n := t.under(); return float64(n) })
	for _, c := range []prometheus.Collector{m.turns, running, waiting} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// refused counts a question that was not asked.
func (m *metrics) refused(err error) {
	outcome := outcomeAll
	if busy := (*BusyError)(nil); errors.As(err, &busy) && busy.Own {
		outcome = outcomeOwn
	}
	m.turns.WithLabelValues(outcome).Inc()
}
