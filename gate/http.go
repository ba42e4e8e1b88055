package gate

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// The headers of an answer. A gateway logs the first two as the event's verdict, so that weir's own refusals feed no
// window. The others say what an observing gate would have done; they are no verdict.
const (
	HeaderBlock      = "X-Weir-Block"
	HeaderRule       = "X-Weir-Rule"
	HeaderWouldBlock = "X-Weir-Would-Block"
	HeaderWouldRule  = "X-Weir-Would-Rule"
)

// ProblemType is the type of a refusal's problem document, from draft-ietf-httpapi-ratelimit-headers.
const ProblemType = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"

// Problem is the body of a refusal, RFC 9457. Which limit was passed is not told to who passed it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Block  string `json:"block,omitempty"` // id that support can look up
}

// ForwardAuth answers the sub-requests of a proxy's forward auth (Traefik, Caddy): 200 for a request that may pass, 429
// for one that is held. The request in question is read from X-Forwarded-Method, -Uri, -Host and -For, HeaderRoute and its own
// headers; without -Method and -Uri, the sub-request itself is judged.
//
// A 200 carries HeaderStatus, by which a proxy can tell the gate's word from another server's that was asked by mistake.
//
// The proxy's word is believed, so the endpoint must be reachable for the proxy only.
func (g *Gate) ForwardAuth() http.Handler {
	g.metrics.decisions.serve(byForwardAuth)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := forwarded(r)
		if g.answer(w, byForwardAuth, &q) {
			w.Header().Set(HeaderStatus, strconv.Itoa(http.StatusOK))
			w.WriteHeader(http.StatusOK)
		}
	})
}

// Middleware lets next serve the requests that no block holds, and answers the others.
func (g *Gate) Middleware(next http.Handler) http.Handler {
	g.metrics.decisions.serve(byHTTP)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := Request{Method: r.Method, Path: target(r), Host: r.Host, From: traffic.Carrier{
			Peer: r.RemoteAddr, Forwarded: r.Header.Values("X-Forwarded-For"), Header: r.Header,
		}}
		if g.o.Route != nil {
			q.Route = g.o.Route(r)
		}
		if g.answer(w, byHTTP, &q) {
			next.ServeHTTP(w, r)
		}
	})
}

// answer refuses a request that is held, and reports whether it may pass.
func (g *Gate) answer(w http.ResponseWriter, by protocol, q *Request) bool {
	a := g.checkBy(by, q)
	if a.Blocked {
		refuse(w, &a)
		return false
	}
	hint(w.Header(), &a)
	return true
}

// hint says of a request that passes what would have become of it, were the gate not observing.
func hint(h http.Header, a *Answer) {
	if a.WouldBlock {
		h.Set(HeaderWouldBlock, a.BlockID)
		h.Set(HeaderWouldRule, a.Rule)
	}
}

func refuse(w http.ResponseWriter, a *Answer) {
	tell(w.Header(), a)
	p := Problem{
		Type: ProblemType, Title: "Abnormal usage detected", Status: http.StatusTooManyRequests,
		Detail: "Requests like this one are held back for now. Support can look up the block by its id.", Block: a.BlockID,
	}
	p.write(w)
}

// write answers with p.
func (p *Problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // the status says the same
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that has gone has no use for it
}

// tell sets the headers by which a refusal is known, whatever its status.
func tell(h http.Header, a *Answer) {
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", retryAfter(a.RetryAfter))
	h.Set(HeaderBlock, a.BlockID)
	h.Set(HeaderRule, a.Rule)
}

// retryAfter is d in whole seconds, rounded up, so that nobody is told to come back while the block still holds.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}

// forwarded reads the request that a proxy asks about.
func forwarded(r *http.Request) Request {
	q := Request{
		Method: r.Header.Get(headerForwardedMethod), Path: r.Header.Get(headerForwardedURI), Host: r.Header.Get(headerForwardedHost),
		Route: r.Header.Get(HeaderRoute), From: carrier(r),
	}
	if q.Method == "" {
		q.Method = r.Method
	}
	if q.Path == "" {
		q.Path = target(r)
		if q.Host == "" {
			q.Host = r.Host // the proxy asks with the request itself
		}
	}
	return q
}

// target is the request's target as it was received, which is what logs show and rules match. r.URL may have been changed by
// handlers before this one (http.StripPrefix), and Go reads "#" and "\\" in a target in its own way.
func target(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.EscapedPath() // a request that was made by hand
}

// splitChain takes the last entry off a forwarded chain: the proxy has put its own peer there. What is left of it is the
// chain as the proxy received it.
func splitChain(lines []string) (peer string, rest []string) {
	last := lines[len(lines)-1]
	comma := strings.LastIndexByte(last, ',')
	if comma < 0 {
		return strings.TrimSpace(last), lines[:len(lines)-1]
	}
	rest = append(append(make([]string, 0, len(lines)), lines[:len(lines)-1]...), last[:comma])
	return strings.TrimSpace(last[comma+1:]), rest
}
