package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const (
	headerClient  = "X-Forwarded-For"
	headerDevice  = "X-Device-Id"
	headerRequest = "X-Request-Id"
	// headerPlan says what the client has paid for, which another gateway would look up by the account.
	headerPlan = "X-Demo-Plan"

	// nobody is the device of a request that names none: a browser or a plain curl.
	nobody = "anonymous"

	maxIdentifier = 128 // bytes of a device or request id

	defaultLedger = 200_000
	defaultQueue  = 20_000
)

// Guard stands before the API and answers the requests that a block holds; a gate.Gate is one.
type Guard interface {
	Middleware(next http.Handler) http.Handler
}

var _ Guard = (*gate.Gate)(nil)

// Event is one event on its way to Kafka.
type Event struct {
	// Key is the source's network. Events of one key must stay in order, so they belong into one partition.
	Key   []byte
	Value []byte // a weir event, version 1
}

// EmitFunc appends events to the requests topic, in order, and returns when Kafka has acknowledged them. What it returns
// an error for is not offered again.
type EmitFunc func(ctx context.Context, events []Event) error

// GatewayOptions configure a Gateway. Guard, Emit, Logger and Registerer are required.
type GatewayOptions struct {
	Guard      Guard
	Emit       EmitFunc
	API        http.Handler        // default NewAPI
	Clock      func() traffic.Time // default the system's; the gate must use the same
	Queue      int                 // events that may wait for Emit, default 20,000
	Ledger     int                 // requests that the ledger has room for, default 200,000
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Gateway is a small API gateway: it asks weir about each request, reports each to Kafka, and writes down what it did.
//
// It believes X-Forwarded-For, as a gateway behind one proxy does, so it must listen on loopback only.
type Gateway struct {
	o       GatewayOptions
	guarded http.Handler
	emitter *emitter

	mu         sync.Mutex
	last       traffic.Time
	named      int64
	stamps     []Stamp
	unrecorded int
}

// NewGateway makes a Gateway and starts what sends its events. Close ends it.
func NewGateway(o GatewayOptions) (*Gateway, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Guard", o.Guard != nil}, {"Emit", o.Emit != nil}, {"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("demo gateway: %s is missing", p.name)
		}
	}
	if o.Queue < 0 || o.Ledger < 0 {
		return nil, fmt.Errorf("demo gateway: queue %d, ledger %d; allowed: positive, or 0 for the default", o.Queue, o.Ledger)
	}
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.Ledger = cmp.Or(o.Ledger, defaultLedger)
	if o.API == nil {
		o.API = NewAPI()
	}
	if o.Clock == nil {
		o.Clock = func() traffic.Time { return traffic.At(time.Now()) }
	}
	emitter, err := startEmitter(o)
	if err != nil {
		return nil, fmt.Errorf("demo gateway: %w", err)
	}
	g := &Gateway{o: o, emitter: emitter}
	g.guarded = o.Guard.Middleware(http.HandlerFunc(g.pass))
	return g, nil
}

// Handler is the gateway.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serve) }

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	r = r.Clone(r.Context())
	a := &answering{ResponseWriter: w, gateway: g, request: r}
	a.stamp = g.identify(r)
	g.guarded.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK) // if the API had nothing to say
}

// pass is behind the guard: who comes here may pass.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) {
	if a, ok := w.(*answering); ok {
		a.stamp.Checked = g.o.Clock()
	}
	g.o.API.ServeHTTP(w, r)
}

