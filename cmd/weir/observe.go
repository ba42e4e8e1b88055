package main

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newRegistry is the process's own registry, with Go's and the process's metrics and the build.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := readBuildVersion()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_build_info", Help: "1, with the version of this build.",
			ConstLabels: prometheus.Labels{"version": build.Version, "go": build.Go},
		}, func() float64 { return 1 }),
	)
	return r
}

func newLogger(c logConfig, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // validate lets no other text pass
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// probe is a condition for readiness: nil, or why the process cannot do its work now.
type probe struct {
	name  string
	check func(ctx context.Context) error
}

// probeTimeout bounds all probes of one readiness check together.
const probeTimeout = 2 * time.Second

// observer serves /metrics, /livez and /readyz.
type observer struct {
	registry *prometheus.Registry
	listener net.Listener
	probes   []probe
	notes    []func() string // what a process that is ready lacks all the same; "": nothing
	stopping atomic.Bool
	log      *slog.Logger
}

// newObserver binds the address at once, so that a port that is taken is found before any work begins.
func newObserver(c *config, registry *prometheus.Registry, log *slog.Logger, probes ...probe) (*observer, error) {
	l, err := listen("http.listen", c.HTTP.Listen)
	if err != nil {
		return nil, err
	}
	return &observer{registry: registry, listener: l, probes: probes, log: log}, nil
}

// listen binds address and, if it cannot, says what to do.
func listen(field, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; free the address or set another one", field, address, err)
	}
	return l, nil
}

func (o *observer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{Registry: o.registry}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", o.ready)
	return mux
}

// ready answers 200 when every probe passes, with a line for each note, and 503 with a line for each that does not. The
// reasons go to the log, not to the network: they name addresses.
func (o *observer) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	var failing []string
	if o.stopping.Load() {
		failing = append(failing, "stopping")
	}
	for _, p := range o.probes {
		if err := p.check(ctx); err != nil {
			o.log.Debug("not ready", "part", p.name, "error", err)
			failing = append(failing, p.name)
		}
	}
	if len(failing) > 0 {
		http.Error(w, "not ready: "+strings.Join(failing, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	for _, note := range o.notes {
		if text := note(); text != "" {
			fmt.Fprintln(w, text)
		}
	}
}

// part serves until it is stopped; it is the last part of a process to be stopped.
func (o *observer) part() part {
	return part{name: "metrics", run: func(ctx context.Context) error { return serveHTTP(ctx, o.listener, o.handler()) }}
}

// observeIfAsked serves metrics and health of a command that runs for a while, if http.listen was set for it: its default
// address belongs to weir run. The function that it returns ends that.
func (a *app) observeIfAsked(ctx context.Context, c *config, registry *prometheus.Registry, in *installation) (func(), error) {
	if c.origin["http.listen"] == "" {
		return func() {}, nil
	}
	o, err := newObserver(c, registry, in.log, in.probes()...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := o.part().run(ctx); err != nil {
			in.log.Warn("metrics are not served any more", "error", err)
		}
	}()
	return func() { stop(); <-ended }, nil
}

// serveHTTP answers requests until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	return serveUntil(ctx, l, &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	})
}

// serveUntil lets server answer requests until ctx ends, and then lets those under way finish, for a second at most.
func serveUntil(ctx context.Context, l net.Listener, server *http.Server) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		_ = server.Close() // connections that are still at it are cut: the process is going away
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
