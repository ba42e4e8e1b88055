package demo_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a run in the time of a synctest bubble.
type world struct {
	seed     uint64
	duration time.Duration // default 20 s
	shadow   bool          // nobody promotes
	watched  bool          // by people, and not judged
	real     bool          // over connections of this machine
	slow     time.Duration // for so long, every request takes 150 ms more
	fault    demo.Fault
	edit     func(rules []byte) []byte // of the rules that detection has; the truth has its own
	prepare  func(e *engine)
	meddle   func(l *demo.Ledger, a *demo.Answers, r *demo.Recorded)
}

// run plays and judges.
func (w world) run(t *testing.T) demo.Report {
	t.Helper()
	ledger, answers, recorded := w.play(t)
	report, err := demo.Judge(ledger, answers, recorded, demo.JudgeOptions{Promoted: !w.shadow})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// play plays.
func (w world) play(t *testing.T) (demo.Ledger, demo.Answers, demo.Recorded) {
	t.Helper()
	documents := w.fault.Rules()
	if w.watched {
		documents = demo.WatchedRules()
	}
	if w.edit != nil {
		documents = w.edit(documents)
	}
	e := newEngine(t, documents, w.seed)
	if w.prepare != nil {
		w.prepare(e)
	}
	o := demo.Options{
		Seed: w.seed, Duration: w.duration, GatewayURL: "http://gateway.test", Promote: e.promote,
		Log: slog.New(slog.DiscardHandler), Clock: clock, Watched: w.watched,
	}
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
	}
	if w.shadow {
		o.Promote = nil
	}
	cast := o.Cast()
	registry := prometheus.NewRegistry()
	guard, err := gate.New(gate.Options{
		Blocklist: w.fault.Blocklist(cast, e), Identifier: e.identifier, Clock: clock, Logger: o.Log, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	net := newNetwork(w.seed)
	net.slow = time.Now().Add(w.slow)
	gateway, err := demo.NewGateway(demo.GatewayOptions{
		Guard: slowly{guard, net}, Emit: w.fault.Emit(cast, e.emit), Clock: clock, Logger: o.Log, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	net.to = gateway.Handler()
	o.Transport = net
	if w.real {
		server := httptest.NewServer(gateway.Handler())
		defer server.Close()
		o.Transport, o.GatewayURL = nil, server.URL
	}

	var stages sync.WaitGroup
	stages.Go(e.run)
	answers, err := demo.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := gateway.Close(ctx); err != nil {
		t.Error(err)
	}
	close(e.log)
	stages.Wait()

	ledger, recorded := gateway.Ledger(), e.recorded()
	if w.meddle != nil {
		w.meddle(&ledger, &answers, &recorded)
	}
	return ledger, answers, recorded
}

// network carries requests to a handler in the same process, with delays.
type network struct {
	to   http.Handler
	slow time.Time // requests are until then

	mu  sync.Mutex
	rng *rand.Rand
}

func newNetwork(seed uint64) *network { return &network{rng: rand.New(rand.NewPCG(seed, 2))} }

func (n *network) wait(most time.Duration) {
	n.mu.Lock()
	d := time.Duration(n.rng.Int64N(int64(most)))
	n.mu.Unlock()
	<-time.After(d)
}

var _ http.RoundTripper = (*network)(nil)

// RoundTrip takes its time before and after.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.wait(10 * time.Millisecond)
	if time.Now().Before(n.slow) {
		<-time.After(150 * time.Millisecond)
	}
	r.RemoteAddr = "127.0.0.1:40000"
	w := httptest.NewRecorder()
	n.to.ServeHTTP(w, r)
	n.wait(10 * time.Millisecond)
	return w.Result(), nil
}

// slowly is a guard that thinks before and after it answers.
type slowly struct {
	demo.Guard
	net *network
}

func (s slowly) Middleware(next http.Handler) http.Handler {
	guarded := s.Guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.net.wait(time.Millisecond)
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.net.wait(time.Millisecond)
		guarded.ServeHTTP(w, r)
	})
}
