package gate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// decided is how often a gate has decided so, by these labels; 0 where there is no such series.
func decided(t *testing.T, g *Gate, protocol, decision, rule string) float64 {
	t.Helper()
	ch := make(chan prometheus.Metric, 1000)
	g.metrics.decisions.Collect(ch)
	close(ch)
	for m := range ch {
		var got dto.Metric
		if err := m.Write(&got); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for _, l := range got.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["protocol"] == protocol && labels["decision"] == decision && labels["rule"] == rule {
			return got.GetCounter().GetValue()
		}
	}
	return 0
}

func TestDecisionsAreCountedByProtocol(t *testing.T) {
	list := abuser()
	g := newGate(t, list, nil)
	ways := map[string]func(address string){
		"call": func(address string) {
			g.Check(&Request{Method: "POST", Path: "/v1/guest-tokens", From: traffic.Carrier{Peer: address, Header: http.Header{}}})
		},
		"http": func(address string) {
			r := httptest.NewRequest("POST", "/v1/guest-tokens", nil)
			r.RemoteAddr = address
			g.Middleware(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		},
	}
	for name, path := range map[string]string{"forward_auth": "/v1/forward-auth", "auth_request": PathAuthRequest} {
		ways[name] = func(address string) {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr = address
			for header, value := range map[string]string{
				headerForwardedMethod: "POST", headerForwardedURI: "/v1/guest-tokens", headerOriginalMethod: "POST", headerOriginalURI: "/v1/guest-tokens",
			} {
				r.Header.Set(header, value)
			}
			g.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	for name, ask := range ways {
		for range 3 {
			ask("192.0.2.1:1")
		}
		for range 2 {
			ask("192.0.2.2:1")
		}
		list.ready = false
		ask("192.0.2.1:1")
		list.ready = true
		g.SetObserve(true)
		for range 4 {
			ask("192.0.2.1:1")
		}
		g.SetObserve(false)
		for decision, want := range map[string]float64{"pass": 2, "fail_open": 1} {
			if n := decided(t, g, name, decision, ""); n != want {
				t.Errorf("%s %s: %v, want %v", name, decision, n, want)
			}
		}
		for decision, want := range map[string]float64{"refuse": 3, "would_refuse": 4} {
			if n := decided(t, g, name, decision, "guest-token-flood"); n != want {
				t.Errorf("%s %s: %v, want %v", name, decision, n, want)
			}
		}
	}
}

// decisionSeries are the series by rule, as decision, protocol, rule and value.
func decisionSeries(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if d := labels["decision"]; d == decidedRefuse || d == decidedWouldRefuse {
				lines = append(lines, fmt.Sprint(d, " ", labels["protocol"], " ", labels["rule"], " ", m.GetCounter().GetValue()))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// counting is a gate whose decisions are asked for.
type counting struct {
	*Gate
	t        *testing.T
	list     *held
	registry *prometheus.Registry
	now      traffic.Time
}

func newCounting(t *testing.T) *counting {
	c := &counting{t: t, list: abuser(), registry: prometheus.NewRegistry(), now: start}
	c.list.until = start.Add(time.Hour)
	c.Gate = newGate(t, c.list, func(o *Options, _ *traffic.IdentityMap) {
		o.Registerer, o.Clock = c.registry, func() traffic.Time { return c.now }
	})
	return c
}

func (c *counting) ask(address string) {
	c.Check(&Request{Method: "POST", Path: "/v1/guest-tokens", From: traffic.Carrier{Peer: address, Header: http.Header{}}})
}

func (c *counting) shows(when string, lines ...string) {
	c.t.Helper()
	for range 2 { // two servers scrape it
		if got := decisionSeries(c.t, c.registry); !slices.Equal(got, lines) {
			c.t.Errorf("%s: got\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

// Every scrape before the first refusal shows 0 for what may be refused: a rate misses what its series is born with.
func TestDecisionsOfARuleBeginAt0(t *testing.T) {
	c := newCounting(t)
	c.list.ready, c.list.gone = false, true
	c.shows("the blocklist is not loaded")
	c.list.ready, c.list.gone = true, false
	c.shows("loaded, and nothing but Check can ask", "refuse call guest-token-flood 0", "would_refuse call guest-token-flood 0")
	c.ask("192.0.2.1:4711")
	c.shows("held", "refuse call guest-token-flood 1", "would_refuse call guest-token-flood 0")

	for name, tc := range map[string]struct {
		serve     func(g *Gate)
		protocols []string
	}{
		"of both kinds of proxies": {func(g *Gate) { g.Handler() }, []string{"auth_request", "forward_auth"}},
		"of a server":              {func(g *Gate) { g.Middleware(http.NotFoundHandler()) }, []string{"http"}},
		"of a server that also asks": {func(g *Gate) {
			g.Middleware(http.NotFoundHandler())
			g.Check(&Request{From: traffic.Carrier{Peer: "192.0.2.2:1", Header: http.Header{}}})
		}, []string{"call", "http"}},
		"of nginx alone": {func(g *Gate) { g.AuthRequest() }, []string{"auth_request"}},
	} {
		c := newCounting(t)
		tc.serve(c.Gate)
		var want []string
		for _, decision := range []string{"refuse", "would_refuse"} {
			for _, p := range tc.protocols {
				want = append(want, fmt.Sprint(decision, " ", p, " guest-token-flood 0"))
			}
		}
		c.shows("a gate "+name, want...)
	}
}

// Whatever was decided, the gate is asked by that protocol, and for all rules.
func TestAProtocolOnceAskedByIsShown(t *testing.T) {
	for name, first := range map[string]func(c *counting){
		"passed":   func(c *counting) { c.ask("192.0.2.2:4711") },
		"unjudged": func(c *counting) { c.list.ready = false; c.ask("192.0.2.1:4711") },
		"refused":  func(c *counting) { c.ask("192.0.2.1:4711") },
		"observed": func(c *counting) { c.SetObserve(true); c.ask("192.0.2.1:4711") },
	} {
		c := newCounting(t)
		c.AuthRequest()
		first(c)
		refused, observed := 0, 0
		switch name {
		case "refused":
			refused = 1
		case "observed":
			observed = 1
		}
		c.shows(name, "refuse auth_request guest-token-flood 0", fmt.Sprint("refuse call guest-token-flood ", refused),
			"would_refuse auth_request guest-token-flood 0", fmt.Sprint("would_refuse call guest-token-flood ", observed))
	}
}

// A rule that does not block any more is shown for two minutes, so that its last refusals are not lost, and then goes.
func TestARuleTakesItsDecisionsAlong(t *testing.T) {
	c := newCounting(t)
	c.ask("192.0.2.1:4711")
	one := []string{"refuse call guest-token-flood 1", "would_refuse call guest-token-flood 0"}
	c.shows("held", one...)
	c.list.gone = true
	c.shows("the first scrape after", one...)
	c.now = c.now.Add(time.Minute)
	c.list.gone = false
	c.shows("back", one...)
	c.list.gone = true
	c.shows("gone again", one...)
	c.now = c.now.Add(2*time.Minute - time.Second)
	c.shows("nearly two minutes", one...)
	c.now = c.now.Add(time.Second)
	c.shows("two minutes")
	c.ask("192.0.2.1:4711") // decided while the rule went
	for range 3 {
		c.shows("without a rule", "refuse call  1")
		c.now = c.now.Add(time.Minute)
	}
	c.list.gone = false
	c.ask("192.0.2.1:4711")
	c.shows("the rule came back", "refuse call  1", "refuse call guest-token-flood 1", "would_refuse call guest-token-flood 0")
}

// holdsByAddress holds everybody, each by a rule that the blocklist does not know.
type holdsByAddress struct{}

func (holdsByAddress) Find(id traffic.Identity, _ rules.Target, now traffic.Time) (blocklist.Block, bool) {
	return blocklist.Block{Rule: id.IP.String(), Hit: "0123456789abcdef0123456789abcdef", Until: now + 1}, true
}

func (holdsByAddress) Ready() bool { return true }

func (holdsByAddress) Rules() []string { return nil }

func TestSeriesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := newGate(t, holdsByAddress{}, func(o *Options, _ *traffic.IdentityMap) { o.Registerer = registry })
	for i := range 100_000 {
		address := fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)
		g.Check(&Request{Method: fmt.Sprint("M", i), Path: fmt.Sprint("/", i), From: traffic.Carrier{Peer: address, Header: http.Header{"X-Device-Id": {address}}}})
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n > 50 {
		t.Errorf("%d series and %v after 100,000 clients", n, err)
	}
}
