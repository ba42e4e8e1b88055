package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/traffic"
)

// guessed are values that no source has: who names them learns nothing, their pseudonyms included.
func guessed() []traffic.SubjectValue {
	return []traffic.SubjectValue{{Field: "ip", Value: "203.0.113.199"}, {Field: "user", Value: "guessed-77"}}
}

// asking is one request.
type asking struct{ method, at, body string }

// walk is all routes as all masked roles of one configuration.
type walk struct {
	*bed
	m       *signintest.Matrix
	masker  *access.Masker
	fields  []string
	ids     []string
	n       int
	reached map[string]bool // routes that have answered with success
}

// TestNoMaskedRoleFindsAValue asks every route of the server as each role that is shown pseudonyms, over a history of
// canaries, with what is found, with guesses and with nonsense: no answer, header or error has a canary, nor the
// pseudonym of a value that the request made up.
func TestNoMaskedRoleFindsAValue(t *testing.T) {
	b := newBed(t)
	ids := b.fill()
	reached, n := map[string]bool{}, 0
	var routes []access.Route
	for _, masking := range []config.Masking{
		{Below: access.Analyst.String(), Fields: access.MaskableFields()},
		{Below: access.Owner.String(), Fields: access.DefaultMaskedFields()},
		{Below: access.Admin.String(), Fields: access.MaskableFields()},
	} {
		masking.Secret = config.Secret(strings.Repeat("k", access.MaskKeyBytes))
		b.in.Config.Console.Masking = masking
		masker, err := b.in.Config.Console.Masker()
		if err != nil {
			t.Fatal(err)
		}
		w := &walk{bed: b, masker: masker, fields: masking.Fields, ids: ids, reached: reached}
		w.m = signintest.NewMatrix(t, signintest.Case{Serve: b.serve, Sessions: sessions.New(b.in.History.DB)})
		routes = w.m.Routes()
		for role := access.Viewer; role < access.Admin; role++ {
			if masker.MasksAny(access.Actor{Role: role}) {
				w.all(t, role)
			}
		}
		n += w.n
	}
	t.Logf("%d routes, %d requests", len(routes), n)
	known := unreached()
	for _, route := range routes {
		key := route.Method + " " + route.Pattern
		if why, ok := known[key]; ok == reached[key] {
			t.Errorf("%s: answered with success: %t; said why not: %q", key, reached[key], why)
		}
	}
}

// unreached are the routes that answer no masked role with success, and why.
func unreached() map[string]string {
	const admins, live = "an admin's, who is shown values", "the live picture has values alone"
	all := map[string]string{
		"GET /api/v1/never-block": "a list of addresses", "GET /never-block": "a list of addresses",
		"GET /signin/start": "needs a provider", "GET /signin/callback": "needs a provider",
		"POST /signin/invite":               "needs an invitation",
		"POST /release":                     "waits for ENFORCE, which does not run here; the API does not wait",
		"POST /signin/token":                "needs a token in the form",
		"GET /api/v1/rules/{rule}/counters": "needs the process that counts",
		"POST /api/v1/history/erase":        admins, "GET /erase": admins, "POST /erase": admins,
		"POST /api/v1/blocks": admins, "GET /block": admins, "POST /block": admins,
		"POST /api/v1/never-block/entries": admins, "GET /never-block/change": admins,
		"POST /never-block/change":                          admins,
		"POST /api/v1/partitions/{side}/{partition}/resume": admins,
		"GET /partitions/{side}/{partition}/resume":         admins,
		"POST /partitions/{side}/{partition}/resume":        admins,
	}
	for _, section := range []string{"pulse", "rules", "hits", "hits/{id}", "blocks", "stream"} {
		all["GET /api/v1/"+section] = live
	}
	return all
}

// all asks every route as a role. What signs out comes last.
func (w *walk) all(t *testing.T, role access.Role) {
	var who []signintest.Caller
	for cast := -2; cast < 2; cast++ { // all, since one actor may ask so often only
		for _, c := range w.m.Cast(cast) {
			if c.Actor.Role == role && (role != access.Owner || c.Actor.Owns("identity")) && c.Actor.Name != "" {
				who = append(who, c)
			}
		}
	}
	routes := slices.Clone(w.m.Routes())
	slices.SortStableFunc(routes, func(a, b access.Route) int { return last(a) - last(b) })
	for _, route := range routes {
		for _, ask := range w.asks(route, who[0].Actor) {
			r := httptest.NewRequest(ask.method, ask.at, strings.NewReader(ask.body))
			r.Header.Set("Content-Type", form)
			if strings.HasPrefix(ask.at, "/api/") {
				r.Header.Set("Content-Type", kind)
			}
			by := who[w.n%len(who)]
			if strings.HasPrefix(route.Pattern, "/explore/views") {
				by = who[0] // whose view it is
			}
			answer := w.m.Answer(r, by)
			w.n++
			if answer.Code == http.StatusTooManyRequests {
				t.Fatalf("%s %s: limited after %d requests", ask.method, ask.at, w.n)
			}
			if answer.Code < http.StatusBadRequest {
				w.reached[route.Method+" "+route.Pattern] = true
			}
			if strings.HasSuffix(route.Pattern, "/reveal") && answer.Code == http.StatusOK {
				continue // it is audited
			}
			w.judge(t, role, ask, answer)
			if w.plain(route, ask) && answer.Code < http.StatusBadRequest {
				t.Errorf("%s %s as %s: %d, and names a value", ask.method, ask.at, role, answer.Code)
			}
		}
	}
}

