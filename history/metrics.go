package history

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// recordMetrics are shared by all recorders of a process, told apart by topic.
type recordMetrics struct {
	records *prometheus.CounterVec
	batches *prometheus.CounterVec
}

func newRecordMetrics(registry prometheus.Registerer) (*recordMetrics, error) {
	var m recordMetrics
	var err error
	m.records, err = registerCounter(registry, "weir_record_records_total",
		"Records of the hits and blocks topics by what became of them: stored, malformed or refused (both are in the dead letters).",
		"topic", "outcome")
	if err != nil {
		return nil, err
	}
	m.batches, err = registerCounter(registry, "weir_record_batches_total",
		"Batches given to RECORD: stored, or failed and to be given again.", "topic", "outcome")
	return &m, err
}

// registerCounter returns the counter that is registered already where there is one of the same description.
func registerCounter(registry prometheus.Registerer, name, help string, labels ...string) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	err := registry.Register(c)
	var taken prometheus.AlreadyRegisteredError
	if errors.As(err, &taken) {
		if existing, ok := taken.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("history: metric %s: %w", name, err)
	}
	return c, nil
}
