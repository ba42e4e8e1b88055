package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

func TestMain(m *testing.M) { os.Exit(signintest.Main(m)) }

// The rules of two owners; each has an allow list of the same name.
const (
	own   = "logins"
	other = "searches"
)

func ownerOf(rule string) string { return map[string]string{own: "identity", other: "search"}[rule] }

// document is a rule with its allow list.
func document(rule string, limit int, entries ...string) string {
	listed := ""
	for _, e := range entries {
		listed += fmt.Sprintf("  - {cidr: %s, reason: tests}\n", e)
	}
	if listed == "" {
		listed = " []"
	} else {
		listed = "\n" + listed
	}
	return fmt.Sprintf(`kind: allow
id: %[1]s-partners
owner: %[2]s
entries:%[4]s
---
id: %[1]s
owner: %[2]s
match: {method: POST, path: /v1/%[1]s}
allow: [%[1]s-partners]
key: [ip]
limit: %[3]d
window: 60s
block: {key: [ip], ttl: 10m}
`, rule, ownerOf(rule), limit, listed)
}

// bed is the server that weir console serves, over PostgreSQL, a Redis and a Kafka of the testbed.
type bed struct {
	t    *testing.T
	in   *service.Installation
	does *acts.Service // by nobody's leave, to prepare what is asked
}