// identify decides who sent the request and when, and leaves it in the headers in the one way that gate and event will
// both read.
func (g *Gateway) identify(r *http.Request) Stamp {
	client := clientOf(r)
	device := r.Header.Get(headerDevice)
	if device == "" || len(device) > maxIdentifier {
		device = nobody
	}
	r.Header.Set(headerClient, client.String())
	r.Header.Set(headerDevice, device)

	s := Stamp{ID: r.Header.Get(headerRequest), Client: client, Device: device, Method: r.Method, Path: r.URL.EscapedPath()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.ID == "" || len(s.ID) > maxIdentifier {
		g.named++
		s.ID = "gateway-" + strconv.FormatInt(g.named, 10)
	}
	// Each request has a time of its own, so that their order is never in doubt.
	s.Arrived = g.o.Clock()
	s.Time = max(s.Arrived, g.last+1)
	g.last = s.Time
	return s
}

// clientOf is the address that the proxy before the gateway has written, else that of the connection.
func clientOf(r *http.Request) netip.Addr {
	lines := r.Header.Values(headerClient)
	if len(lines) > 0 {
		line := lines[len(lines)-1]
		if a, err := netip.ParseAddr(strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])); err == nil {
			return a.Unmap().WithZone("")
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Loopback()
	}
	return peer.Addr().Unmap().WithZone("")
}

// record keeps the stamp and reports the request. It never waits.
func (g *Gateway) record(s *Stamp, r *http.Request) {
	g.mu.Lock()
	if len(g.stamps) < g.o.Ledger {
		g.stamps = append(g.stamps, *s)
	} else {
		g.unrecorded++
	}
	g.mu.Unlock()
	g.emitter.put(eventOf(s, r))
}

func eventOf(s *Stamp, r *http.Request) Event {
	value := format.AppendEvent(nil, &traffic.Request{
		Time: s.Time, HasTime: true, ID: s.ID, IP: r.RemoteAddr, Forwarded: s.Client.String(), Device: s.Device,
		Method: s.Method, Host: r.Host, Path: s.Path, Status: s.Status, UserAgent: r.UserAgent(), Plan: planOf(r), Gateway: "demo",
		Verdict: traffic.Verdict{Rule: s.Rule, Block: s.Block},
	})
	bits := traffic.DefaultV4
	if s.Client.Is6() {
		bits = traffic.DefaultV6
	}
	source := netip.PrefixFrom(s.Client, bits).Masked()
	return Event{Key: []byte(source.String()), Value: value}
}

// planOf is free for who does not say another one that there is.
func planOf(r *http.Request) string {
	if r.Header.Get(headerPlan) == planPaid {
		return planPaid
	}
	return planFree
}

// Ledger is what has been stamped and answered until now.
func (g *Gateway) Ledger() Ledger {
	g.mu.Lock()
	stamps := slices.Clone(g.stamps)
	l := Ledger{Unrecorded: g.unrecorded}
	g.mu.Unlock()
	slices.SortFunc(stamps, func(a, b Stamp) int { return cmp.Compare(a.Time, b.Time) })
	l.Stamps = stamps
	l.Dropped, l.Failed = g.emitter.losses()
	return l
}

// Flush returns when all events of requests that were answered before have been taken by Emit, or given up.
func (g *Gateway) Flush(ctx context.Context) error { return g.emitter.flush(ctx) }

// Close sends what waits, as long as ctx allows, and ends. Requests that come later are not reported.
func (g *Gateway) Close(ctx context.Context) error { return g.emitter.close(ctx) }

// answering is a ResponseWriter that reports the request when its status is known, before the client learns of it: so
// the events of a client that waits for its answers are in its own order.
type answering struct {
	http.ResponseWriter
	gateway *Gateway
	request *http.Request
	stamp   Stamp
	done    bool
}

// WriteHeader reports the request.
func (a *answering) WriteHeader(status int) {
	if a.done || status < http.StatusOK {
		return
	}
	a.done = true
	if a.stamp.Checked == 0 { // nobody came by pass: weir has refused it
		a.stamp.Rule, a.stamp.Block = a.Header().Get(gate.HeaderRule), a.Header().Get(gate.HeaderBlock)
		a.stamp.Checked = a.gateway.o.Clock()
	}
	a.stamp.Status = status
	a.gateway.record(&a.stamp, a.request)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answering) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

var errClosed = errors.New("the gateway has been closed")
