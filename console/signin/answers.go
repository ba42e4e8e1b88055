package signin

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
)

// refusal is why a request gets no further.
type refusal struct {
	status int
	reason string // for the metric
	title  string // of the page; default the status text
	detail string
	wait   time.Duration // until it is worth another try; 0 says nothing of it

	act   access.Act  // that was refused
	needs access.Role // that may
}

// Why requests are turned away.
const (
	reasonHost      = "host"
	reasonAway      = "elsewhere" // from another machine, where nobody signs in
	reasonSession   = "session"   // nobody is signed in, or not any more
	reasonToken     = "token"
	reasonCSRF      = "csrf"
	reasonForbidden = "forbidden"
	reasonRate      = "rate"
	reasonStore     = "store"
	reasonSignIn    = "sign-in"
	reasonInvite    = "invite"     // a link that was used, is over, was taken back or never was
	reasonPlain     = "plain-http" // a sign-in that others on its way could have, too
)

// What came of sign-ins.
const (
	outcomeOK     = "ok"
	outcomeFailed = "failed"
	outcomeNoRole = "no-role"
)

func tooMany(wait time.Duration) *refusal {
	return &refusal{status: http.StatusTooManyRequests, reason: reasonRate, wait: wait, detail: "too many attempts; nothing was done"}
}

// unknown answers a request that somebody has to be signed in for: a browser that looks at a page is sent to the sign-in.
func (g *Guard) unknown(w http.ResponseWriter, r *http.Request, v visit) {
	answer := refusal{status: http.StatusUnauthorized, reason: reasonSession, title: "Sign in first", detail: "nobody is signed in; nothing was done"}
	if v.ended {
		answer.title, answer.detail = "Your session has ended", "your session has ended; nothing was done"
	}
	if !wantsPage(r) || access.Changes(r.Method) {
		g.refuse(w, r, answer)
		return
	}
	q := url.Values{"next": {safeNext(r.URL.RequestURI())}}
	if v.ended {
		q.Set("why", "ended")
	}
	g.metrics.refused.WithLabelValues(reasonSession).Inc()
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, signInPath+"?"+q.Encode(), http.StatusSeeOther)
}

// Refuse answers a request whose actor may not do what it asks: for access.NewMux. It names the act and the role that may.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := refusal{status: http.StatusForbidden, reason: reasonForbidden, title: "Not yours to do", detail: "this is not permitted"}
	var forbidden *access.Forbidden
	if errors.As(err, &forbidden) {
		answer.detail, answer.act, answer.needs = forbidden.Error(), forbidden.Act, forbidden.Needs
		if forbidden.Actor.Role == access.Nobody {
			g.unknown(w, r, visit{})
			return
		}
	}
	g.refuse(w, r, answer)
}

// wantsPage reports whether a request is a browser's for a page, rather than a program's.
func wantsPage(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/api/") && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// problem is RFC 9457's.
type problem struct {
	Type   string      `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Act    access.Act  `json:"act,omitempty"`   // that was refused
	Needs  access.Role `json:"needs,omitempty"` // the lowest role that may
}

// refuse answers with a page, or with problem+json.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, answer refusal) {
	g.metrics.refused.WithLabelValues(answer.reason).Inc()
	h := w.Header()
	guarded(h)
	if answer.wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(answer.wait.Seconds()))))
	}
	if answer.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	if answer.title == "" {
		answer.title = http.StatusText(answer.status)
	}
	if wantsPage(r) {
		g.pages.refusal(w, answer, safeNext(r.URL.Path))
		return
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(answer.status)
	_ = json.NewEncoder(w).Encode(problem{ // the client is gone
		Type: "about:blank", Title: answer.title, Status: answer.status, Detail: answer.detail, Act: answer.act, Needs: answer.needs,
	})
}

// guarded sets the headers of the sign-in's own answers: they load a style sheet and nothing else.
func guarded(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

//go:embed signin.html
var pageText string

//go:embed style.css
var styleText string

// pages are what people see of the sign-in.
type pages struct {
	template *template.Template
	start    string // path at which a sign-in begins
}

func loadPages(start string) (*pages, error) {
	t, err := template.New("signin").Parse(pageText)
	return &pages{t, start}, err
}

// signInPage is what the page says.
type signInPage struct {
	Title, Why  string
	Start, Next string // where a sign-in begins, and the path to go on with
	Possible    bool   // an identity provider is configured; of a refusal: to sign in may help
	Refused     bool
	Actor       access.Actor // who is signed in already

	CSRF   string // of the forms; empty: there are none
	Invite string // what the link holds that led here
	Tokens bool   // a token can be given
	Shut   string // why there are no forms, in a console without an identity provider
}

func (p *pages) signIn(w http.ResponseWriter, status int, data signInPage) {
	data.Title = "Sign in"
	p.write(w, status, data)
}

func (p *pages) refusal(w http.ResponseWriter, answer refusal, next string) {
	p.write(w, answer.status, signInPage{
		Title: answer.title, Why: sentence(answer.detail), Next: next, Refused: true,
		Possible: answer.status == http.StatusUnauthorized || answer.reason == reasonSignIn &&
			answer.status != http.StatusNotFound,
	})
}

// sentence is a text that begins with a capital.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (p *pages) write(w http.ResponseWriter, status int, data signInPage) {
	data.Start = p.start
	var page bytes.Buffer
	if err := p.template.Execute(&page, data); err != nil {
		http.Error(w, data.Title, status)
		return
	}
	guarded(w.Header())
	if data.Invite != "" {
		// The address holds the link's token, and no other request may tell it. no-referrer would have the form say
		// that it comes from nowhere.
		w.Header().Set("Referrer-Policy", "strict-origin")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}

func (p *pages) serveStyle(w http.ResponseWriter, _ *http.Request) {
	guarded(w.Header())
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write([]byte(styleText))
}

// isPlain reports whether a character is seen as what it is.
func isPlain(r rune) bool { return unicode.IsPrint(r) && r != unicode.ReplacementChar }

type metrics struct {
	refused *prometheus.CounterVec // reason
	signIns *prometheus.CounterVec // outcome
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_signin_refused_total", Help: "Requests to the console that were turned away before they reached it."}, []string{"reason"}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_signin_outcomes_total", Help: "Sign-ins by what came of them."}, []string{"outcome"}),
	}
	for _, reason := range []string{reasonHost, reasonAway, reasonSession, reasonToken, reasonCSRF, reasonForbidden,
		reasonRate, reasonStore, reasonSignIn, reasonInvite, reasonPlain} {
		m.refused.WithLabelValues(reason)
	}
	for _, outcome := range []string{outcomeOK, outcomeFailed, outcomeNoRole} {
		m.signIns.WithLabelValues(outcome)
	}
	for _, c := range []prometheus.Collector{m.refused, m.signIns} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