// plain reports whether a question names a source by its value.
func (w *walk) plain(route access.Route, ask asking) bool {
	_, query, _ := strings.Cut(ask.at, "?")
	// to whose forms anything may be given
	if route.CSRF() || route.Pattern == "/search" || route.Pattern == "/reveal" {
		return false
	}
	q, _ := url.ParseQuery(query)
	for _, name := range []string{"source", "subject", "of", "object"} {
		if _, of, ok := strings.Cut(q.Get(name), "="); ok && !strings.HasPrefix(of, "~") {
			return true
		}
	}
	return false
}

func last(route access.Route) int {
	switch {
	case route.Pattern == "/signout":
		return 2
	case route.CSRF():
		return 1
	}
	return 0
}

// judge looks for canaries and their hashes, and for the pseudonyms of guesses, in all that an answer has.
func (w *walk) judge(t *testing.T, role access.Role, ask asking, answer *httptest.ResponseRecorder) {
	t.Helper()
	head := &strings.Builder{}
	_ = answer.Header().Write(head)
	text := head.String() + "\n" + answer.Body.String()
	path, _ := url.PathUnescape(text)
	texts := []string{text, html.UnescapeString(text), unquoted(text), path}
	for _, part := range strings.FieldsFunc(html.UnescapeString(text),
		func(r rune) bool { return strings.ContainsRune(" \"'<>\n", r) }) {
		if plain, err := url.QueryUnescape(part); err == nil && plain != part {
			texts = append(texts, plain)
		}
	}
	wrote, _ := url.QueryUnescape(ask.at + " " + ask.body)
	wrote += unquoted(ask.at + " " + ask.body)
	for _, v := range w.values() {
		sum := sha256.Sum256([]byte(v))
		for _, found := range []string{v, hex.EncodeToString(sum[:])} {
			if i := slices.IndexFunc(texts, func(s string) bool { return strings.Contains(s, found) }); i >= 0 &&
				!strings.Contains(wrote, found) {
				at := strings.Index(texts[i], found)
				t.Errorf("%s %s as %s: %d, and tells %q: …%s…", ask.method, ask.at, role, answer.Code, found,
					texts[i][max(0, at-150):min(len(texts[i]), at+len(found)+50)])
			}
		}
	}
	actor := access.Actor{Role: role}
	for _, v := range guessed() {
		if pseudonym := w.masker.Value(actor, v.Field, v.Value); strings.Contains(text, pseudonym) {
			t.Errorf("%s %s as %s: %d, and tells the pseudonym of %s", ask.method, ask.at, role, answer.Code, v.Value)
		}
	}
}

// values are the canaries of the masked fields, and the forms that they have in subjects.
func (w *walk) values() []string {
	var out []string
	for _, v := range canaries() {
		out = append(out, v.Value, string(traffic.SubjectOf([]traffic.SubjectValue{v})))
	}
	if slices.Contains(w.fields, "path") {
		out = append(out, besides().UserAgent, besides().Path, "canary-tenant")
	}
	return out
}

