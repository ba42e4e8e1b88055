package demo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// topic keeps what was emitted.
type topic struct {
	mu     sync.Mutex
	events []demo.Event
}

func (l *topic) emit(_ context.Context, events []demo.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
	return nil
}

// oneBlock holds one device off the guest tokens.
type oneBlock struct{ device string }

func (oneBlock) Ready() bool { return true }

func (oneBlock) Rules() []string { return []string{"guest-tokens"} }

func (o oneBlock) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	b := blocklist.Block{Rule: "guest-tokens", Hit: "0123456789abcdef0123456789abcdef", Until: now.Add(4500 * time.Millisecond)}
	return b, id.Device == o.device && request.Method == "POST" && request.Path == "/v1/guest-tokens"
}

func newGateway(t *testing.T, o demo.GatewayOptions) (*demo.Gateway, *prometheus.Registry) {
	t.Helper()
	identity := demo.IdentityMap()
	identifier, err := identity.Compile()
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	o.Logger, o.Registerer = slog.New(slog.DiscardHandler), registry
	o.Guard, err = gate.New(gate.Options{
		Blocklist: oneBlock{"tv-1"}, Identifier: identifier, Clock: clock, Logger: o.Logger, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := demo.NewGateway(o)
	if err != nil {
		t.Fatal(err)
	}
	return g, registry
}

// TestCurl asks over real connections, as an abuser and as others.
func TestCurl(t *testing.T) {
	var log topic
	g, registry := newGateway(t, demo.GatewayOptions{Emit: log.emit})
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	tests := []struct {
		name, method, path string
		header             http.Header
		status             int
		body               string // a part of it
		client, device     string // in the ledger
	}{
		{"the abuser", "POST", "/v1/guest-tokens", http.Header{"X-Device-Id": {"tv-1"}, "X-Forwarded-For": {"198.18.0.1"}}, 429,
			`"block":"0123456789abcdef"`, "198.18.0.1", "tv-1"},
		{"somewhere else", "GET", "/v1/catalog/dune", http.Header{"X-Device-Id": {"tv-1"}}, 200, `"title":"dune"`, "127.0.0.1", "tv-1"},
		{"another viewer", "POST", "/v1/guest-tokens", http.Header{"X-Device-Id": {"tv-2"}}, 200, "guest.tv-2", "127.0.0.1", "tv-2"},
		{"nobody", "POST", "/v1/guest-tokens", nil, 200, "guest.anonymous", "127.0.0.1", "anonymous"},
		{"a device that is none", "POST", "/v1/guest-tokens", http.Header{"X-Device-Id": {strings.Repeat("x", 500)}}, 200, "guest.anonymous",
			"127.0.0.1", "anonymous"},
		{"the last proxy's word", "POST", "/v1/sign-in", http.Header{"X-Forwarded-For": {"192.0.2.7, nonsense", "192.0.2.8, ::ffff:192.0.2.9"}}, 200,
			"signed_in", "192.0.2.9", "anonymous"},
		{"no address", "POST", "/v1/sign-in", http.Header{"X-Forwarded-For": {"unknown"}}, 200, "signed_in", "127.0.0.1", "anonymous"},
		{"who pays", "GET", "/v1/catalog/heat", http.Header{"X-Demo-Plan": {"paid"}}, 200, `"title":"heat"`, "127.0.0.1", "anonymous"},
		{"a plan that there is not", "GET", "/v1/catalog/ran", http.Header{"X-Demo-Plan": {"gold"}}, 200, `"title":"ran"`, "127.0.0.1", "anonymous"},
		{"a fault", "POST", "/v1/guest-tokens", http.Header{"X-Demo-Fault": {"503"}}, 503, "try again", "127.0.0.1", "anonymous"},
		{"the page", "GET", "/", nil, 200, "Get a guest token", "127.0.0.1", "anonymous"},
		{"no such thing", "GET", "/v1/guest-tokens", nil, 404, "POST /v1/guest-tokens", "127.0.0.1", "anonymous"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request, _ := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, nil)
			for name, values := range test.header {
				request.Header[name] = values
			}
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.body) {
				t.Errorf("status %d, error %v, body %s", response.StatusCode, err, body)
			}
			stamps := g.Ledger().Stamps
			s := stamps[len(stamps)-1]
			if s.Client.String() != test.client || s.Device != test.device || s.Status != test.status || s.Refused() != (test.status == 429) ||
				s.Path != test.path || s.Arrived > s.Checked || s.Time < s.Arrived {
				t.Errorf("stamp %+v", s)
			}
		})
	}
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledger := g.Ledger()
	sameAsLedger(t, &ledger, log.events)
	if len(ledger.Stamps) != len(tests) || ledger.Dropped+ledger.Failed+ledger.Unrecorded > 0 {
		t.Errorf("%d stamps of %d requests; %+v", len(ledger.Stamps), len(tests), ledger)
	}
	sameOutcomes(t, registry, 0, 0, len(tests))
}

