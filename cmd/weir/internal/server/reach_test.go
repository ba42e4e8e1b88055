package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/audit"
)

// reachesByToken asks a server of which owners are bound, as people with tokens do.
func reachesByToken(t *testing.T, b *bed) {
	c := *b.in.Config
	token := func(name string) string {
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:])
	}
	for name, role := range map[string]string{"anna": "analyst", "sue": "owner", "ada": "admin"} {
		sum := sha256.Sum256([]byte(token(name)))
		one := config.Token{Name: name, Role: role, SHA256: hex.EncodeToString(sum[:]), Expires: "2099-01-31"}
		if role == "owner" {
			one.Owners = []string{"search"}
		}
		c.Console.Tokens = append(c.Console.Tokens, one)
	}
	var bound config.Bound
	if err := bound.UnmarshalText([]byte("owner=search host=api.example.com path=/v1/search/*")); err != nil {
		t.Fatal(err)
	}
	c.Console.Bounds = []config.Bound{bound}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := b.start(t, server.Options{Config: &c})
	ask := func(who, method, address, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, address, strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:4711"
		r.Host = "localhost"
		if who != "" {
			r.Header.Set("Authorization", "Bearer "+token(who))
		}
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	entries := func(act access.Act) int {
		all, err := b.in.History.Audit.Find(t.Context(), audit.Query{Action: string(act), Actor: "token:anna"})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}

	witnessed := 0
	for _, route := range s.Routes() {
		if !access.Witnessed(route.Act) {
			continue
		}
		witnessed++
		form := url.Values{"name": {"mine"}, "query": {"by=rule"}}.Encode()
		before := entries(route.Act)
		w := ask("anna", route.Method, route.Pattern, "application/x-www-form-urlencoded", form)
		if n := entries(route.Act) - before; n != 1 || w.Code >= 400 {
			t.Errorf("%s %s: got %d, %d entries of the audit trail; allowed: one", route.Method, route.Pattern,
				w.Code, n)
		}
	}
	if witnessed < 4 {
		t.Errorf("got %d routes that are written down; allowed: files and views", witnessed)
	}

	for _, address := range []string{"//x", "/x/../health", "/api/v1//rules", "/nothing", "/health", "/api/v1/me",
		"/signin",
		"/assets/main.js", "/reveal", "/api/v1/nothing"} {
		for _, who := range []string{"", "ada"} {
			if w := ask(who, http.MethodGet, address, "", ""); w.Header().Get("Content-Security-Policy") == "" ||
				w.Header().Get("X-Content-Type-Options") == "" {
				t.Errorf("%s as %q: got %d without a policy; allowed: every answer has one", address, who, w.Code)
			}
		}
	}

	apply := func(who, match string) *httptest.ResponseRecorder {
		text, err := json.Marshal(acts.ApplyRequest{Alone: true, DryRun: true, Reason: "x", Files: []acts.File{{
			Name: "r.yaml", Text: "id: reaching\nowner: search\nmatch: " + match +
				"\nkey: [ip]\nlimit: 9\nwindow: 1m\n"}}})
		if err != nil {
			t.Fatal(err)
		}
		return ask(who, http.MethodPost, "/api/v1/apply", "application/json", string(text))
	}
	if w := apply("sue", "{host: api.example.com, path: /v1/search/all}"); w.Code != http.StatusOK {
		t.Errorf("a rule within: got %d %s", w.Code, w.Body)
	}
	w := apply("sue", "{method: POST, path: /login}")
	var problem struct{ Type, Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusForbidden ||
		problem.Type != "urn:weir:problem:forbidden" ||
		problem.Detail != "apply needs the role admin here: match of rule "+
			"reaching reaches POST /login (every host, since it names none); owner \"search\" is bound to any method "+
			"/v1/search/*, host api.example.com; nothing was done" {
		t.Errorf("a rule beyond: got %d %s", w.Code, w.Body)
	}
	if w := apply("ada", "{method: POST, path: /login}"); w.Code != http.StatusOK {
		t.Errorf("a rule beyond, by an admin: got %d %s", w.Code, w.Body)
	}
}
