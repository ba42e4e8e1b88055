package gate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// heldIdentity holds one client, whatever it asks for.
type heldIdentity struct{ holds func(traffic.Identity) bool }

func (h heldIdentity) Find(id traffic.Identity, _ rules.Target, now traffic.Time) (blocklist.Block, bool) {
	return blocklist.Block{Rule: "r", Hit: "0123456789abcdef", Until: now.Add(1e9), Scope: "all"}, h.holds(id)
}

func (h heldIdentity) Ready() bool { return true }

func (h heldIdentity) Rules() []string { return []string{"r"} }

var _ Blocklist = heldIdentity{}

// heldSession holds the session real, which a cookie tells.
func heldSession(o *Options, m *traffic.IdentityMap) {
	o.Blocklist = heldIdentity{func(id traffic.Identity) bool { return id.Session == "real" }}
	m.Session = traffic.FieldSource{Cookie: "sid", Vouched: true}
}

// TestNginxHoldsASessionInAnyCookieLine: nginx hands several Cookie lines on as they are, and an API takes the first
// cookie of a name; who is held as one session must not be served as it by adding another line.
func TestNginxHoldsASessionInAnyCookieLine(t *testing.T) {
	n := startNginx(t, newDoor(t, newGate(t, heldIdentity{}, heldSession).Handler()).address)
	for _, tt := range []struct {
		cookies []string
		want    int
	}{
		{[]string{"sid=real"}, 429},
		{[]string{"sid=real", "sid=other"}, 429},
		{[]string{"a=b", "sid=real; sid=other"}, 429},
		{[]string{"sid=other", "sid=real"}, 201},
		{[]string{"sid=other"}, 201},
	} {
		c := call{client: viewer, method: "POST", path: "/v1/guest-tokens"}
		for _, cookie := range tt.cookies {
			c.headers = append(c.headers, [2]string{"Cookie", cookie})
		}
		if got := n.send(c); got.status != tt.want {
			t.Errorf("%q: got %d %s, want %d", tt.cookies, got.status, got.body, tt.want)
		}
	}
}

// TestGateCountsRepeatedHeaders: several lines of an identity's header are nobody's, which somebody should be able to see.
func TestGateCountsRepeatedHeaders(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := newGate(t, heldIdentity{}, func(o *Options, m *traffic.IdentityMap) {
		o.Blocklist, o.Registerer = heldIdentity{func(id traffic.Identity) bool { return id.APIKey != "" }}, registry
		m.APIKey.Vouched = true
	})
	metrics := func(n string) string {
		lines := []string{"# HELP weir_gate_missing_total Requests that carry an identity in a way that says nobody's, by field and reason: repeated, its header has several lines.",
			"# TYPE weir_gate_missing_total counter"}
		for _, field := range []string{"api_key", "device", "session", "user"} {
			count := "0"
			if field == "api_key" {
				count = n
			}
			lines = append(lines, `weir_gate_missing_total{field="`+field+`",reason="repeated"} `+count)
		}
		return strings.Join(lines, "\n") + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(metrics("0")), "weir_gate_missing_total"); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		keys []string
		want int
	}{
		{[]string{"k1"}, http.StatusTooManyRequests},
		{[]string{"k1", "k2"}, http.StatusOK},
		{[]string{"k1, k2"}, http.StatusOK}, // as a proxy joins them
		{nil, http.StatusOK},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/forward-auth", nil)
		for _, key := range tt.keys {
			r.Header.Add("X-Api-Key", key)
		}
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%q: got %d, want %d", tt.keys, w.Code, tt.want)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(metrics("2")), "weir_gate_missing_total"); err != nil {
		t.Error(err)
	}
}

// TestGateBehindProxiesOfGivenPrefixes: the last entry of X-Forwarded-For is the peer of the proxy that asks; who is no
// proxy of ours is the client, whatever it writes before that.
func TestGateBehindProxiesOfGivenPrefixes(t *testing.T) {
	g := newGate(t, abuser(), func(_ *Options, m *traffic.IdentityMap) {
		if err := m.IP.TrustedProxies.UnmarshalText([]byte("10.0.0.0/8,198.51.100.7")); err != nil {
			t.Fatal(err)
		}
	})
	for _, tt := range []struct {
		name  string
		chain []string
		want  int
	}{
		{"the abuser through our proxy", []string{"192.0.2.1, 198.51.100.7"}, 429},
		{"through two, in lines of their own", []string{"203.0.113.5", "192.0.2.1", "10.0.0.2", "198.51.100.7"}, 429},
		{"past our proxy", []string{"192.0.2.1"}, 429},
		{"past our proxy, with a claim", []string{"203.0.113.5, 192.0.2.1"}, 429},
		{"past our proxy, with the claim of one", []string{"203.0.113.5, 10.0.0.2, 192.0.2.1"}, 429},
		{"a stranger claims the abuser's address", []string{"192.0.2.1, 198.51.100.66"}, 200},
		{"a viewer claims it behind our proxy", []string{"192.0.2.1, 203.0.113.5, 198.51.100.7"}, 200},
		{"a proxy that says nothing", []string{"198.51.100.7"}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for path, names := range map[string][2]string{
				"/v1/forward-auth": {"X-Forwarded-Method", "X-Forwarded-Uri"}, PathAuthRequest: {"X-Original-Method", "X-Original-Uri"},
			} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set(names[0], "POST")
				r.Header.Set(names[1], "/v1/guest-tokens")
				r.Header["X-Forwarded-For"] = tt.chain
				w := httptest.NewRecorder()
				g.Handler().ServeHTTP(w, r)
				want := tt.want
				if want == http.StatusTooManyRequests && path == PathAuthRequest {
					want = http.StatusForbidden
				}
				if w.Code != want {
					t.Errorf("%s: got %d, want %d", path, w.Code, want)
				}
			}
		})
	}
}
