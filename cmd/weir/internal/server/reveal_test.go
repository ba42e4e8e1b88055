package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
)

// masked has values shown to owners and admins only, so that analysts reveal them.
func masked(c *config.Config) {
	c.Console.Masking = config.Masking{Below: access.Owner.String(), Secret: config.Secret(strings.Repeat("k", access.MaskKeyBytes)), Fields: access.DefaultMaskedFields()}
}

// TestRevealing: at the server that weir console serves an analyst sees what is behind a pseudonym, by page and API, and the trail says so;
// a viewer gets 403, is not shown it on any page, and nothing is audited.
func TestRevealing(t *testing.T) {
	b := newBed(t, masked)
	b.prepare(own)
	const secret = "203.0.113.77"
	if err := b.in.History.Audit.Add(t.Context(), audit.Entry{Actor: "ann", Action: "release", Object: "block " + own + " ip=" + secret + "%2F32", Reason: "of " + secret}); err != nil {
		t.Fatal(err)
	}
	m := signintest.NewMatrix(t, signintest.Case{Serve: b.serve, Sessions: sessions.New(b.in.History.DB)})
	masker, err := b.in.Config.Console.Masker()
	if err != nil {
		t.Fatal(err)
	}
	revealed := func() int {
		found, err := b.in.History.Audit.Find(t.Context(), audit.Query{Action: string(access.Reveal)})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for _, who := range m.Cast(0) {
		hidden := masker.Value(access.Actor{Role: access.Analyst}, "ip", secret)
		post := func(at, kind, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, at, strings.NewReader(body))
			r.Header.Set("Content-Type", kind)
			return m.Answer(r, who)
		}
		before, may := revealed(), who.Actor.Role >= access.Analyst
		page := post("/reveal", form, "field=ip&of="+hidden+"&reason=ticket+4711")
		program := post("/api/v1/reveal", kind, `{"field":"ip","of":"`+hidden+`","reason":"ticket 4711"}`)
		for at, w := range map[string]*httptest.ResponseRecorder{"/reveal": page, "/api/v1/reveal": program} {
			if shown := strings.Contains(w.Body.String(), secret); shown != may || may && w.Code != http.StatusOK || !may && w.Code != http.StatusForbidden && w.Code != http.StatusUnauthorized {
				t.Errorf("%s as %s: %d %s", at, who.Name, w.Code, w.Body)
			}
		}
		if n := revealed() - before; may && n != 2 || !may && n != 0 {
			t.Errorf("%s: %d entries of the trail", who.Name, n)
		}
		source := m.Answer(httptest.NewRequest(http.MethodGet, "/sources?of=ip%3D"+hidden, nil), who).Body.String()
		if links := strings.Contains(source, "/reveal?field=ip"); links != (who.Actor.Role == access.Analyst) {
			t.Errorf("%s has a link to reveal on the source's page: %t", who.Name, links)
		}
		for _, at := range []string{"/audit", "/sources?of=ip%3D" + hidden, "/api/v1/audit", "/explore.csv?by=episode", "/api/v1/hits"} {
			text := m.Answer(httptest.NewRequest(http.MethodGet, at, nil), who).Body.String()
			if who.Actor.Role < access.Owner && strings.Contains(text, secret) {
				t.Errorf("%s as %s tells %s", at, who.Name, secret)
			}
		}
	}
}
