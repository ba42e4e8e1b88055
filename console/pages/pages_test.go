package pages

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/traffic"
)

func get(t testing.TB, p *Pages, v access.Visit, address string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	as(v, p.Handler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
	return w.Code, w.Body.String(), w.Header()
}

// An episode of which nothing is known from before the limit says so, on its page and its source's.
func TestPagesSayWhatIsNotKnownOfBefore(t *testing.T) {
	for earlier, want := range map[string]string{"": "What came before the limit is not known: the stages did not keep it", traffic.EarlierNone: "No request from before the limit"} {
		s := newScene()
		for i := range s.hits {
			s.hits[i].Samples = []string{`{"time":"2026-11-20T12:00:01Z","earlier":"` + earlier + `","path":"/only"}`}
		}
		p := newPages(t, s.options())
		for _, address := range []string{"/hits/" + s.hits[len(s.hits)-1].ID, "/sources?of=ip%3D203.0.113.7"} {
			if _, body, _ := get(t, p, admin(), address); !strings.Contains(body, want) || strings.Contains(body, ">before the limit<") {
				t.Errorf("%s with %q does not hold %q", address, earlier, want)
			}
		}
	}
}

// What history has left out is said wherever its episodes are counted; of a source it is said that some of it may be its.
func TestPagesSayWhatHistoryLeftOut(t *testing.T) {
	s := newScene()
	const said, perhaps = "780 more were left out by history.rows_per_minute", "some may be of those asked for"
	pages := map[string]bool{ // whether one source is asked for
		"/rules/guest-token-flood": false, "/explore?by=rule": false, "/explore?by=episode": false,
		"/explore?by=episode&source=ip%3D203.0.113.7": true, "/explore?by=day&field=ip": true, "/sources?of=ip%3D203.0.113.7": true,
	}
	for _, left := range []explore.LeftOut{{}, {Rows: 780, Events: 9000, Peak: 12}} {
		s.left = left
		p := newPages(t, s.options())
		for address, ofSource := range pages {
			_, body, _ := get(t, p, admin(), address)
			if got := strings.Contains(body, said); got != (left.Rows > 0) {
				t.Errorf("%s says %t that %d rows were left out", address, got, left.Rows)
			}
			if got := strings.Contains(body, perhaps); got != (left.Rows > 0 && ofSource) {
				t.Errorf("%s says %t that some may be of the source", address, got)
			}
		}
	}
}

// What gates refused is one figure, and what the block would have refused another: no mode turns the one into the
// other.
func TestPagesKeepRealAndWouldBeApart(t *testing.T) {
	const real, would = "<dd>662</dd><dt>requests refused by gates, 2 of them known good</dt>",
		"<dt>requests that its block alone would have refused</dt>"
	for _, mode := range []rules.Mode{rules.ModeShadow, rules.ModeCanary, rules.ModeBlock} {
		for _, refused := range []history.RefusedTotal{{}, {Events: 662, Known: 2, Blocks: 3}} {
			s := newScene()
			s.refused = map[string]history.RefusedTotal{"guest-token-flood": refused}
			for i := range s.rules {
				if r := &s.rules[i]; r.Newest.Version.ID == "guest-token-flood" {
					r.Mode = mode
				}
			}
			for i := range s.hits {
				s.hits[i].Refused = 7
			}
			_, body, _ := get(t, newPages(t, s.options()), admin(), "/rules/guest-token-flood")
			none := "<dd>0</dd><dt>requests refused by gates, 0 of them known good</dt>"
			if strings.Contains(body, real) != (refused.Events > 0) || strings.Contains(body,
				none) != (refused.Events == 0 && mode.Blocks()) || !strings.Contains(body, would) {
				t.Errorf("in %s, with %d requests refused:\n%s", mode, refused.Events, body)
			}
		}
	}
}

func TestPages(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	hit := s.hits[len(s.hits)-1]
	tests := []struct {
		address string
		status  int
		want    []string
	}{
		{"/rules/guest-token-flood", 200, []string{"Blocking", "waits for its promotion", "What they asked for, on their way to the limit and over it", `<span class="tag">before the limit</span>`}},
		{"/sources?of=ip%3D203.0.113.7", 200, []string{"203.0.113.7", "Timeline", "What it asked for", "3 over the limit, 2 from before it", `<span class="tag">before the limit</span>`, `<span class="tag tag-warn">over</span>`}},
		{"/hits/" + hit.ID, 200, []string{hit.ID[:16], "3 of its events were kept, and 2 from before the limit", `<span class="tag">before the limit</span>`}},
		{"/blocks", 200, []string{"in force"}},
		{"/audit", 200, []string{"ticket 4711", "shadow, generation 1 → block, generation 2", "(oidc)"}},
		{"/rules/search-hammer", 200, []string{"Canary: 10% of sources, step 2 of 3", "Next: 50% of them, at",
			"more than 0.4 % of its blocks are on known-good sources",
			"surely refuses more than 1.2 % of all requests", "held now", "10% of them by now"}},
		{"/", 200, []string{`canary 10%, step 2 of 3`}},
		{"/explore?mode=canary", 200, []string{`<option value="canary" selected>`}},
		{"/health", 200, []string{"route", "edge-7-31-abcdef012345", "4\u202f812\u202f337", "needs a look",
			"<b>3</b> unjudged", "8 would be"}},
		{"/search?q=", 200, []string{"What can be found"}},
	}
	for _, tt := range tests {
		status, body, _ := get(t, p, admin(), tt.address)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.address, status, tt.status, body)
		}
		for _, want := range tt.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not hold %q", tt.address, want)
			}
		}
	}
}

