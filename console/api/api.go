package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/history/postgres"
)

// Options configure an API. All but Live, Turns, Reveal, Masker and Version are required.
type Options struct {
	Acts   acts.Acts
	Reader *Reader
	// Health says what of the installation does not work just now; it must answer at once.
	Health func() Health
	// Live serves the sections of the live picture below /api/v1: a console.Console. nil: there is none.
	Live http.Handler
	// Turns bound how many questions are worked on at a time; nil: any number.
	Turns Turns
	// Changed is called after what may have changed which blocks there are; nil: nothing is.
	Changed func()
	// Reveal is what a reveal.Revealer does; nil: the API reveals nothing.
	Reveal func(ctx context.Context, actor access.Actor, r reveal.Request) (string, error)
	// Masker gives roles below one pseudonyms; nil: everybody sees values.
	Masker *access.Masker
	// Witness writes down who takes history away as a file.
	Witness    access.Witness
	Version    string // of the program
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Turns hands out turns to ask.
type Turns interface {
	// Take waits for the actor's turn, which done gives back; its error is a *turns.BusyError, or the context's.
	Take(ctx context.Context, actor access.Actor) (done func(), err error)
}

var _ Turns = (*turns.Turns)(nil)

// API serves /api/v1. It is safe for concurrent use. Who asks stands in the request's context (access.From): whoever mounts it has
// sign-in before it.
type API struct {
	o        Options
	mux      *access.Mux
	document []byte // the OpenAPI document
	limits   *limits
	orders   *orders
	requests *prometheus.CounterVec // route, code
}

// New makes an API.
func New(o Options) (*API, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Acts", o.Acts != nil}, {"Reader", o.Reader.whole()}, {"Health", o.Health != nil}, {"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
		{"Witness", o.Witness != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("api: %s is missing", p.name)
		}
	}
	a := &API{o: o, limits: newLimits(time.Now), orders: &orders{}}
	a.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_api_requests_total", Help: "Requests to the API, by operation and HTTP status.",
	}, []string{"operation", "code"})
	if err := o.Registerer.Register(a.requests); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	table := a.table()
	var err error
	if a.document, err = openAPI(table, o.Version); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	a.mux = access.NewMux(func(w http.ResponseWriter, r *http.Request, err error) { a.fail(w, r, "", readError(err)) },
		o.Witness)
	for i := range table {
		a.mux.Handle(table[i].Route, a.serve(&table[i]))
	}
	a.mux.Otherwise(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, "", &httpError{status: http.StatusNotFound, title: "there is nothing here", detail: "GET /api/v1/openapi.json describes what there is"})
	}))
	return a, nil
}

// Handler serves everything below /api/v1/.
func (a *API) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		a.mux.ServeHTTP(w, r)
	})
}

// Routes describe all routes, for the authorisation matrix.
func (a *API) Routes() []access.Route { return a.mux.Routes() }

// Document is the OpenAPI document, JSON.
func (a *API) Document() []byte { return a.document }

// serve answers by a route: limits first, then what the route does, then the answer with its ETag.
func (a *API) serve(r *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		actor := access.From(request.Context())
		c := &call{API: a, route: r, w: w, actor: actor, mask: a.o.Masker.For(actor)}
		request = request.WithContext(access.WithMask(request.Context(), c.mask))
		c.r = request
		if wait := a.limits.take(c.actor, access.Changes(request.Method)); wait > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
			a.fail(w, request, r.name, &httpError{status: http.StatusTooManyRequests, title: "too many requests",
				detail: fmt.Sprintf("%s asks more often than is allowed; ask again in %s", c.actor.Name, wait.Round(time.Second/10))})
			return
		}
		if r.stream != nil {
			a.requests.WithLabelValues(r.name, "200").Inc()
			r.stream(c)
			return
		}
		err := c.query()
		if err == nil {
			err = c.mayBeFile()
		}
		if err != nil {
			a.fail(w, request, r.name, err)
			return
		}
		answer, err := c.answer()
		var unfinished *acts.UnfinishedError
		if err != nil && !(answer != nil && errors.As(err, &unfinished)) {
			a.fail(w, request, r.name, err)
			return
		}
		status := http.StatusOK
		if err != nil { // what is done stays done, and the answer says so
			status = http.StatusAccepted
		}
		c.write(status, answer)
	})
}

// How long a request is worked on. A question comes after its turn.
const (
	answerWithin = 10 * time.Second
	actWithin    = acts.MaxReleaseWait + 2*time.Minute // it may wait until its stage has done it
)

// answer does what the route does, for so long at most. A question waits for its actor's turn, and uses no connection
// by which something is changed.
func (c *call) answer() (any, error) {
	asked := c.r
	defer func() { c.r = asked }()
	within, ctx := actWithin, asked.Context()
	question := !access.Changes(asked.Method)
	if question {
		within, ctx = answerWithin, postgres.In(ctx, postgres.Questions)
	}
	if question && !c.instant && c.o.Turns != nil {
		done, err := c.o.Turns.Take(ctx, c.actor)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c.r = asked.WithContext(ctx)
	answer, err := c.handle(c)
	if !question && c.o.Changed != nil {
		c.o.Changed()
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) || postgres.TimedOut(err)
	if own := (*httpError)(nil); question && err != nil && late && !errors.As(err, &own) {
		err = &httpError{status: http.StatusServiceUnavailable, title: "the answer takes too long", cause: err,
			detail: fmt.Sprintf("nothing was found within %v: ask for a shorter time, one rule or a smaller page",
				answerWithin)}
	}
	return answer, err
}