// sameOutcomes: what became of events, each outcome from the start.
func sameOutcomes(t *testing.T, registry *prometheus.Registry, dropped, failed, sent int) {
	t.Helper()
	want := fmt.Sprintf("# HELP weir_demo_events_total Events of the demo's gateway: sent, failed (Kafka did not take them), dropped (the queue was full).\n"+
		"# TYPE weir_demo_events_total counter\nweir_demo_events_total{outcome=\"dropped\"} %d\nweir_demo_events_total{outcome=\"failed\"} %d\n"+
		"weir_demo_events_total{outcome=\"sent\"} %d\n", dropped, failed, sent)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_demo_events_total"); err != nil {
		t.Error(err)
	}
}

// sameAsLedger: the events say what the ledger says, and name the client that the gate saw.
func sameAsLedger(t *testing.T, l *demo.Ledger, events []demo.Event) {
	t.Helper()
	decoder, err := format.NewDecoder(format.Weir, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	identity := demo.IdentityMap()
	identifier, err := identity.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != len(l.Stamps) {
		t.Fatalf("%d events of %d requests", len(events), len(l.Stamps))
	}
	for i, event := range events {
		var r traffic.Request
		if err := decoder.Decode(event.Value, &r); err != nil {
			t.Fatal(err)
		}
		s := l.Stamps[i]
		id, _ := identifier.FromEvent(&r)
		if r.Time != s.Time || !r.HasTime || r.ID != s.ID || id.IP != s.Client || id.Device != s.Device || r.Method != s.Method ||
			r.Path != s.Path || r.Status != s.Status || r.Verdict.Rule != s.Rule || r.Verdict.Block != s.Block {
			t.Errorf("event %s of stamp %+v", event.Value, s)
		}
		if want := map[bool]string{true: "paid", false: "free"}[s.Path == "/v1/catalog/heat"]; r.Plan != want {
			t.Errorf("event %s has the plan %q, want %q", event.Value, r.Plan, want)
		}
		if len(event.Key) == 0 || !strings.HasPrefix(string(event.Key), s.Client.String()) {
			t.Errorf("key %s of %s", event.Key, s.Client)
		}
	}
}

// TestKafkaStands: clients are answered whatever becomes of the events, and what is lost is counted.
func TestKafkaStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan int, 100)
		g, registry := newGateway(t, demo.GatewayOptions{Queue: 3, Ledger: 8, Emit: func(ctx context.Context, events []demo.Event) error {
			taken <- len(events)
			<-ctx.Done()
			return ctx.Err()
		}})
		began := time.Now()
		for range 10 {
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/catalog/x", nil))
			synctest.Wait() // the first event is under way before the next request
			if w.Code != 200 {
				t.Errorf("status %d", w.Code)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("the clients waited %s", time.Since(began))
		}
		l := g.Ledger()
		if l.Dropped != 6 || l.Unrecorded != 2 || len(l.Stamps) != 8 {
			t.Errorf("%d events dropped, %d not recorded", l.Dropped, l.Unrecorded)
		}
		for i := range l.Stamps[1:] {
			if l.Stamps[i].Time >= l.Stamps[i+1].Time {
				t.Error("two requests of one time")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if l = g.Ledger(); l.Failed != 4 {
			t.Errorf("%d events failed", l.Failed)
		}
		if g.Close(t.Context()) == nil || g.Flush(t.Context()) == nil {
			t.Error("closed twice")
		}
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if l = g.Ledger(); w.Code != 200 || l.Dropped != 7 {
			t.Errorf("after the end: status %d, %d dropped", w.Code, l.Dropped)
		}
		sameOutcomes(t, registry, 7, 4, 0)
	})
}

func TestFlush(t *testing.T) {
	var log topic
	g, _ := newGateway(t, demo.GatewayOptions{Emit: log.emit})
	for range 1700 {
		g.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/catalog/x", nil))
	}
	if err := g.Flush(t.Context()); err != nil || len(log.events) != 1700 {
		t.Errorf("error %v, %d events", err, len(log.events))
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGatewayOptions(t *testing.T) {
	guard := slowly{}
	emit := func(context.Context, []demo.Event) error { return nil }
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	tests := []struct {
		o    demo.GatewayOptions
		want string
	}{
		{demo.GatewayOptions{Emit: emit, Logger: log, Registerer: registry}, "Guard"},
		{demo.GatewayOptions{Guard: guard, Logger: log, Registerer: registry}, "Emit"},
		{demo.GatewayOptions{Guard: guard, Emit: emit, Registerer: registry}, "Logger"},
		{demo.GatewayOptions{Guard: guard, Emit: emit, Logger: log}, "Registerer"},
		{demo.GatewayOptions{Guard: guard, Emit: emit, Logger: log, Registerer: registry, Queue: -1}, "queue -1"},
	}
	for _, test := range tests {
		if _, err := demo.NewGateway(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