// What gates say of themselves is text, whatever it is; a state is the worst that holds; and a Redis that does not tell
// which gates there are is not one that has none.
func TestHealthOfGates(t *testing.T) {
	s := emptyScene()
	script := `"><script>alert(1)</script>`
	for _, tc := range []struct {
		name  string
		gates []console.Gate
		away  bool // Redis does not tell
		want  string
	}{
		{"none", nil, false, "No gate has told of itself"},
		{"unknown", nil, true, "Redis does not tell which gates there are"},
		{"not ready", []console.Gate{{GateReport: blocklist.GateReport{Unready: script, Observing: true},
			Doubts: []string{script}}}, false, ">not ready<"},
		{"doubted", []console.Gate{{GateReport: blocklist.GateReport{Observing: true}, Doubts: []string{script}}},
			false, ">needs a look<"},
		{"observes", []console.Gate{{GateReport: blocklist.GateReport{Observing: true}}}, false, ">observes<"},
		{"holds", []console.Gate{{}}, false, `data-label="State">holds<`},
		{"a build", []console.Gate{{GateReport: blocklist.GateReport{Build: script}}}, false, "&lt;script&gt;alert(1)"},
		{"a name", []console.Gate{{GateReport: blocklist.GateReport{Instance: script}}}, false,
			"&lt;script&gt;alert(1)"},
		{"the most", []console.Gate{{GateReport: blocklist.GateReport{
			Blocks: math.MaxInt, Passed: math.MaxInt64, Refused: math.MaxInt64,
		}}}, false, `class="num">9223372`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.pulse = console.Pulse{Gates: tc.gates, GatesUnknown: tc.away}
			for _, g := range tc.gates {
				for _, doubt := range g.Doubts {
					s.pulse.Problems = append(s.pulse.Problems, console.Problem{Part: "Gate " + g.Instance,
						Detail: doubt})
				}
			}
			code, page, _ := get(t, newPages(t, s.options()), admin(), "/health")
			if code != http.StatusOK || !strings.Contains(page, tc.want) || strings.Contains(page, script) {
				t.Errorf("%d, without %q or with the script:\n%s", code, tc.want, page)
			}
			if states := strings.Count(page, "data-label=\"State\""); states != len(tc.gates) {
				t.Errorf("%d rows for %d gates", states, len(tc.gates))
			}
		})
	}
}

// A rule that reaches beyond its owner's bounds says so, of each version that may act; others say nothing.
func TestARuleBeyondItsOwnersBounds(t *testing.T) {
	s := newScene()
	o := s.options()
	o.Bounds = bounds.Bounds{"discovery": {{Path: "/api/v2/search"}}, "identity-platform": {{Path: "/login"}}}
	p := newPages(t, o)
	for id, want := range map[string][]string{
		"catalogue-scrape": {"Version 3: match of rule catalogue-scrape reaches GET /api/v2/catalogue/*; owner " +
			"&#34;discovery&#34; is bound to any method /api/v2/search."},
		"guest-token-flood": {"Version 3: match of rule guest-token-flood",
			"Version 4: match of rule guest-token-flood"},
		"search-hammer": {}, "login-stuffing": {}, "partner-burst": {},
	} {
		_, body, _ := get(t, p, admin(), "/rules/"+id)
		if got := strings.Count(body, "class=\"note note-warn\">Beyond its owner"); got != len(want) {
			t.Errorf("%s: got %d notes; allowed: %d", id, got, len(want))
		}
		for _, words := range want {
			if !strings.Contains(body, words) {
				t.Errorf("%s does not say %q", id, words)
			}
		}
	}
}
