package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/rules"
)

// prepare has rules and allow lists as they are at first, in shadow.
func (b *bed) prepare(names ...string) {
	b.t.Helper()
	for _, rule := range names {
		if _, err := b.in.History.Rules.Find(b.t.Context(), rule); err == nil {
			b.mode(rule, rules.ModeShadow)
			b.limit(acts.LimitRequest{Rule: rule, Reason: "tests"})
		}
		b.apply(document(rule, 10, "198.51.100.0/24"))
	}
}

func (b *bed) apply(text string) {
	b.t.Helper()
	if _, err := b.does.Apply(b.t.Context(), desk.Local("tests"), acts.ApplyRequest{Files: []acts.File{{Name: "a.yaml", Text: text}}, Reason: "tests"}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) mode(rule string, mode rules.Mode) {
	b.t.Helper()
	var err error
	if mode.Blocks() {
		_, err = b.does.Promote(b.t.Context(), desk.Local("tests"), acts.PromoteRequest{Rule: rule, Version: b.standing(rule).Version, To: mode, Reason: "tests", Override: "tests"})
	} else {
		_, err = b.does.SetMode(b.t.Context(), desk.Local("tests"), acts.ModeRequest{Rule: rule, Mode: mode, Reason: "tests"})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) limit(r acts.LimitRequest) {
	b.t.Helper()
	if _, err := b.does.SetLimit(b.t.Context(), desk.Local("tests"), r); err != nil {
		b.t.Fatal(err)
	}
}

// allowVersion is the version of the allow list that a rule names.
func (b *bed) allowVersion(rule string) int {
	b.t.Helper()
	lists, err := b.in.History.Rules.AllowLists(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range lists {
		if lists[i].List.ID == rule+"-partners" {
			return lists[i].Version
		}
	}
	return 0
}

func (b *bed) standing(rule string) acts.Standing {
	b.t.Helper()
	found, err := b.in.History.Rules.Find(b.t.Context(), rule)
	if err != nil {
		b.t.Fatal(err)
	}
	return acts.StandingOf(&found)
}

// blocks is what decides whom a rule refuses: its mode, the version and limit that act, what is pending, and the sources that it passes over.
func (b *bed) blocks(rule string) string {
	b.t.Helper()
	s := b.standing(rule)
	lists, err := b.in.History.Rules.AllowLists(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	text := fmt.Sprintf("%s generation %d version %d pending %d raised %v", s.Mode, s.Generation, s.Version, s.Pending, s.Raised != nil)
	for i := range lists {
		if strings.HasPrefix(lists[i].List.ID, rule) {
			text += fmt.Sprintf(" passes over %d", len(lists[i].List.Entries))
		}
	}
	ordered, err := b.in.History.Orders.Due(b.t.Context(), 100_000)
	if err != nil {
		b.t.Fatal(err)
	}
	never, err := b.in.History.Orders.NeverList(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return text + fmt.Sprintf(" by hand %d never %d", len(ordered), len(never))
}

// path into blocking: what can lead to a block, or to one that holds more, and how it is asked for.
type intoBlocking struct {
	name    string
	prepare func(b *bed, rule string) // from which the request leads to blocks
	route   string                    // of testdata/routes.txt
	body    func(b *bed, rule string) string
	closed  bool // it is refused to everybody
}

func (p *intoBlocking) request(b *bed, rule string) *http.Request {
	method, pattern, _ := strings.Cut(p.route, " ")
	at := strings.NewReplacer("{rule}", rule, "{list}", rule+"-partners").Replace(pattern)
	r := httptest.NewRequest(method, at, strings.NewReader(p.body(b, rule)))
	r.Header.Set("Content-Type", kind)
	if !strings.HasPrefix(at, "/api/") {
		r.Header.Set("Content-Type", form)
	}
	return r
}

func inShadow(b *bed, rule string) { b.prepare(rule) }

// withPending is a rule that blocks, with a stricter version that is pending.
func withPending(b *bed, rule string) {
	b.t.Helper()
	b.prepare(rule)
	b.mode(rule, rules.ModeBlock)
	b.apply(document(rule, 5, "198.51.100.0/24"))
}

func blocking(b *bed, rule string) {
	b.t.Helper()
	b.prepare(rule)
	b.mode(rule, rules.ModeBlock)
}

func raised(b *bed, rule string) {
	b.t.Helper()
	blocking(b, rule)
	b.limit(acts.LimitRequest{Rule: rule, Limit: 90, Until: time.Now().Add(time.Hour), Reason: "tests"})
}

func off(b *bed, rule string) {
	b.t.Helper()
	b.prepare(rule)
	b.mode(rule, rules.ModeOff)
}

// neverBlocked has an entry of the never-block list.
func neverBlocked(b *bed, rule string) {
	b.t.Helper()
	b.prepare(rule)
	if err := b.in.History.Orders.ChangeNever(b.t.Context(),
		orders.NeverChange{Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")}, By: "tests",
			Reason: "tests"}); err != nil {
		b.t.Fatal(err)
	}
}

func always(text string) func(*bed, string) string { return func(*bed, string) string { return text } }

func applied(limit int, entries ...string) func(*bed, string) string {
	return func(_ *bed, rule string) string {
		return fmt.Sprintf(`{"reason":"matrix","files":[{"name":"a.yaml","text":%q}]}`, document(rule, limit, entries...))
	}
}

func promoteForm(to string) func(*bed, string) string {
	return func(b *bed, rule string) string {
		s := b.standing(rule)
		return url.Values{
			"reason": {"matrix"}, "override": {"matrix"}, "confirm": {"yes"}, "to": {to}, "version": {fmt.Sprint(max(s.Version, s.Pending))},
			"until": {time.Now().UTC().Add(-5 * time.Minute).Format(time.RFC3339Nano)},
		}.Encode()
	}
}

const (
	apiPromote  = "POST /api/v1/rules/{rule}/promote"
	pagePromote = "POST /rules/{rule}/promote"
	apiApply    = "POST /api/v1/apply"
	pageWrite   = "POST /write"
	pageEdit    = "POST /rules/{rule}/edit"
	apiBlock    = "POST /api/v1/blocks"
	pageBlock   = "POST /block"
	apiNever    = "POST /api/v1/never-block/entries"
	pageNever   = "POST /never-block/change"
)

// ruleAlone is document without its allow list.
func ruleAlone(rule string, limit int, _ ...string) string { return alone(document(rule, limit)) }

// written is a document that was tried on a page, and is applied.
func written(doc func(rule string, limit int, entries ...string) string, limit int) func(*bed, string) string {
	return func(b *bed, rule string) string { return b.writing(doc(rule, limit, "198.51.100.0/24")) }
}

func pathsIntoBlocking() []intoBlocking {
	return []intoBlocking{
		{"promoted to block", inShadow, apiPromote, always(`{"reason":"matrix","override":"matrix"}`), false},
		{"promoted to canary", inShadow, apiPromote, always(`{"reason":"matrix","override":"matrix","to":"canary"}`), false},
		{"a version promoted", inShadow, apiPromote, func(b *bed, rule string) string {
			return fmt.Sprintf(`{"reason":"matrix","override":"matrix","version":%d}`, b.standing(rule).Version)
		}, false},
		{"the pending version promoted", withPending, apiPromote, always(`{"reason":"matrix","override":"matrix","pending":true}`), false},
		{"the pending version promoted by its number", withPending, apiPromote, func(b *bed, rule string) string {
			return fmt.Sprintf(`{"reason":"matrix","override":"matrix","version":%d}`, b.standing(rule).Pending)
		}, false},
		{"a canary promoted to block", func(b *bed, rule string) { b.prepare(rule); b.mode(rule, rules.ModeCanary) }, apiPromote, always(`{"reason":"matrix","override":"matrix"}`), false},
		{"promoted on the page", inShadow, pagePromote, promoteForm("block"), false},
		{"to canary on the page", inShadow, pagePromote, promoteForm("canary"), false},
		{"the pending version promoted on the page", withPending, pagePromote, promoteForm("block"), false},
		{"a looser document of a rule that blocks", blocking, apiApply, applied(30, "198.51.100.0/24"), false},
		{"a stricter document of a rule that blocks, pending", blocking, apiApply, applied(5, "198.51.100.0/24"), false},
		{"a document that ends what is pending", withPending, apiApply, applied(10, "198.51.100.0/24"), false},
		{"a document of a list with an entry less", blocking, apiApply, applied(10), true},
		{"a stricter document written on the page, pending", blocking, pageWrite, written(document, 5), false},
		{"a looser one written on the page", blocking, pageWrite, written(document, 30), false},
		{"a stricter rule on its page, pending", blocking, pageEdit, written(ruleAlone, 5), false},
		{"what is pending ended on its page", withPending, pageEdit, written(ruleAlone, 10), false},
		{"an earlier version of a rule that blocks", func(b *bed, rule string) {
			inShadow(b, rule)
			b.apply(document(rule, 40, "198.51.100.0/24"))
			b.mode(rule, rules.ModeBlock)
		},
			"POST /api/v1/rules/{rule}/rollback", always(`{"reason":"matrix","to":1}`), false},
		{"a raised limit that is ended", raised, "POST /api/v1/rules/{rule}/limit", always(`{"reason":"matrix","limit":0}`), false},
		{"an earlier version of a rule that blocks, on the page", func(b *bed, rule string) {
			inShadow(b, rule)
			b.apply(document(rule, 40, "198.51.100.0/24"))
			b.mode(rule, rules.ModeBlock)
		},
			"POST /rules/{rule}/rollback", always("to=1&reason=matrix&confirm=yes"), false},
		{"a raised limit that is ended on the page", raised, "POST /rules/{rule}/limit",
			always("end=yes&reason=matrix&confirm=yes"), false},
		{"an entry taken off an allow list", blocking, "POST /api/v1/allow/{list}/entries", always(`{"reason":"matrix","remove":true,"entries":[{"kind":"cidr","value":"198.51.100.0/24"}]}`), true},
		{"an entry taken off an allow list on the page", blocking, "POST /allow/{list}/change",
			func(b *bed, rule string) string {
				return fmt.Sprintf("version=%d&remove=1&reason=matrix&confirm=yes", b.allowVersion(rule))
			}, true},
		{"blocked by hand", inShadow, apiBlock,
			always(`{"reason":"matrix","subject":"user=alice","everything":true,"for":"1h"}`), false},
		{"blocked by hand on the page", inShadow, pageBlock,
			always("of=user%3Dalice&for=1h&what=everything&reason=matrix&confirm=yes"), false},
		{"let be blocked", neverBlocked, apiNever,
			always(`{"reason":"matrix","remove":true,"entries":["198.51.100.7"]}`), false},
		{"let be blocked on the page", neverBlocked, pageNever,
			always("remove=198.51.100.7&reason=matrix&confirm=yes"), false},
		{"counted again", off, "POST /api/v1/rules/{rule}/enable", always(`{"reason":"matrix"}`), false},
		{"counted again, on the page", off, "POST /rules/{rule}/enable", always("reason=matrix&confirm=yes"), false},
	}
}

// harmless are the routes by which something changes and nobody is blocked, and why.
func harmless() map[string]string {
	return map[string]string{
		"POST /api/v1/rules/{rule}/demote":  "holds nobody any more",
		"POST /api/v1/rules/{rule}/disable": "holds nobody any more",
		"POST /api/v1/rules/{rule}/reset":   "forgets what was counted",
		"POST /api/v1/rules/{rule}/release": "lets somebody through",
		"POST /rules/{rule}/demote":         "holds nobody any more",
		"POST /rules/{rule}/reset":          "forgets what was counted",
		"POST /rules/{rule}/disable":        "holds nobody any more",
		"POST /release":                     "lets somebody through",
		"POST /api/v1/history/erase":        "releases nobody, blocks nobody",
		"POST /api/v1/try":                  "tells what would be, and changes nothing",
		"POST /erase":                       "releases nobody, blocks nobody",
		"POST /signout":                     "ends a session",
		// Rules that block count on behind the gap as they did before it: whose rule it is, and what it blocks, stays.
		"POST /api/v1/partitions/{side}/{partition}/resume": "lets a partition go on",
		"POST /partitions/{side}/{partition}/resume":        "lets a partition go on",
		"POST /signin/invite":                               "begins a session",
		"POST /signin/token":                                "begins a session",
		"POST /reveal":                                      "shows a value",
		"POST /api/v1/reveal":                               "shows a value",
		"POST /explore/views":                               "keeps a question",
		"POST /explore/views/remove":                        "forgets a question",
	}
}

// everyPathIntoBlocking: nobody but an admin and the owner of the rule gets by any path to a block, or to one that holds more.
func everyPathIntoBlocking(t *testing.T, b *bed, m *signintest.Matrix) {
	paths := pathsIntoBlocking()
	known := harmless()
	for i := range paths {
		known[paths[i].route] = "a path into blocking"
	}
	for _, route := range m.Routes() {
		if key := route.Method + " " + route.Pattern; route.CSRF() && known[key] == "" {
			t.Errorf("%s changes something: can it lead to a block? It belongs among pathsIntoBlocking, or harmless", key)
		}
	}
	asked, through := 0, 0
	for i := range paths {
		p := &paths[i]
		for _, rule := range []string{own, other} {
			p.prepare(b, rule)
			for n, who := range m.Cast(i % 2) {
				if n >= 2 && n%2 != i/2%2 { // by session or by token: the matrix asks by both
					continue
				}
				asked++
				if p.judge(t, b, m, rule, who) {
					through++
					p.prepare(b, rule)
				}
			}
		}
	}
	t.Logf("%d paths, %d requests, %d of them by who may", len(paths), asked, through)
}

// judge asks as somebody, and reports whether something has changed.
func (p *intoBlocking) judge(t *testing.T, b *bed, m *signintest.Matrix, rule string, who signintest.Caller) bool {
	t.Helper()
	byHand := slices.Contains([]string{apiBlock, pageBlock, apiNever, pageNever}, p.route) // of no rule, so of no owner
	may := who.Actor.Role == access.Admin || !byHand && who.Actor.Role == access.Owner && who.Actor.Owns(ownerOf(rule))
	before := b.blocks(rule)
	status := m.Send(p.request(b, rule), who)
	after := b.blocks(rule)
	switch {
	case p.closed && (after != before || status < http.StatusBadRequest):
		t.Errorf("%s, rule %s, %s: status %d, from %s to %s, and it is closed", p.name, rule, who.Name, status, before, after)
	case may && !p.closed && (after == before || status >= http.StatusBadRequest):
		t.Errorf("%s, rule %s, %s: status %d, and it is still %s", p.name, rule, who.Name, status, after)
	case !may && (after != before || status != http.StatusUnauthorized && status != http.StatusForbidden):
		t.Errorf("%s, rule %s, %s: status %d, from %s to %s", p.name, rule, who.Name, status, before, after)
	}
	return after != before
}
