package gate

import (
	"net/http"
	"strconv"

	"github.com/weirhq/weir/traffic"
)

// PathAuthRequest is the path at which Handler answers as nginx's auth_request wants it.
const PathAuthRequest = "/v1/auth-request"

// The headers in which proxies tell the request in question, beside X-Forwarded-For.
const (
	headerForwardedMethod = "X-Forwarded-Method"
	headerForwardedURI    = "X-Forwarded-Uri"
	headerForwardedHost   = "X-Forwarded-Host"
	headerOriginalMethod  = "X-Original-Method"
	headerOriginalURI     = "X-Original-Uri"
	headerOriginalHost    = "X-Original-Host"
)

// HeaderRoute is the header in which a proxy tells its own name of the route, for the blocks of rules that name routes. A proxy
// that sets it has to do so in place of what its client sent.
const HeaderRoute = "X-Weir-Route"

// HeaderStatus is the status that the client shall see, in an answer whose own status cannot say it; and 200 in the answer
// of forward auth that lets a request pass.
const HeaderStatus = "X-Weir-Status"

// Handler answers the checks of all proxies on one address: AuthRequest at PathAuthRequest, ForwardAuth at every other
// path. The others are /v1/forward-auth, / of configurations that name no path, and those of proxies that ask with the
// path of the request in question: a 404 for any of them would refuse requests that nobody has blocked.
func (g *Gate) Handler() http.Handler {
	forwardAuth, authRequest := g.ForwardAuth(), g.AuthRequest()
	// Not a http.ServeMux, which redirects paths like //x, and a proxy would hand the redirect to its client.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := r.Header.Get(headerMalformed); why != "" {
			g.cannotRead(w, why)
			return
		}
		if r.URL.Path == PathAuthRequest {
			authRequest.ServeHTTP(w, r)
			return
		}
		forwardAuth.ServeHTTP(w, r)
	})
}

// AuthRequest answers the sub-requests of nginx's auth_request, which takes any 2xx for yes, 401 and 403 for no, and
// all else for an error: 200 for a request that may pass; for one that is held 403 with HeaderStatus 429, Retry-After,
// HeaderBlock and HeaderRule, from which nginx's configuration makes the 429 (docs/gate.md). Bodies are empty: nginx would
// not read one, and would have to give up the connection because of it.
//
// The request in question is read from X-Original-Method, X-Original-URI, X-Original-Host, X-Forwarded-For, HeaderRoute and its
// own headers. Without one of the first three, it is counted, and no block that is about what is missing holds it: the headers of
// forward-auth are not looked at, since a nginx that is not told to set them passes on what the client has written there.
//
// The proxy's word is believed, so the endpoint must be reachable for the proxy only.
func (g *Gate) AuthRequest() http.Handler {
	g.metrics.decisions.serve(byAuthRequest)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := Request{
			Method: r.Header.Get(headerOriginalMethod), Path: r.Header.Get(headerOriginalURI), Host: r.Header.Get(headerOriginalHost),
			Route: r.Header.Get(HeaderRoute), From: carrier(r),
		}
		if q.Method == "" || q.Path == "" || q.Host == "" {
			g.metrics.untold.Inc()
		}
		a := g.checkBy(byAuthRequest, &q)
		if !a.Blocked {
			hint(w.Header(), &a)
			w.WriteHeader(http.StatusOK)
			return
		}
		w.Header().Set(HeaderStatus, strconv.Itoa(http.StatusTooManyRequests))
		tell(w.Header(), &a)
		w.WriteHeader(http.StatusForbidden)
	})
}

// cannotRead answers a sub-request that no gate can judge. Such a request must not pass: its client, or a caller that is no
// proxy, has made it unreadable.
func (g *Gate) cannotRead(w http.ResponseWriter, why string) {
	p := Problem{Type: "about:blank", Status: http.StatusBadRequest, Detail: "The request cannot be checked, since it cannot be read."}
	if why == tooLarge {
		p.Status, p.Detail = http.StatusRequestHeaderFieldsTooLarge, "The request cannot be checked, since its header is too large."
		g.metrics.tooLarge.Inc()
	} else {
		g.metrics.notHTTP.Inc()
	}
	p.Title = http.StatusText(p.Status)
	p.write(w)
}

// carrier reads who sent a request that a proxy asks about.
func carrier(r *http.Request) traffic.Carrier {
	c := traffic.Carrier{Peer: r.RemoteAddr, Header: r.Header}
	if lines := r.Header.Values("X-Forwarded-For"); len(lines) > 0 {
		c.Peer, c.Forwarded = splitChain(lines)
	}
	return c
}
