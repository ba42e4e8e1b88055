package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// get asks the handler for a path and decodes JSON into out, if out is given.
func get(t *testing.T, h http.Handler, path string, out any) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7080"+path, nil)
	h.ServeHTTP(w, r)
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatalf("%s: %v: %s", path, err, w.Body.Bytes())
		}
	}
	return w
}

func TestNewWantsEverything(t *testing.T) {
	whole := options(&stores{})
	for name, take := range map[string]func(o *Options){
		"History": func(o *Options) { o.History = nil }, "Blocks": func(o *Options) { o.Blocks = nil }, "Pulse": func(o *Options) { o.Pulse = nil },
		"Clock": func(o *Options) { o.Clock = nil }, "Logger": func(o *Options) { o.Logger = nil }, "Registerer": func(o *Options) { o.Registerer = nil },
		"http://x": func(o *Options) { o.Hosts = []string{"http://x"} },
	} {
		o := whole
		take(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, err := New(whole); err != nil {
		t.Fatal(err)
	}
	if _, err := New(whole); err == nil {
		t.Error("two consoles registered the same metrics")
	}
}

func TestHeaders(t *testing.T) {
	s := newScene(10)
	o := options(s.stores)
	o.Pages = somePages()
	c := newConsole(t, o)
	run(t, c)
	h := c.Handler()
	types := map[string]string{
		"/api/v1/rules": "application/json", "/api/v1/nowhere": "application/json", "/api/v1/hits/none": "application/json", "/page": "text/html",
	}
	for path, kind := range types {
		w := get(t, h, path, nil)
		want := map[string]string{
			"Content-Type": kind, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": policy,
		}
		for name, value := range want {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got, value)
			}
		}
	}
	for _, directive := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
	} {
		if !slices.Contains(strings.Split(policy, "; "), directive) {
			t.Errorf("the policy lacks %q", directive)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy allows too much: %s", policy)
	}
}

// somePages stands in for the pages.
func somePages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/html") })
	return mux
}

func TestForeignHostsAndMethods(t *testing.T) {
	o := options(&stores{})
	o.Hosts, o.Pages = []string{"weir.example.net"}, somePages()
	h := newConsole(t, o).Handler()
	tests := []struct {
		method, host string
		want         int
	}{
		{"GET", "127.0.0.1:7080", 200}, {"GET", "[::1]:7080", 200}, {"GET", "::1", 200}, {"GET", "localhost", 200}, {"GET", "LOCALHOST.:80", 200},
		{"HEAD", "localhost", 200}, {"GET", "weir.example.net:443", 200}, {"GET", "WEIR.example.net", 200},
		{"GET", "rebound.example.org:7080", 421}, {"GET", "localhost.example.org", 421}, {"GET", "127.0.0.1.example.org", 421}, {"GET", "", 421},
		{"POST", "localhost", 405}, {"DELETE", "localhost", 405},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(tt.method, "/page", nil)
		r.Host = tt.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s for host %q: got %d, want %d", tt.method, tt.host, w.Code, tt.want)
		}
	}
}

func TestSections(t *testing.T) {
	s := newScene(40)
	o, now := options(s.stores), wallClock()
	o.Clock = func() traffic.Time { return now } // no block ends between one section and the next
	c := newConsole(t, o)
	run(t, c)
	h := c.Handler()
	var pulse pulseView
	get(t, h, "/api/v1/pulse", &pulse)
	if pulse.Events.Total != s.pulse.Events || pulse.Lag.Records != s.pulse.lag() || len(pulse.Problems) != 0 {
		t.Errorf("pulse: %+v", pulse)
	}
	var known rulesView
	get(t, h, "/api/v1/rules", &known)
	var hits hitsView
	get(t, h, "/api/v1/hits", &hits)
	var blocks blocksView
	get(t, h, "/api/v1/blocks", &blocks)
	if len(known.Rules) != 5 || len(hits.Hits) != len(s.hits) || hits.More || known.Stale != nil || hits.Stale != nil || blocks.Stale != nil {
		t.Errorf("%d rules, %d of %d hits, more %t", len(known.Rules), len(hits.Hits), len(s.hits), hits.More)
	}
	held := 0
	for _, r := range known.Rules {
		held += r.Holds
	}
	if held == 0 || held != blocks.InForce || len(blocks.Released) != 2 {
		t.Errorf("rules hold %d, %d blocks are in force, %d released", held, blocks.InForce, len(blocks.Released))
	}
	for i := 1; i < len(hits.Hits); i++ {
		if hits.Hits[i-1].First < hits.Hits[i].First {
			t.Fatalf("hit %d began before hit %d", i-1, i)
		}
	}
	var evidence evidenceView
	if w := get(t, h, "/api/v1/hits/"+hits.Hits[0].ID, &evidence); w.Code != http.StatusOK {
		t.Fatalf("evidence: %d", w.Code)
	}
	if evidence.ID != hits.Hits[0].ID || len(evidence.Events) != 3 || evidence.Events[0].IP == "" || len(evidence.Commands) == 0 {
		t.Errorf("evidence: %+v", evidence)
	}
	if w := get(t, h, "/api/v1/hits/0123", nil); w.Code != http.StatusNotFound {
		t.Errorf("a hit that there is not: %d", w.Code)
	}
}