// unquoted is a text whose JSON escapes are resolved, as far as they are some.
func unquoted(text string) string {
	var out strings.Builder
	for {
		plain, rest, found := strings.Cut(text, `\`)
		out.WriteString(plain)
		if !found {
			return out.String()
		}
		c, _, after, err := strconv.UnquoteChar(`\`+rest, 0)
		if err != nil {
			out.WriteByte('\\')
			text = rest
			continue
		}
		out.WriteRune(c)
		text = after
	}
}

// asks are the requests of a route: by what the role is shown, by canaries, by guesses, and by nonsense.
func (w *walk) asks(route access.Route, actor access.Actor) []asking {
	var out []asking
	// of the last nobody is blocked
	paths := []string{w.path(route, own), w.path(route, "logens"), w.path(route, other)}
	for i, at := range paths {
		if i > 0 && at == paths[0] || i == 2 && !strings.HasSuffix(at, "/release") {
			continue
		}
		sources := w.sources(actor)
		if i > 0 {
			sources = sources[1:4]
		}
		for _, source := range sources {
			query, body := w.said(route, source)
			ask := asking{route.Method, at, body}
			if query != "" {
				ask.at += "?" + query
			}
			if !slices.Contains(out, ask) {
				out = append(out, ask)
			}
		}
		if i == 0 && !route.CSRF() {
			out = append(out, asking{route.Method, at +
				"?since=never&limit=x&cursor=198.18.77.201&subject=%25%25&page=x&since=1", ""})
		}
	}
	return out
}

// path fills a pattern.
func (w *walk) path(route access.Route, rule string) string {
	id := w.ids[0]
	if rule != own {
		id = "feedfeedfeedfeed"
	}
	return strings.NewReplacer("{$}", "", "{rule}", rule, "{list}", rule+"-partners", "{id}", id, "{side}", "keyed",
		"{partition}", "0").Replace(route.Pattern)
}

// sources are how a request may name a source: by pseudonyms of several fields, by a canary, by guesses, and by what is
// none.
func (w *walk) sources(actor access.Actor) []string {
	all := subjectsOf()
	out := []string{string(w.masker.Subject(actor, all[0])), string(w.masker.Subject(actor, all[2])),
		string(w.masker.Subject(actor, all[4])), string(all[5])}
	for _, v := range guessed() {
		out = append(out, string(traffic.SubjectOf([]traffic.SubjectValue{v})))
	}
	return append(out, "ip=~0")
}

// said is the query or the body of a request about a source.
func (w *walk) said(route access.Route, source string) (query, body string) {
	field, of, _ := strings.Cut(source, "=")
	if !route.CSRF() {
		q := url.Values{}
		for _, name := range queries()[route.Pattern] {
			name, value, has := strings.Cut(name, "=")
			if !has {
				value = map[string]string{"field": field, "value": of, "object": "block " + own + " " + source}[name]
				if value == "" && name != "value" {
					value = source
				}
			}
			q.Set(strings.TrimSuffix(name, "~"), value)
		}
		return q.Encode(), ""
	}
	reason := "of " + source + " and 203.0.113.199, user guessed-77"
	if !strings.HasPrefix(route.Pattern, "/api/") {
		rule := own
		if source == string(w.masker.Subject(access.Actor{}, subjectsOf()[2])) { // of the other one nobody is blocked
			rule = other
		}
		v := url.Values{
			"reason": {reason}, "override": {reason}, "confirm": {"yes"}, "to": {"block"}, "rule": {rule},
			"subject": {source}, "of": {of},
			"field": {field}, "kind": {map[string]string{"ip": "cidr"}[field] + strings.TrimPrefix(field, "ip")},
			"value": {of}, "name": {"view " + source},
			"query": {url.Values{"by": {"rule"}, "source": {source}}.Encode()}, "text": {w.text()}, "do": {"try"},
			"limit": {"1000"}, "for": {"2h"},
		}
		if strings.HasSuffix(route.Pattern, "/rollback") {
			v.Set("to", "1")
		}
		if strings.HasSuffix(route.Pattern, "/promote") {
			v.Set("until", b5().Format(rfc))
		}
		return "", v.Encode()
	}
	m := map[string]any{"reason": reason}
	switch last := route.Pattern[strings.LastIndexByte(route.Pattern, '/')+1:]; last {
	case "promote":
		now := w.standing(own)
		m["override"], m["version"] = reason, max(now.Version, now.Pending)
	case "limit":
		m["limit"], m["until"] = 1000+w.n, b5().Add(3600e9).Format(rfc)
	case "rollback":
		m["to"] = 1
	case "reset", "release":
		m["subject"] = source
	case "try":
		m = map[string]any{"files": []any{map[string]any{"name": "a.yaml", "text": w.text()}}}
	case "apply":
		m["files"] = []any{map[string]any{"name": "a.yaml", "text": w.text()}}
		m["alone"] = true
	case "entries":
		m["entries"] = []any{map[string]any{"kind": "cidr", "value": of}}
	case "reveal":
		m["field"], m["of"] = field, of
	}
	text, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return "", string(text)
}

// text is a document with a guess in a condition.
func (w *walk) text() string {
	text := strings.Replace(alone(document(own, 30+w.n%9)), "path:", `when: 'event.user == "guessed-77"', path:`, 1)
	return text + "# " + fmt.Sprint(w.n) + "\n"
}

// queries are the parameters of routes: NAME=VALUE, or the name of one that is about a source.
func queries() map[string][]string {
	source := []string{"source"}
	return map[string][]string{
		"/api/v1/why": source, "/api/v1/history/hits": source, "/api/v1/history/sources": source,
		"/api/v1/history/top":      {"source", "by=source"},
		"/api/v1/history/timeline": source, "/api/v1/history/seen-with": source, "/api/v1/history/decisions": source,
		"/api/v1/history/audit": source,
		"/api/v1/blocklist":     {"subject"}, "/api/v1/audit": {"object"}, "/api/v1/rules/{rule}/counters": {"subject"},
		"/explore": {"source", "by=episode"}, "/explore.csv": {"source", "by=episode"}, "/explore.json": {"source",
			"by=source"}, "/audit": source,
		"/sources": {"of"}, "/search": {"q"}, "/release": {"rule=" + own, "subject"}, "/reveal": {"field", "of"},
		"/block": {"of"}, "/erase": {"of"},
		"/rules/{rule}/reset": {"subject"}, "/rules/{rule}/rollback": {"to=1"}, "/scheme": {"to=dark"},
	}
}

const rfc = time.RFC3339Nano

// b5 is a time that evidence is known of.
func b5() time.Time { return time.Now().UTC().Add(-5 * time.Minute) }
