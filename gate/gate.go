// Package gate is inline enforcement: it answers whether a request is held by a block, without any network I/O, as an HTTP
// endpoint for proxies (forward-auth, nginx auth_request) and as a net/http middleware. Requests pass where the blocklist, or a
// part of it, is missing or away.
package gate

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Blocklist is what a gate asks; a replica.Replica is one. No method may wait for anything.
type Blocklist interface {
	// Find returns the block that holds a request of id at now.
	Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool)
	// Ready reports whether the blocks are known at all.
	Ready() bool
	// Rules are the rules that block, in any order. Metrics name these, from 0 on, and no others.
	Rules() []string
}

// Options configure a Gate. All but Route and Observe are required.
type Options struct {
	Blocklist Blocklist
	// Identifier is compiled from the identity map that events are read with, so that both name the same client.
	Identifier *traffic.Identifier
	// Route tells the Middleware the route of a request, by the name that events have for it; nil for no routes. Blocks of rules that
	// name routes hold the requests of these only.
	Route func(*http.Request) string
	// Observe lets everything pass and says what would have been refused: the first step of a roll-out. SetObserve changes
	// it later.
	Observe    bool
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Gate checks requests. It may be used by any number of goroutines.
type Gate struct {
	o          Options
	metrics    *metrics
	observe    atomic.Bool // as SetObserve was told last
	fileSaysSo atomic.Bool // its ObserveFile exists
}

// New makes a Gate.
func New(o Options) (*Gate, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Blocklist", o.Blocklist != nil}, {"Identifier", o.Identifier != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("gate: %s is missing", p.name)
		}
	}
	g := &Gate{o: o}
	g.observe.Store(o.Observe)
	var err error
	if g.metrics, err = newMetrics(o.Registerer, g.Observing, o.Blocklist.Rules, o.Clock); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	return g, nil
}

// Request is what a gate looks at.
type Request struct {
	Method string
	Path   string // as on the request line, not decoded; a query is ignored
	Host   string // as in its Host header; "" for not known: then no block that is about hosts holds it
	Route  string // the gateway's own name of the route; "" for not known: then no block that is about routes holds it
	From   traffic.Carrier
}

// Answer is a gate's word on one request.
type Answer struct {
	Blocked    bool          // refuse it
	WouldBlock bool          // a block holds it, and the gate only observes
	Rule       string        // of the block, when either is set
	BlockID    string        // what support looks up
	Until      traffic.Time  // when the block ends
	RetryAfter time.Duration // from now until then
	Scope      string        // match: the block holds for the requests that its rule matches
}

// Check decides on a request in about the time of a few memory accesses. It cannot fail: what it does not know passes.
func (g *Gate) Check(r *Request) Answer { return g.checkBy(byCall, r) }

func (g *Gate) checkBy(by protocol, r *Request) Answer {
	n := g.metrics.next()
	if n%timedEvery != 0 {
		return g.check(by, r)
	}
	start := time.Now()
	answer := g.check(by, r)
	g.metrics.duration.Observe(time.Since(start).Seconds())
	return answer
}

func (g *Gate) check(by protocol, r *Request) Answer {
	if !g.o.Blocklist.Ready() {
		g.metrics.decisions.unjudged[by].Add(1)
		return Answer{}
	}
	id, missing := g.o.Identifier.FromCarrier(&r.From)
	if why := missing[traffic.FieldIP]; why != traffic.Present {
		g.metrics.noAddress[why].Inc() // rules without ip may still hold it
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if missing[f] == traffic.MissingRepeated {
			g.metrics.repeated[f].Inc()
		}
	}
	now := g.o.Clock()
	b, held := g.o.Blocklist.Find(id, rules.Target{Method: r.Method, Path: r.Path, Host: r.Host, Route: r.Route}, now)
	if !held {
		g.metrics.decisions.passed[by].Add(1)
		return Answer{}
	}
	observing := g.Observing()
	g.metrics.decisions.held(b.Rule, by, observing)
	return Answer{
		Blocked: !observing, WouldBlock: observing, Rule: b.Rule, BlockID: BlockID(b.Hit),
		Until: b.Until, RetryAfter: b.Until.Sub(now), Scope: b.Scope,
	}
}

// blockIDBytes is how much of a hit's id clients are told: 64 bits are enough to find it again.
const blockIDBytes = 16

// BlockID is the id by which a client and its support name a block: the first 16 hex digits of the hit behind it.
func BlockID(hit string) string {
	if len(hit) > blockIDBytes {
		return hit[:blockIDBytes]
	}
	return hit
}