// A store that is away leaves its last word standing, with its age, and does not hold up the other one.
func TestStoreAway(t *testing.T) {
	s := newScene(40)
	c := newConsole(t, options(s.stores))
	run(t, c)
	h := c.Handler()
	v, err := c.hub.join("") // a viewer that keeps watching
	if err != nil {
		t.Fatal(err)
	}
	defer c.hub.leave(v)
	var before hitsView
	get(t, h, "/api/v1/hits", &before)
	s.change(func(s *stores) {
		s.away = map[string]error{partHistory: errors.New("dial tcp 192.0.2.77:5432: connection refused")}
	})
	var hits hitsView
	testbed.Eventually(t, pollTimeout*3, func() error {
		get(t, h, "/api/v1/hits", &hits)
		if hits.Stale == nil {
			return errors.New("the section is not stale")
		}
		return nil
	})
	if len(hits.Hits) != len(before.Hits) || hits.Stale.Since == nil || hits.Stale.Store != partHistory {
		t.Errorf("%d hits of %d, stale %+v", len(hits.Hits), len(before.Hits), hits.Stale)
	}
	var blocks blocksView
	get(t, h, "/api/v1/blocks", &blocks)
	if blocks.Stale != nil || blocks.Total == 0 {
		t.Errorf("the other store: stale %+v, %d blocks", blocks.Stale, blocks.Total)
	}
	var pulse pulseView
	testbed.Eventually(t, pollTimeout*3, func() error {
		w := get(t, h, "/api/v1/pulse", &pulse)
		if strings.Contains(w.Body.String(), "192.0.2.77") {
			t.Fatal("the address of a store went out to viewers")
		}
		if len(pulse.Problems) != 1 || pulse.Problems[0].Part != partHistory || !strings.Contains(pulse.Problems[0].Detail, "are those of") {
			return errors.New("the pulse does not tell of the problem")
		}
		return nil
	})
	s.change(func(s *stores) { s.away = nil })
	testbed.Eventually(t, pollTimeout*3, func() error {
		var now hitsView
		if get(t, h, "/api/v1/hits", &now); now.Stale != nil {
			return errors.New("the section is still stale")
		}
		return nil
	})
}

func TestNotRunning(t *testing.T) {
	c := newConsole(t, options(newScene(5).stores))
	stop := run(t, c)
	stop()
	w := get(t, c.Handler(), "/api/v1/rules", nil)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("after the end: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestStreamOverHTTP(t *testing.T) {
	s := newScene(20)
	c := newConsole(t, options(s.stores))
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	stop := run(t, c)
	answer, err := http.Get(server.URL + "/api/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	events := readEvents(answer.Body)
	seen := map[string]int{}
	for e := range events {
		if !json.Valid([]byte(e.data)) {
			t.Errorf("event %s is no JSON: %.100s", e.name, e.data)
		}
		if seen[e.name]++; seen[sectionPulse] > 1 && len(seen) == len(sections()) {
			break
		}
	}
	if len(seen) != len(sections()) {
		t.Fatalf("only these events came: %v", seen)
	}
	stop() // the stream ends by itself
	for range events {
		continue
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Errorf("the stream was cut instead of ended: %v", err)
	}
}
