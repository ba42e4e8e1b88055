package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SetObserve makes the gate observe from the next check on, or hold again: what Options.Observe says at its start. It may
// be called at any time. A gate whose ObserveFile exists observes whatever was set here.
func (g *Gate) SetObserve(on bool) { g.observe.Store(on) }

// Observing reports whether the gate lets everything pass, and says what it would have refused.
func (g *Gate) Observing() bool { return g.observe.Load() || g.fileSaysSo.Load() }

// observeFileInterval is how often the file is looked for: it takes effect within a second, also on a busy machine.
const observeFileInterval = 250 * time.Millisecond

// ObserveFile makes a Gate observe for as long as a file exists: the way out that needs nothing but the gate's own machine,
// with Redis, Kafka and Postgres down. Whether there is anything in the file makes no difference.
type ObserveFile struct {
	gate     *Gate
	path     string
	log      *slog.Logger
	stat     func(path string) error
	failing  bool
	failures prometheus.Counter
}

// NewObserveFile looks for the file at path once, so that the gate's first check knows of it; Run goes on with that.
func NewObserveFile(g *Gate, path string) (*ObserveFile, error) {
	if path == "" {
		return nil, errors.New("gate: observe file: the path is empty")
	}
	f := &ObserveFile{
		gate: g, path: path, log: g.o.Logger,
		stat: func(path string) error { _, err := os.Stat(path); return err },
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_gate_observe_file_failures_total", Help: "Looks for the file that makes the gate observe which could not tell whether it exists."}),
	}
	if err := g.o.Registerer.Register(f.failures); err != nil {
		return nil, fmt.Errorf("gate: observe file: %w", err)
	}
	f.look()
	return f, nil
}

// Run looks for the file until ctx is done, and then returns nil.
func (f *ObserveFile) Run(ctx context.Context) error {
	ticker := time.NewTicker(observeFileInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			f.look()
		}
	}
}

// look follows the file. While its existence cannot be determined, the gate stays as it is: losing a permission, or getting
// one, must neither let abusers in nor refuse people.
func (f *ObserveFile) look() {
	err := f.stat(f.path)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.failures.Inc()
		if !f.failing {
			f.log.Error("it cannot be told whether the file that makes the gate observe exists; the gate goes on as it does",
				"observing", f.gate.Observing(), "error", err)
		}
		f.failing = true
		return
	}
	if f.failing {
		f.log.Info("the file that makes the gate observe can be looked for again", "path", f.path)
	}
	f.failing = false
	if f.gate.fileSaysSo.Swap(exists) == exists {
		return
	}
	if exists {
		f.log.Warn("the gate observes and refuses nobody: its file says so", "path", f.path)
	} else {
		f.log.Warn("the file that made the gate observe is gone", "path", f.path, "observing", f.gate.Observing())
	}
}
