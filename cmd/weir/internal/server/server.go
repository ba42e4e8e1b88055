// Package server is what people and programs reach of an installation over HTTP: the console's pages and the API, behind sign-in. weir
// console is a process of it alone, weir run --console has it beside the stages, and weir dev has it on this machine.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/serving"
	"github.com/weirhq/weir/cmd/weir/internal/trial"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/lately"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/console/pages"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/savedviews"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Options are what a Server is made of. All but Pulse, Command and Version are required.
type Options struct {
	Config     *config.Config
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Redis      *blocklist.Store
	Kafka      *kafka.Client
	// Environment is what rule documents are judged against, but for the event format and the allow lists.
	Environment func(warn func(rules.Problem)) (rules.Environment, error)
	// Pulse is asked of the stages in this process what they alone count; nil: they run elsewhere. How the installation
	// does is looked at from outside in either case, so that it is said alike wherever the console is served.
	Pulse func() console.Pulse
	// Local is who everybody is that reaches the server without signing in, on this machine: of weir dev and
	// console.local_admin.
	Local *access.Actor
	// Command is what precedes `rules promote …` in commands that pages show; default "weir".
	Command string
	Version string // of the program
}

// Server serves pages and API. Parts must run.
type Server struct {
	page    *console.Console
	pages   *pages.Pages
	api     *api.API
	distant *distant
	handler http.Handler
	routes  []access.Route
	tls     *tls.Config // nil: none
	address string      // console.listen
	local   bool        // it answers this machine alone
	desk    *history.Store
	turns   *turns.Turns
	bounds  serving.Bounds // of connections

	connections *serving.Metrics
	blocks      *lately.Blocks // one reading of Redis for pages, API and stream
	close       func()
}

// New makes a Server. It opens the database anew, for connections of its own.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{close: func() {}, address: o.Config.Console.Listen, local: o.Local != nil}
	masker, err := o.Config.Console.Masker()
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	if files := o.Config.Console.TLS; files.CertFile != "" {
		if s.tls, err = signin.TLS(files.CertFile, files.KeyFile, time.Now); err != nil {
			return nil, &usage.Error{Err: err}
		}
	}
	s.bounds = serving.DefaultBounds()
	s.bounds.Many = o.Config.Console.TrustedProxies.Prefixes
	if s.connections, err = serving.NewMetrics(o.Registerer); err != nil {
		return nil, err
	}
	if s.turns, err = turns.New(turns.Options{Registerer: o.Registerer}); err != nil {
		return nil, err
	}
	if s.desk, err = service.OpenDesk(ctx, o.Config, o.Log); err != nil {
		return nil, err
	}
	s.distant = newDistant(o, s.desk)
	pulse := s.distant.Pulse
	does, done, err := service.OpenActs(service.ActsOptions{
		Config: o.Config, Log: o.Log, History: s.desk, Redis: o.Redis, Kafka: o.Kafka, Environment: o.Environment,
		Trials: trial.New(trial.Options{
			Config: o.Config, Log: o.Log, History: s.desk, Kafka: o.Kafka, Environment: o.Environment,
		}),
	})
	s.close = func() {
		if s.blocks != nil {
			s.blocks.Close()
		}
		done()
		s.desk.Close()
	}
	if err == nil {
		s.blocks, err = lately.New(lately.Options{Source: o.Redis, Clock: service.Now, Registerer: o.Registerer})
	}
	if err == nil {
		err = s.mount(o, pulse, does, masker)
	}
	if err == nil {
		err = s.route(o, pulse, does, masker)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// route puts pages and API behind what finds out who asks.
func (s *Server) route(o Options, pulse func() console.Pulse, does *acts.Service, masker *access.Masker) error {
	guard, err := newGuard(o, s.desk)
	if err != nil {
		return err
	}
	revealer, err := reveal.New(reveal.Options{
		Masker: masker, Trail: s.desk.Audit, Refuse: guard.Refuse, Logger: o.Log,
	})
	if err != nil {
		return err
	}
	live, asked, dead := s.page.Handler(), explore.New(s.desk), ingest.Live.Topics(o.Config.Namespace).Dead
	s.api, err = api.New(api.Options{
		Acts: does,
		Reader: &api.Reader{
			Rules: s.desk.Rules, History: s.desk, Trail: s.desk.Audit, Blocks: s.blocks, Clock: service.Now,
			Explorer: asked, Teller: &why.Teller{History: asked, Blocks: blocksFor{o.Redis, s.blocks},
				Clock: service.Now},
			Dossiers: service.NewDossiers(o.Config, s.desk),
			Letters:  letters.New(o.Kafka, o.Kafka.Log(dead), dead), Counts: service.NewCounts(s.desk, ""),
		},
		Turns: s.turns, Changed: s.blocks.Forget, Health: func() api.Health { return health(pulse()) }, Live: live,
		Reveal: revealer.Reveal, Masker: masker, Witness: s.witness(masker), Version: o.Version, Logger: o.Log,
		Registerer: o.Registerer,
	})
	if err != nil {
		return err
	}
	reveals := access.NewMux(guard.Refuse, nil)
	revealer.AddTo(reveals)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", s.api.Handler())
	mux.Handle("/reveal", reveals)
	mux.Handle("/", live)
	s.routes = slices.Concat(s.api.Routes(), s.pages.Routes(), reveals.Routes(), guard.Routes())
	over := guard.Over(mux, s.pages.Public)
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		console.Secure(w.Header()) // of every answer: also a router's own, which sends //x to /x
		over.ServeHTTP(w, r)
	})
	return nil
}

