package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/serving"
)

// NewLogger is the process's logger, which writes to w.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // Config.Validate lets no other text pass
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Probe is a condition for readiness: nil, or why the process cannot do its work now.
type Probe struct {
	Name  string
	Check func(ctx context.Context) error
}

// probeTimeout bounds all probes of one readiness check together.
const probeTimeout = 2 * time.Second

// Health serves /metrics, /livez and /readyz, and in weir run what is counted (AnswerCounters).
type Health struct {
	Listener net.Listener
	Notes    []func() string // what a process that is ready lacks all the same; "": nothing
	Stopping atomic.Bool     // the process is about to end, so it is not ready

	registry *Registry
	probes   []Probe
	routes   map[string]http.Handler // what else is served, by pattern
	log      *slog.Logger
}

// NewHealth binds the address at once, so that a port that is taken is found before any work begins.
func NewHealth(c *config.Config, registry *Registry, log *slog.Logger, probes ...Probe) (*Health, error) {
	l, err := Listen("http.listen", c.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	connections, err := serving.NewMetrics(registry)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l = serving.Bound(l, serving.DefaultBounds(), connections, "metrics")
	return &Health{registry: registry, Listener: l, probes: probes, routes: map[string]http.Handler{}, log: log}, nil
}

// Listen binds address and, if it cannot, says what to do.
func Listen(field, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; free the address or set another one", field, address, err)
	}
	return l, nil
}

func (h *Health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{Registry: h.registry.Registry}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.ready)
	for pattern, handler := range h.routes {
		mux.Handle(pattern, handler)
	}
	return mux
}

// public is an error whose reason may be read by whoever asks whether the process is ready.
type public interface{ Public() string }

// ready answers 200 when every probe passes, with a line for each note, and 503 with the names of those that do not,
// and a line for each reason that is for everybody to read. Other reasons go to the log, not to the network.
func (h *Health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	var failing, reasons []string
	if h.Stopping.Load() {
		failing = append(failing, "stopping")
	}
	for _, p := range h.probes {
		if err := p.Check(ctx); err != nil {
			h.log.Debug("not ready", "part", p.Name, "error", err)
			failing = append(failing, p.Name)
			if said := public(nil); errors.As(err, &said) {
				reasons = append(reasons, p.Name+": "+said.Public())
			}
		}
	}
	if len(failing) > 0 {
		text := append([]string{"not ready: " + strings.Join(failing, ", ")}, reasons...)
		http.Error(w, strings.Join(text, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	for _, note := range h.Notes {
		if text := note(); text != "" {
			fmt.Fprintln(w, text)
		}
	}
}

// Part serves until it is stopped; it is the last part of a process to be stopped.
func (h *Health) Part() Part {
	return Part{Name: "metrics", Run: func(ctx context.Context) error {
		return serving.Run(ctx, h.Listener, h.handler())
	}}
}

// ServeHealthIfAsked serves metrics and health of a short-lived command, if http.listen was set for it: the default address
// belongs to weir run. The returned function stops serving.
func ServeHealthIfAsked(ctx context.Context, c *config.Config, registry *Registry, in *Installation) (func(), error) {
	if !c.Origins.Has("http.listen") {
		return func() {}, nil
	}
	o, err := NewHealth(c, registry, in.Log, in.Probes()...)
	if err != nil {
		return nil, err
	}
	return Beside(ctx, in.Log, o.Part()), nil
}
