package ingest

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Published registers c and returns it, or the same metric that another part of the process has registered before.
// The first failure is kept in failed.
func Published[C prometheus.Collector](r prometheus.Registerer, c C, failed *error) C {
	if r == nil || *failed != nil {
		return c
	}
	err := r.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		*failed = fmt.Errorf("registering metrics: %w", err)
	}
	return c
}

// UncountedOpts describe the counter of the events that a stage leaves out of a rule, by rule and reason.
func UncountedOpts(stage string) prometheus.CounterOpts {
	return prometheus.CounterOpts{
		Name: "weir_rule_uncounted_events_total", ConstLabels: prometheus.Labels{"stage": stage},
		Help: "Events that a rule watches and that feed none of its windows.",
	}
}