func newBed(t *testing.T, edit ...func(*config.Config)) *bed {
	t.Helper()
	c := config.Default()
	c.Namespace = testbed.Namespace(t)
	c.Kafka.Brokers, c.Redis.URL, c.Postgres.URL = testbed.Kafka(t), config.Secret(testbed.Redis(t)), config.Secret(historytest.Migrated(t, c.Namespace))
	c.Kafka.Partitions = config.Partitions{Requests: 1, Keyed: 1, Hits: 1}
	for _, one := range edit {
		one(c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	if _, err := stream.Migrate(t.Context(), c, quiet, "test", stream.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	in, err := service.Open(t.Context(), c, quiet, prometheus.NewRegistry(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	does, done, err := service.OpenActs(service.ActsOptions{
		Config: c, Log: quiet, History: in.History, Redis: in.Redis, Kafka: in.Kafka, Environment: environment(c),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return &bed{t, in, does}
}

func environment(c *config.Config) func(warn func(rules.Problem)) (rules.Environment, error) {
	return func(warn func(rules.Problem)) (rules.Environment, error) {
		conditions, err := condition.New()
		return rules.Environment{Identity: c.Identity, Conditions: conditions, Warn: warn}, err
	}
}

// serve is signintest.Case.Serve: the server as a configuration that says the same as o makes it.
func (b *bed) serve(t *testing.T, o signin.Options) (http.Handler, []access.Route) {
	t.Helper()
	c := *b.in.Config
	c.Console.PublicURL = o.PublicURL
	c.Console.OIDC.Issuer, c.Console.OIDC.ClientID, c.Console.OIDC.Owners, c.Console.OIDC.Roles = o.OIDC.Issuer, o.OIDC.ClientID, o.OIDC.Owners, map[string]string{}
	for group, role := range o.OIDC.Roles {
		c.Console.OIDC.Roles[group] = role.String()
	}
	for _, token := range o.Tokens {
		c.Console.Tokens = append(c.Console.Tokens, config.Token{
			Name: token.Name, Role: token.Role.String(), Owners: token.Owners, SHA256: hex.EncodeToString(token.SHA256[:]), Expires: token.Expires.Format(time.RFC3339),
		})
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s := b.start(t, server.Options{Config: &c})
	return s.Handler(), s.Routes()
}

// start makes a server and runs what keeps it up to date.
func (b *bed) start(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	s, _ := b.listen(t, o)
	return s
}

// listen is start, and where the server listens.
func (b *bed) listen(t *testing.T, o server.Options) (s *server.Server, address string) {
	t.Helper()
	o.Log, o.Registerer = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	o.Redis, o.Kafka = b.in.Redis, b.in.Kafka
	o.Pulse = func() console.Pulse { return console.Pulse{} }
	o.Environment = environment(o.Config)
	s, err := server.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	l, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range s.Parts(l) {
		ended := make(chan error, 1)
		go func() { ended <- part.Run(t.Context()) }()
		t.Cleanup(func() {
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", part.Name, err)
			}
		})
	}
	return s, l.Addr().String()
}

// matrix is everybody at the server, with both rules applied.
func (b *bed) matrix() *signintest.Matrix {
	b.t.Helper()
	n := 0
	m := signintest.NewMatrix(b.t, signintest.Case{
		Serve: b.serve, Sessions: sessions.New(b.in.History.DB), Own: own, Other: other, May: may(b.t), State: b.state,
		Path: path,
		Body: func(route access.Route, rule string) (string, string) {
			n++
			switch route.Pattern {
			case "/write":
				return form, b.writing(document(rule, 20+n))
			case "/rules/{rule}/edit":
				return form, b.writing(alone(document(rule, 20+n)))
			}
			return body(route, rule, 20+n)
		},
	})
	return m
}

// path has the list of a rule where a pattern names a list.
func path(route access.Route, rule string) string {
	if route.Rule != "list" {
		return ""
	}
	return strings.Replace(route.Pattern, "{list}", rule+"-partners", 1)
}

const (
	form = "application/x-www-form-urlencoded"
	kind = "application/json"
)

// writing is the form by which a text is applied that was tried.
func (b *bed) writing(text string) string {
	b.t.Helper()
	sum := sha256.Sum256([]byte(text))
	done, err := b.does.Apply(b.t.Context(), access.Actor{Name: "tests", Role: access.Admin, Via: access.ViaLocal},
		acts.ApplyRequest{Files: []acts.File{{Name: "text.yaml", Text: text}}, DryRun: true, Alone: true})
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := json.Marshal(done.Plan)
	if err != nil {
		b.t.Fatal(err)
	}
	return url.Values{"text": {text}, "do": {"apply"}, "tried": {hex.EncodeToString(sum[:])}, "plan": {string(plan)},
		"reason": {"matrix"}, "confirm": {"yes"}}.Encode()
}

// alone is a rule without the allow list that stands before it.
func alone(text string) string {
	_, rule, _ := strings.Cut(text, "---\n")
	return rule
}

// body is a request that a route carries out for who may, and that changes something for whoever is let in. n tells one from the next.
func body(route access.Route, rule string, n int) (contentType, text string) {
	switch {
	case !strings.HasPrefix(route.Pattern, "/api/"):
		return form, url.Values{
			"reason": {"matrix"}, "override": {"matrix"}, "confirm": {"yes"}, "to": {"block"}, "until": {time.Now().UTC().Add(-5 * time.Minute).Format(time.RFC3339Nano)},
			"rule": {own}, "subject": {"ip=192.0.2.1%2F32"}, "name": {"nobody at all"}, "query": {"by=rule"}, "shared": {"yes"},
		}.Encode()
	case strings.HasSuffix(route.Pattern, "/promote"):
		return kind, `{"reason":"matrix","override":"matrix"}`
	case strings.HasSuffix(route.Pattern, "/limit"):
		return kind, fmt.Sprintf(`{"reason":"matrix","limit":%d,"until":%q}`, 1000+n, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	case strings.HasSuffix(route.Pattern, "/rollback"):
		return kind, `{"reason":"matrix","to":1}`
	case strings.HasSuffix(route.Pattern, "/reset"), strings.HasSuffix(route.Pattern, "/release"):
		return kind, `{"reason":"matrix","subject":"ip=192.0.2.1%2F32"}`
	case strings.HasSuffix(route.Pattern, "/try"):
		return kind, fmt.Sprintf(`{"files":[{"name":"a.yaml","text":%q}]}`, document(rule, n))
	case strings.HasSuffix(route.Pattern, "/apply"):
		return kind, fmt.Sprintf(`{"reason":"matrix","files":[{"name":"a.yaml","text":%q}]}`, document(rule, n))
	case strings.HasSuffix(route.Pattern, "/entries"):
		return kind, fmt.Sprintf(`{"reason":"matrix","entries":[{"kind":"cidr","value":"198.51.100.%d/32"}]}`, n%250)
	case strings.HasSuffix(route.Pattern, "/reveal"):
		return kind, `{"reason":"matrix","field":"ip","of":"~0"}`
	}
	return kind, `{"reason":"matrix"}`
}

// state is all that requests could change, but for sessions.
func (b *bed) state() string {
	b.t.Helper()
	var text string
	err := b.in.History.DB.QueryRow(b.t.Context(), `SELECT concat_ws(' ',
		'modes', (SELECT string_agg(rule || '=' || mode || '/' || generation, ',' ORDER BY rule) FROM rule_modes),
		'versions', (SELECT count(*) FROM rule_versions), 'pending', (SELECT count(*) FROM pending_versions), 'ended', (SELECT count(*) FROM pending_versions WHERE ended_at IS NOT NULL),
		'raised', (SELECT string_agg(rule || '=' || rule_limit, ',' ORDER BY rule) FROM raised_limits),
		'lists', (SELECT count(*) FROM allow_versions), 'routings', (SELECT count(*) FROM routing_versions),
		'views', (SELECT count(*) FROM saved_views), 'audited', (SELECT count(*) FROM audit WHERE action <> 'sign-in'), 'sessions', (SELECT count(*) FROM sessions))`).Scan(&text)
	if err != nil {
		b.t.Fatal(err)
	}
	listing, err := b.in.Redis.Modes(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	modes := make([]string, len(listing))
	for i := range listing {
		modes[i] = fmt.Sprint(listing[i])
	}
	slices.Sort(modes)
	return fmt.Sprintf("%s redis %s", text, modes)
}
