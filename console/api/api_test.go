package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const blocked = traffic.Subject("ip=203.0.113.9%2F32&device=tv-7")

// block writes a block as ENFORCE does.
func (b *bed) block(t *testing.T, rule string) {
	t.Helper()
	modes, err := b.Rules.Modes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.redis.SyncModes(t.Context(), traffic.At(time.Now()), modes); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == rule })
	now := traffic.At(time.Now())
	raise := blocklist.Raise{
		Name:  blocklist.Name{Subject: blocked, Rule: rule},
		Block: blocklist.NewBlock(rule, modes[at].Generation, strings.Repeat("ab", 16), now, now.Add(time.Hour)),
	}
	if _, err := blocklist.NewWriter(b.redis).Raise(t.Context(), []blocklist.Raise{raise}); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentIsValid: it is OpenAPI 3.1, and says of each route who may.
func TestDocumentIsValid(t *testing.T) {
	b := newBed(t, nil)
	if ok, errs := b.validate.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("%s: %s", e.Message, e.Reason)
		}
	}
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			ID  string     `json:"operationId"`
			Act access.Act `json:"x-weir-act"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(b.api.Document(), &document); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1") {
		t.Errorf("openapi: %s", document.OpenAPI)
	}
	ids, described := map[string]bool{}, 0
	for _, r := range b.api.Routes() {
		op, ok := document.Paths[r.Pattern][strings.ToLower(r.Method)]
		if !ok || op.Act != r.Act || op.ID == "" || ids[op.ID] {
			t.Errorf("%s %s is described as %+v", r.Method, r.Pattern, op)
		}
		ids[op.ID] = true
	}
	for _, methods := range document.Paths {
		described += len(methods)
	}
	if described != len(b.api.Routes()) {
		t.Errorf("%d operations are described, %d served", described, len(b.api.Routes()))
	}
}

// TestEveryRouteAnswersAsDescribed asks each route for something that succeeds; requests and answers are held to the document.
func TestEveryRouteAnswersAsDescribed(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"), historytest.Document("logins"))
	list := acts.File{Name: "office.yaml", Text: "kind: allow\nid: office\nowner: identity\nentries:\n  - {cidr: 192.0.2.0/24, reason: the office}\n"}
	until := traffic.At(time.Now()).Add(time.Hour).Std()
	source, offset := 5, int64(70)
	b.halt(t, 2, source, offset)
	asked := map[string]bool{}
	for _, q := range []struct {
		method, path, pattern string
		body                  any
		status                int
	}{
		{"GET", "/api/v1/openapi.json", "", nil, 200}, {"GET", "/api/v1/me", "", nil, 200}, {"GET", "/api/v1/health", "", nil, 200},
		{"GET", "/api/v1/rulebook?limit=1&mode=shadow", "/api/v1/rulebook", nil, 200},
		{"GET", "/api/v1/rules/tokens", "/api/v1/rules/{rule}", nil, 200},
		{"GET", "/api/v1/rules/tokens/history?limit=3", "/api/v1/rules/{rule}/history", nil, 200},
		{"GET", "/api/v1/rules/tokens/evidence?version=1", "/api/v1/rules/{rule}/evidence", nil, 200},
		{"POST", "/api/v1/rules/tokens/promote", "/api/v1/rules/{rule}/promote", acts.PromoteRequest{Reason: "seen enough", Override: "no evidence in a test"}, 200},
		{"GET", "/api/v1/blocklist?rule=tokens&released=true", "/api/v1/blocklist", nil, 200},
		{"POST", "/api/v1/rules/tokens/release", "/api/v1/rules/{rule}/release", acts.ReleaseRequest{Subject: blocked, Reason: "ticket 1"}, 200},
		{"POST", "/api/v1/rules/tokens/limit", "/api/v1/rules/{rule}/limit", acts.LimitRequest{Limit: 50, Until: until, Reason: "the sale"}, 200},
		{"POST", "/api/v1/rules/tokens/demote", "/api/v1/rules/{rule}/demote", api.Reasoned{Reason: "a partner"}, 200},
		{"POST", "/api/v1/rules/tokens/disable", "/api/v1/rules/{rule}/disable", api.Reasoned{Reason: "too loud"}, 200},
		{"POST", "/api/v1/rules/tokens/enable", "/api/v1/rules/{rule}/enable", api.Reasoned{Reason: "again"}, 200},
		{"POST", "/api/v1/blocks", "", acts.BlockRequest{Subject: "ip=198.51.100.7%2F32", Everything: true, For: "1h",
			DryRun: true}, 200},
		{"POST", "/api/v1/blocks", "", acts.BlockRequest{Subject: "ip=198.51.100.7%2F32", Match: "{path: /v1/*}",
			For: "1h", Reason: "ticket 1"}, 200},
		{"POST", "/api/v1/never-block/entries", "", acts.NeverRequest{Entries: []string{"203.0.113.0/24",
			"2001:db8::7"}, Until: acts.End(traffic.At(until)), Reason: "the office"}, 200},
		{"GET", "/api/v1/never-block", "", nil, 200},
		{"POST", "/api/v1/try", "", acts.TryRequest{Files: []acts.File{list}}, 200},
		{"POST", "/api/v1/apply", "", acts.ApplyRequest{Files: []acts.File{list}, Reason: "the office"}, 200},
		{"POST", "/api/v1/allow/office/entries", "/api/v1/allow/{list}/entries", acts.AllowRequest{Entries: []acts.AllowSource{{Kind: rules.AllowCIDR, Value: "198.51.100.0/24"}}, Reason: "the new office"}, 200},
		{"POST", "/api/v1/rules/logins/reset", "/api/v1/rules/{rule}/reset", acts.ResetRequest{Subject: blocked, Reason: "a load test"}, 200},
		{"POST", "/api/v1/history/erase", "", acts.EraseRequest{Subject: "user=alice", Reason: "asked for it", DryRun: true}, 200},
		{"GET", "/api/v1/audit?limit=5&object=rule%20tokens", "/api/v1/audit", nil, 200},
		{"GET", "/api/v1/allow?limit=1", "/api/v1/allow", nil, 200},
		{"GET", "/api/v1/allow/office?version=1", "/api/v1/allow/{list}", nil, 200},
		{"GET", "/api/v1/rules/tokens/counters?subject=ip%3D203.0.113.7%252F32%26device%3Dtv-7",
			"/api/v1/rules/{rule}/counters", nil, 200},
		{"GET", "/api/v1/partitions?stopped=true", "/api/v1/partitions", nil, 200},
		{"POST", "/api/v1/partitions/keyed/2/resume", "/api/v1/partitions/{side}/{partition}/resume",
			acts.ResumeRequest{GapSource: &source, GapOffset: &offset, Reason: "a disk"}, 200},
		{"GET", "/api/v1/rules/tokens/dossier?since=24h&version=1", "/api/v1/rules/{rule}/dossier", nil, 200},
		{"GET", "/api/v1/history/hits?since=7d&rule=tokens&kind=hit&state=running&mode=shadow&merged=true&limit=5", "", nil, 200},
		{"GET", "/api/v1/history/sources?order=peak", "", nil, 200}, {"GET", "/api/v1/history/top?by=hour&until=now", "", nil, 200},
		{"GET", "/api/v1/history/timeline?source=192.0.2.1", "", nil, 200}, {"GET", "/api/v1/history/seen-with?source=192.0.2.0/24", "", nil, 200},
		{"GET", "/api/v1/history/decisions?action=withheld", "", nil, 200}, {"GET", "/api/v1/history/audit?by=otto", "", nil, 404},
		{"GET", "/api/v1/history/late?since=24h&rule=tokens", "", nil, 200}, {"GET", "/api/v1/history/uncounted?reason=missing_field", "", nil, 200},
		{"GET", "/api/v1/history/refused?since=24h&rule=tokens", "", nil, 200},
		{"GET", "/api/v1/history/dead?since=24h&stage=route&reason=malformed", "", nil, 200}, {"GET", "/api/v1/history/replays", "", nil, 200},
		{"GET", "/api/v1/history/hits?source=user=a;b", "/api/v1/history/hits", nil, 400}, // not those of everybody
		{"GET", "/api/v1/pulse", "", nil, 200}, {"GET", "/api/v1/rules", "", nil, 200}, {"GET", "/api/v1/hits", "", nil, 200},
		{"GET", "/api/v1/hits/abababab", "/api/v1/hits/{id}", nil, 200}, {"GET", "/api/v1/blocks", "", nil, 200},
	} {
		if q.pattern == "/api/v1/blocklist" {
			b.block(t, "tokens")
		}
		if q.pattern == "" {
			q.pattern = q.path
		}
		asked[q.method+" "+strings.SplitN(q.pattern, "?", 2)[0]] = true
		if got := b.ask(t, "adam", q.method, q.path, q.body); got.status != q.status {
			t.Errorf("%s %s: %d %s", q.method, q.path, got.status, got.body)
		}
	}
	// A rollback needs two versions, why a recorded hit, and the stream is no JSON: they have tests of their own.
	for _, own := range []string{"POST /api/v1/rules/{rule}/rollback", "GET /api/v1/why/{id}", "GET /api/v1/why", "GET /api/v1/history/hits/{id}", "GET /api/v1/stream"} {
		asked[own] = true
	}
	for _, r := range b.api.Routes() {
		if !asked[r.Method+" "+r.Pattern] {
			t.Errorf("no request to %s %s", r.Method, r.Pattern)
		}
	}
}

func TestPagesOfRules(t *testing.T) {
	b := newBed(t, nil)
	ids := []string{"a", "b", "c", "d", "e"}
	var docs []rules.Document
	for _, id := range ids {
		docs = append(docs, historytest.Document(id))
	}
	b.Apply(t, docs...)
	var got []string
	for cursor := ""; ; {
		a := b.ask(t, "vera", "GET", "/api/v1/rulebook?limit=2&cursor="+cursor, nil)
		var page api.Page[api.Rule]
		a.read(t, &page)
		for i := range page.Items {
			got = append(got, page.Items[i].Newest.Version.ID)
		}
		if len(page.Items) > 2 {
			t.Fatalf("a page of %d", len(page.Items))
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("pages give %v", got)
	}
}

func TestWrongRequestsNameFieldAndAllowed(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	for _, q := range []struct {
		method, path string
		body         any
		status       int
		field        string
	}{
		{"GET", "/api/v1/rulebook?limit=0", nil, 400, "limit"}, {"GET", "/api/v1/rulebook?limit=x", nil, 400, "limit"},
		{"GET", "/api/v1/rulebook?limit=1&limit=2", nil, 400, "limit"}, {"GET", "/api/v1/rulebook?mode=loud", nil, 400, "mode"},
		{"GET", "/api/v1/rulebook?cursor=%21", nil, 400, "cursor"}, {"GET", "/api/v1/rulebook?colour=red", nil, 400, "colour"},
		{"GET", "/api/v1/blocklist?subject=nobody", nil, 400, "subject"}, {"GET", "/api/v1/why/zzzzzzzz", nil, 400, "id"},
		{"GET", "/api/v1/allow/office?version=0", nil, 400, "version"},
		{"GET", "/api/v1/allow/office?version=x", nil, 400, "version"},
		{"GET", "/api/v1/allow?limit=1001", nil, 400, "limit"}, {"GET", "/api/v1/allow?cursor=%21", nil, 400, "cursor"},
		{"GET", "/api/v1/rules/tokens/counters?subject=nobody", nil, 400, "subject"},
		{"GET", "/api/v1/why", nil, 400, "source"}, {"GET", "/api/v1/why?source=192.0.2.300", nil, 400, "source"},
		{"GET", "/api/v1/history/hits/zzzzzzzz", nil, 400, "id"}, {"GET", "/api/v1/history/hits?since=tomorrow", nil, 400, "since"},
		{"GET", "/api/v1/history/hits?since=2024-02-01&until=2024-01-01", nil, 400, "until"}, {"GET", "/api/v1/history/hits?source=field=x", nil, 400, "source"},
		{"GET", "/api/v1/history/hits?limit=1001", nil, 400, "limit"}, {"GET", "/api/v1/history/hits?cursor=x", nil, 400, "cursor"},
		{"GET", "/api/v1/history/hits?state=over", nil, 400, "state"}, {"GET", "/api/v1/history/top?by=minute", nil, 400, "by"},
		{"GET", "/api/v1/history/hits?replay=a/b", nil, 400, "replay"}, {"GET", "/api/v1/history/hits?format=xml", nil, 400, "format"},
		{"GET", "/api/v1/history/timeline", nil, 400, "source"}, {"GET", "/api/v1/history/decisions?action=blocked", nil, 400, "action"},
		{"GET", "/api/v1/rules/tokens/dossier?since=101d", nil, 400, "since"}, {"GET", "/api/v1/rules/tokens/dossier?pending=true&candidate=true", nil, 400, "pending"},
		{"POST", "/api/v1/rules/tokens/promote", map[string]any{}, 400, "reason"},
		{"POST", "/api/v1/rules/tokens/promote", map[string]any{"reason": "…"}, 400, "reason"},
		{"POST", "/api/v1/rules/tokens/promote", map[string]any{"reason": 5}, 400, "reason"},
		{"POST", "/api/v1/rules/tokens/promote", map[string]any{"reason": "x", "colour": "red"}, 400, "body"},
		{"POST", "/api/v1/rules/tokens/promote", map[string]any{"reason": "x", "rule": "other"}, 400, "rule"},
		{"POST", "/api/v1/rules/tokens/promote", `{"reason": "x"} {}`, 400, "body"},
		{"POST", "/api/v1/rules/tokens/limit", map[string]any{"reason": "x", "limit": 9}, 400, "until"},
		// The Unix epoch is a time that is over, and not the absence of one.
		{"POST", "/api/v1/never-block/entries", map[string]any{"reason": "x", "entries": []string{"203.0.113.0/24"},
			"until": "1970-01-01T00:00:00Z"}, 400, "until"},
		{"POST", "/api/v1/allow/office/entries", map[string]any{"reason": "x",
			"entries": []any{map[string]any{"kind": "cidr", "value": "203.0.113.0/24"}},
			"for":     "soon"}, 400, "for"},
		{"POST", "/api/v1/rules/tokens/limit", map[string]any{"reason": "x", "limit": 9, "for": "2h",
			"until": "2036-01-01T00:00:00Z"}, 400, "until"},
		{"POST", "/api/v1/rules/tokens/release", map[string]any{"reason": "x", "subject": "no subject"}, 400, "subject"},
		{"POST", "/api/v1/apply", map[string]any{"files": []any{}}, 400, "files"},
	} {
		got := b.askWrongly(t, "adam", q.method, q.path, q.body)
		p := got.problem(t)
		if got.status != q.status || p.Field != q.field || p.Allowed == "" {
			t.Errorf("%s %s %v: %d %s", q.method, q.path, q.body, got.status, got.body)
		}
	}
	if got := b.askWrongly(t, "adam", "POST", "/api/v1/rules/tokens/promote", "reason=x", "Content-Type", "application/x-www-form-urlencoded"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form: %d %s", got.status, got.body)
	}
	if got := b.askWrongly(t, "adam", "POST", "/api/v1/rules/tokens/promote", `{"reason": "`+strings.Repeat("x", 2<<20)+`"}`); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 2 MiB: %d", got.status)
	}
	if p := b.ask(t, "adam", "GET", "/api/v1/rules/tokenz", nil); p.status != 404 || p.problem(t).Thing != "rule" || !strings.Contains(p.problem(t).Detail, "did you mean tokens?") {
		t.Errorf("an unknown rule: %d %s", p.status, p.body)
	}
	set, err := b.Rules.Find(t.Context(), "tokens")
	if err != nil || set.Mode != rules.ModeShadow {
		t.Errorf("a wrong request promoted: %v, %v", set.Mode, err)
	}
}

// TestTwoOwnersAtOnce: of two who have looked at the same rule, the second is told what the first has done, and nothing is done twice.
func TestTwoOwnersAtOnce(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	seen := b.ask(t, "otto", "GET", "/api/v1/rules/tokens", nil).header.Get("ETag")
	if got := b.ask(t, "otto", "GET", "/api/v1/rules/tokens", nil, "If-None-Match", seen); got.status != http.StatusNotModified || len(got.body) > 0 {
		t.Errorf("unchanged: %d %s", got.status, got.body)
	}
	var both [2]answer
	done := make(chan int)
	for i, who := range []string{"otto", "adam"} {
		go func() {
			both[i] = b.ask(t, who, "POST", "/api/v1/rules/tokens/promote", acts.PromoteRequest{Reason: "by " + who, Override: "no evidence in a test"}, "If-Match", seen)
			done <- i
		}()
	}
	<-done
	<-done
	first, second := both[0], both[1]
	if first.status != 200 {
		first, second = second, first
	}
	var won acts.ModeDone
	first.read(t, &won)
	p := second.problem(t)
	if first.status != 200 || second.status != http.StatusPreconditionFailed || p.Current == nil || p.Current.By != won.By || p.Current.Mode != rules.ModeBlock {
		t.Fatalf("%d %s\n%d %s", first.status, first.body, second.status, second.body)
	}
	// Without If-Match the repeated promotion says whose it was.
	var again acts.ModeDone
	b.ask(t, "adam", "POST", "/api/v1/rules/tokens/promote", acts.PromoteRequest{Reason: "me too", Override: "no evidence in a test"}).read(t, &again)
	if again.Changed || again.By != won.By || again.Generation != won.Generation {
		t.Errorf("promoted again: %+v, want what was done by %s", again, won.By)
	}
	entries, err := b.Audit.Of(t.Context(), "rule tokens", 0)
	if n := len(slices.DeleteFunc(entries, func(e api.Entry) bool { return e.Action != "promote" })); err != nil || n != 1 {
		t.Errorf("%d promotions in the audit trail, %v", n, err)
	}
	if got := b.askWrongly(t, "adam", "POST", "/api/v1/rules/tokens/demote", api.Reasoned{Reason: "x"}, "If-Match", "nonsense"); got.status != 400 || got.problem(t).Field != "If-Match" {
		t.Errorf("If-Match without quotes: %d %s", got.status, got.body)
	}
}

// TestPlanThatWasShown: documents are applied as they were shown, or not at all.
func TestPlanThatWasShown(t *testing.T) {
	b := newBed(t, nil)
	doc := historytest.Document("tokens")
	b.Apply(t, doc)
	doc.Limit = 9
	request := acts.ApplyRequest{Files: []acts.File{{Name: "tokens.yaml", Text: doc.YAML()}}, DryRun: true}
	var shown acts.ApplyDone
	b.ask(t, "otto", "POST", "/api/v1/apply", request).read(t, &shown)
	if len(shown.Changes) != 1 || shown.Changes[0].Kind != rulestore.ChangeEdited || shown.Publication != nil {
		t.Fatalf("planned %+v", shown)
	}
	doc.Limit = 7
	b.Apply(t, doc)
	request.DryRun, request.Shown = false, shown.Plan
	if got := b.ask(t, "otto", "POST", "/api/v1/apply", request); got.status != http.StatusConflict || got.problem(t).Type != api.TypeChanged {
		t.Errorf("an overtaken plan: %d %s", got.status, got.body)
	}
	request.Shown = nil
	request.DryRun = true
	b.ask(t, "otto", "POST", "/api/v1/apply", request).read(t, &shown)
	request.DryRun, request.Shown = false, shown.Plan
	if got := b.ask(t, "otto", "POST", "/api/v1/apply", request); got.status != 200 {
		t.Errorf("a plan that holds: %d %s", got.status, got.body)
	}
	if got := b.ask(t, "adam", "POST", "/api/v1/rules/tokens/rollback", acts.RollbackRequest{Reason: "it was wrong"}); got.status != 200 {
		t.Errorf("a rollback: %d %s", got.status, got.body)
	}
	r, err := b.Rules.Find(t.Context(), "tokens")
	if err != nil || r.Newest.Version.Limit != 7 {
		t.Errorf("limit %d, %v", r.Newest.Version.Limit, err)
	}
}

// TestAPlanIsBoundToItsTexts: no other text is stored than the one that was shown, and none is overwritten that
// somebody has stored since.
func TestAPlanIsBoundToItsTexts(t *testing.T) {
	b := newBed(t, nil)
	doc := historytest.Document("tokens")
	b.Apply(t, doc)
	asked := func(text string, shown *rulestore.Plan) acts.ApplyRequest {
		return acts.ApplyRequest{Files: []acts.File{{Name: "tokens.yaml", Text: text}}, DryRun: shown == nil,
			Shown: shown}
	}
	plan := func(text string) *rulestore.Plan {
		t.Helper()
		var done acts.ApplyDone
		b.ask(t, "otto", "POST", "/api/v1/apply", asked(text, nil)).read(t, &done)
		return done.Plan
	}
	stored := func() string {
		t.Helper()
		r, err := b.Rules.Find(t.Context(), "tokens")
		if err != nil {
			t.Fatal(err)
		}
		return r.Newest.Source
	}
	apply := func(what, text string, shown *rulestore.Plan, status int) {
		t.Helper()
		before := stored()
		got := b.ask(t, "otto", "POST", "/api/v1/apply", asked(text, shown))
		now := map[bool]string{true: text, false: before}[status == http.StatusOK]
		if got.status != status || stored() != now {
			t.Errorf("%s: got %d %s, and %q is stored; allowed: %d, %q", what, got.status, got.body, stored(), status,
				now)
		}
	}
	noted := func(note string) string { return "# " + note + "\n" + doc.YAML() }
	shown := plan(noted("P"))
	if c := shown.Changes[0]; c.Kind != rulestore.ChangeText || c.Text == nil || c.Text.Was == c.Text.Becomes {
		t.Fatalf("planned %+v", c)
	}
	apply("another text by the same plan", noted("Q"), shown, http.StatusConflict)
	unbound := *shown
	unbound.Changes = slices.Clone(shown.Changes)
	unbound.Changes[0].Text = nil
	apply("a plan without texts", noted("P"), &unbound, http.StatusConflict)
	apply("as shown", noted("P"), shown, http.StatusOK)
	shown = plan(noted("R"))
	apply("another one's, meanwhile", noted("Q"), plan(noted("Q")), http.StatusOK)
	apply("in the place of a text that was not there", noted("R"), shown, http.StatusConflict)
	doc.Limit++
	shown = plan(noted("S"))
	apply("a version with another text", noted("T"), shown, http.StatusConflict)
	shown.Changes[0].Text = nil // of a client of before
	apply("a version as a client of before has it", noted("S"), shown, http.StatusOK)
}

// TestNobodyDecidesForAnotherOwner: an owner changes his rules alone, by no way those of others, and takes none over.
func TestNobodyDecidesForAnotherOwner(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	taken := historytest.Document("tokens")
	taken.Owner = "payments"
	given := historytest.Document("mine")
	given.Owner = "payments"
	given.Allow = nil
	for _, q := range []struct {
		path string
		body any
	}{
		{"/api/v1/rules/tokens/promote", acts.PromoteRequest{Reason: "x"}}, {"/api/v1/rules/tokens/demote", api.Reasoned{Reason: "x"}},
		{"/api/v1/rules/tokens/disable", api.Reasoned{Reason: "x"}}, {"/api/v1/rules/tokens/enable", api.Reasoned{Reason: "x"}},
		{"/api/v1/rules/tokens/limit", acts.LimitRequest{Reason: "x", Limit: 90, Until: time.Now().Add(time.Hour)}},
		{"/api/v1/rules/tokens/reset", acts.ResetRequest{Subject: blocked, Reason: "x"}},
		{"/api/v1/apply", acts.ApplyRequest{Files: []acts.File{{Name: "t.yaml", Text: taken.YAML()}}, Reason: "x"}},
		{"/api/v1/apply", acts.ApplyRequest{Files: []acts.File{{Name: "m.yaml", Text: given.YAML()}}, Prune: true, Reason: "x"}},
	} {
		for _, who := range []string{"olga", "anna", "vera"} {
			if got := b.ask(t, who, "POST", q.path, q.body); got.status != http.StatusForbidden {
				t.Errorf("%s, %s: %d %s", who, q.path, got.status, got.body)
			}
		}
		if got := b.ask(t, "", "POST", q.path, q.body); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("nobody, %s: %d %s", q.path, got.status, got.body)
		}
	}
	if r, err := b.Rules.Find(t.Context(), "tokens"); err != nil || r.Mode != rules.ModeShadow || r.Newest.Version.Number != 1 || r.Raised != nil || r.Removed {
		t.Errorf("the rule is %+v, %v", r, err)
	}
	if got := b.ask(t, "olga", "POST", "/api/v1/apply", acts.ApplyRequest{Files: []acts.File{{Name: "m.yaml", Text: given.YAML()}}}); got.status != 200 {
		t.Errorf("her own rule: %d %s", got.status, got.body)
	}
}

// TestStoresThatGoAway: the answer says what is done and what is not, without the address of a server.
func TestStoresThatGoAway(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	b.gates = errors.New("dial tcp 10.1.2.3:6379: connection refused")
	var done acts.ModeDone
	b.ask(t, "otto", "POST", "/api/v1/rules/tokens/promote", acts.PromoteRequest{Reason: "seen enough", Override: "no evidence in a test"}).read(t, &done)
	if !done.Changed || done.Published || done.Unpublished == "" || strings.Contains(done.Unpublished, "10.1.2.3") {
		t.Errorf("Redis is away: %+v", done)
	}
	b.gates = nil
	b.block(t, "tokens")
	b.refuses = errors.New("no broker of 10.1.2.3:9092 answers")
	got := b.ask(t, "anna", "POST", "/api/v1/rules/tokens/release", acts.ReleaseRequest{Subject: blocked, Reason: "ticket"})
	if p := got.problem(t); got.status != http.StatusServiceUnavailable || strings.Contains(string(got.body), "10.1.2.3") || !strings.Contains(p.Detail, "Kafka") {
		t.Errorf("Kafka is away: %d %s", got.status, got.body)
	}
	b.refuses = nil
	got = b.ask(t, "anna", "POST", "/api/v1/rules/tokens/release", acts.ReleaseRequest{Subject: blocked, Reason: "ticket", Wait: 100 * time.Millisecond})
	var released acts.ReleaseDone
	got.read(t, &released)
	if got.status != http.StatusAccepted || released.Done || released.Release == "" || !strings.Contains(released.Problem, "will take effect") {
		t.Errorf("ENFORCE does not run: %d %s", got.status, got.body)
	}
	if len(b.appended) != 1 || b.appended[0].By != "anna" || b.appended[0].ID != released.Release {
		t.Errorf("appended %+v", b.appended)
	}
	b.closePostgres(t)
	got = b.ask(t, "otto", "POST", "/api/v1/rules/tokens/demote", api.Reasoned{Reason: "a partner"})
	if p := got.problem(t); got.status != http.StatusServiceUnavailable || p.Status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("PostgreSQL is away: %d %s", got.status, got.body)
	}
}

// closePostgres ends all connections to the bed's database, and lets no new one in.
func (b *bed) closePostgres(t *testing.T) {
	t.Helper()
	config, err := pgx.ParseConfig(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := config.Database
	config.Database = "postgres"
	beside, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = beside.Close(t.Context()) }()
	if _, err := beside.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH ALLOW_CONNECTIONS false"); err != nil {
		t.Fatal(err)
	}
	if _, err := beside.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> $2", name, int32(b.Conn.PgConn().PID())); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseOffersWhatStands(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	b.block(t, "tokens")
	got := b.ask(t, "anna", "POST", "/api/v1/rules/tokens/release", acts.ReleaseRequest{Subject: "ip=203.0.113.9%2F32", Reason: "ticket"})
	p := got.problem(t)
	if got.status != 400 || p.Release == nil || len(p.Release.Offers) != 1 || p.Release.Offers[0].Subject != blocked || p.Release.Release != "" {
		t.Errorf("an address alone: %d %s", got.status, got.body)
	}
	got = b.ask(t, "anna", "POST", "/api/v1/rules/tokens/release", acts.ReleaseRequest{Subject: "ip=203.0.113.77%2F32&device=tv-7", Reason: "ticket"})
	if p := got.problem(t); got.status != 404 || p.Release == nil || p.Release.Blocked == nil || *p.Release.Blocked {
		t.Errorf("nobody: %d %s", got.status, got.body)
	}
	if got := b.askWrongly(t, "anna", "POST", "/api/v1/rules/tokens/release", map[string]any{"subject": blocked}); got.status != 400 || got.problem(t).Field != "reason" {
		t.Errorf("without a reason: %d %s", got.status, got.body)
	}
	if len(b.appended) != 0 {
		t.Errorf("appended %+v", b.appended)
	}
}

func TestActorsAreLimitedEachByThemselves(t *testing.T) {
	b := newBed(t, nil)
	limited := false
	for range 200 {
		got := b.askWrongly(t, "olga", "POST", "/api/v1/rules/none/demote", "{")
		if limited = got.status == http.StatusTooManyRequests; limited {
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			break
		}
	}
	if !limited {
		t.Error("200 acts at once are not limited")
	}
	if got := b.askWrongly(t, "adam", "POST", "/api/v1/rules/none/demote", "{"); got.status != 400 {
		t.Errorf("somebody else: %d %s", got.status, got.body)
	}
}