// mount makes the pages, and the console that serves them beside the stream.
func (s *Server) mount(o Options, pulse func() console.Pulse, does *acts.Service, masker *access.Masker) error {
	all, err := pages.New(pages.Options{
		Rules: s.desk.Rules, History: s.desk, Blocks: s.blocks, Explorer: explore.New(s.desk),
		Evidence: evidence.New(s.desk.DB, s.desk.Rules),
		Views:    savedviews.New(s.desk.DB),
		Turns:    s.turns, Changed: s.blocks.Forget, Acts: does, Masker: masker, Bounds: o.Config.Console.RuleBounds(),
		Witness: s.witness(masker), Pulse: pulse, Command: o.Command, Clock: service.Now, Logger: o.Log,
	})
	if err != nil {
		return err
	}
	s.pages = all
	s.page, err = console.New(console.Options{
		Pages: all.Handler(), Rules: s.desk.Rules, History: s.desk, Blocks: s.blocks, Pulse: pulse,
		Hosts: o.Config.Console.Names(), Command: o.Command,
		Clock: service.Now, Logger: o.Log, Registerer: o.Registerer,
	})
	return err
}

// witness writes down what leaves no entry of the audit trail by itself.
func (s *Server) witness(masker *access.Masker) access.Witness {
	return &acts.Witness{Masking: acts.Masking{Masker: masker, Trail: s.desk.Audit}}
}

// blocksFor asks Redis for what one source has, and the shared reading for all else.
type blocksFor struct {
	*blocklist.Store
	read *lately.Blocks
}

var _ why.Blocks = blocksFor{}

// List is lately.Blocks'.
func (b blocksFor) List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error) {
	return b.read.List(ctx, now, filter)
}

// Listen binds console.listen, or another address where one is given.
func (s *Server) Listen(address string) (net.Listener, error) {
	address = cmp.Or(address, s.address)
	if s.local {
		if err := config.LocalListen(address); err != nil {
			return nil, usage.Errorf("--console-listen, with console.local_admin: %w", err)
		}
	}
	l, err := service.Listen("console.listen", address)
	if err != nil {
		return nil, err
	}
	l = serving.Bound(l, s.bounds, s.connections, "console")
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	return l, nil
}

// Close gives back what the server has opened.
func (s *Server) Close() { s.close() }

// Handler serves everything.
func (s *Server) Handler() http.Handler { return s.handler }

// Routes describe the routes of the API, of the pages and of sign-in, for the authorisation matrix.
func (s *Server) Routes() []access.Route { return s.routes }

// Parts keep what is shown up to date, and serve it on a listener.
func (s *Server) Parts(l net.Listener) []service.Part {
	shared := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return run(postgres.In(ctx, postgres.Shared)) }
	}
	return []service.Part{
		{Name: "console page", Run: shared(s.page.Run)},
		{Name: "console", Run: func(ctx context.Context) error { return serving.Run(ctx, l, s.handler) }},
		{Name: "pulse", Run: shared(s.distant.Run)},
	}
}

// health is a pulse as the API tells it.
func health(p console.Pulse) api.Health {
	h := api.Health{
		Stages: []api.StageLag{}, Problems: []api.HealthProblem{}, Gates: []api.HealthGate{},
		Unknown: slices.Clone(p.Unknown), Foreign: p.Foreign,
	}
	if p.GatesUnknown {
		h.Unknown = append(h.Unknown, "gates")
	}
	for _, s := range p.Stages {
		h.Stages = append(h.Stages, api.StageLag(s))
	}
	for _, q := range p.Problems {
		h.Problems = append(h.Problems, api.HealthProblem{Part: q.Part, Detail: q.Detail})
	}
	for _, g := range p.Gates {
		h.Gates = append(h.Gates, api.HealthGate{
			Instance: g.Instance, Build: g.Build, Ready: g.Unready == "", Observing: g.Observing, Blocks: g.Blocks,
			Behind: max(g.Behind, g.Staleness),
			Passed: g.Passed, FailedOpen: g.FailedOpen, Refused: g.Refused, WouldRefuse: g.WouldRefuse,
			Identity: g.Identity, Started: g.Started, Told: g.At, Doubts: append([]string{}, g.Doubts...),
		})
	}
	return h
}
