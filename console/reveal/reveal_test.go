package reveal_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/sessions"
)

func TestMain(m *testing.M) { os.Exit(signintest.Main(m)) }

// bed is a router with a revealer in it, whose trail is in PostgreSQL.
type bed struct {
	*historytest.Bed
	masker *access.Masker
	router *access.Mux

	revealer *reveal.Revealer
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Bed: historytest.New(t)}
	var err error
	b.masker, err = access.NewMasker(access.Masking{Key: bytes.Repeat([]byte("k"), 32), Below: access.Admin, Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
	v, err := reveal.New(reveal.Options{Masker: b.masker, Trail: b.Audit, Refuse: refuse, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b.revealer, b.router = v, access.NewMux(refuse, nil)
	v.AddTo(b.router)
	return b
}

func (b *bed) ask(actor access.Actor, method, path, kind, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	b.router.ServeHTTP(w, r.WithContext(access.WithVisit(r.Context(), access.Visit{Actor: actor, CSRF: "t<k"})))
	return w
}

const form = "application/x-www-form-urlencoded"

func TestWhatIsRevealedIsAudited(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ana := access.Actor{Name: "ana", Role: access.Analyst}
	hidden := b.masker.Value(ana, "ip", "192.0.2.7")
	page := b.ask(ana, "GET", "/reveal?field=ip&of="+hidden, "", "")
	if page.Code != 200 || !strings.Contains(page.Body.String(), `value="`+hidden+`"`) || !strings.Contains(page.Body.String(), `name="csrf" value="t&lt;k"`) || strings.Contains(page.Body.String(), "192.0.2.7") {
		t.Errorf("got %d %s", page.Code, page.Body)
	}
	body := url.Values{"field": {"ip"}, "of": {hidden}, "reason": {"<b>ticket 4711"}}.Encode()
	if w := b.ask(ana, "POST", "/reveal", form, body); w.Code != 200 || !strings.Contains(w.Body.String(), "<strong>192.0.2.7</strong>") || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	user := b.masker.Value(ana, "user", "<script>")
	if w := b.ask(ana, "POST", "/reveal", form, url.Values{"field": {"user"}, "of": {user}, "reason": {"why"}}.Encode()); w.Code != 200 || strings.Contains(w.Body.String(), "<script>") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if value, err := b.revealer.Reveal(t.Context(), ana, reveal.Request{Field: "ip", Of: hidden, Reason: "ticket 4712"}); err != nil || value != "192.0.2.7" {
		t.Errorf("got %q, %v", value, err)
	}
	trail, err := b.Audit.Of(t.Context(), "ip="+hidden, 0)
	if err != nil || len(trail) != 2 || trail[0].Action != "reveal" || trail[0].Actor != "ana" || trail[0].Reason != "ticket 4712" || trail[1].Reason != "<b>ticket 4711" {
		t.Errorf("audited: %+v, %v", trail, err)
	}
}

func TestWhatIsNotRevealed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ana := access.Actor{Name: "ana", Role: access.Analyst}
	hidden := b.masker.Value(ana, "ip", "192.0.2.7")
	for name, tc := range map[string]struct {
		actor  access.Actor
		asks   reveal.Request
		status int
	}{
		"a viewer":         {access.Actor{Name: "vic", Role: access.Viewer}, reveal.Request{Field: "ip", Of: hidden, Reason: "why"}, 403},
		"no reason":        {ana, reveal.Request{Field: "ip", Of: hidden, Reason: " "}, 400},
		"a reason without": {ana, reveal.Request{Field: "ip", Of: hidden, Reason: "..."}, 400},
		"a long reason":    {ana, reveal.Request{Field: "ip", Of: hidden, Reason: strings.Repeat("a", 1001)}, 400},
		"another field":    {ana, reveal.Request{Field: "user", Of: hidden, Reason: "why"}, 400},
		"no pseudonym":     {ana, reveal.Request{Field: "ip", Of: "192.0.2.7", Reason: "why"}, 400},
		"too much":         {ana, reveal.Request{Field: strings.Repeat("a", 20<<10)}, 400},
	} {
		body := url.Values{"field": {tc.asks.Field}, "of": {tc.asks.Of}, "reason": {tc.asks.Reason}}.Encode()
		if w := b.ask(tc.actor, "POST", "/reveal", form, body); w.Code != tc.status || strings.Contains(w.Body.String(), "<strong>") {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
	if w := b.ask(ana, "POST", "/reveal", form, url.Values{"field": {"ip"}, "of": {hidden}}.Encode()); w.Code != 400 || !strings.Contains(w.Body.String(), "words that say why") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if trail, err := b.Audit.Of(t.Context(), "", 0); err != nil || len(trail) > 0 {
		t.Errorf("audited: %+v, %v", trail, err)
	}
	b.Close()
	w := b.ask(ana, "POST", "/reveal", form, url.Values{"field": {"ip"}, "of": {hidden}, "reason": {"why"}}.Encode())
	if w.Code != 503 || strings.Contains(w.Body.String(), "192.0.2.7") {
		t.Errorf("without a trail: got %d %s", w.Code, w.Body)
	}
}

func TestRevealMatrix(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	asked := signintest.CheckMatrix(t, signintest.Case{Router: b.router, Sessions: sessions.New(b.DB)})
	t.Logf("%d requests, 0 unexpected", asked)
}

func TestARevealerNeedsATrail(t *testing.T) {
	if _, err := reveal.New(reveal.Options{}); err == nil {
		t.Error(errors.New("what is revealed would be audited nowhere"))
	}
}
