package service

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Registry is what a process serves at /metrics. What is registered with it carries the namespace of the installation as label, so
// that one Prometheus can watch several, and whether it is of the live stream or of a replay, which is always behind the clock and must
// wake nobody; Go's and the process's own metrics do not.
type Registry struct {
	*prometheus.Registry
	own prometheus.Registerer
}

var _ prometheus.Registerer = (*Registry)(nil)

// Values of the label stream. Somebody chooses the name of a replay, so there would be any number of series by names.
const (
	streamLive   = "live"
	streamReplay = "replay"
)

// NewRegistry makes the registry of a process of the live stream, with Go's and the process's metrics and the version of the build.
func NewRegistry(version, namespace string) *Registry {
	return newRegistry(version, namespace, streamLive)
}

// NewReplayRegistry makes the registry of a process that runs a replay. None does both.
func NewReplayRegistry(version, namespace string) *Registry {
	return newRegistry(version, namespace, streamReplay)
}

func newRegistry(version, namespace, stream string) *Registry {
	all := prometheus.NewRegistry()
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r := &Registry{all, prometheus.WrapRegistererWith(prometheus.Labels{"namespace": namespace, "stream": stream}, all)}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1, with the version of this build.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	}, func() float64 { return 1 }))
	return r
}

// Register implements prometheus.Registerer.
func (r *Registry) Register(c prometheus.Collector) error { return r.own.Register(c) }

// MustRegister implements prometheus.Registerer.
func (r *Registry) MustRegister(all ...prometheus.Collector) { r.own.MustRegister(all...) }

// Unregister implements prometheus.Registerer.
func (r *Registry) Unregister(c prometheus.Collector) bool { return r.own.Unregister(c) }
