package signin

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/console/access"
)

// checkOrigin refuses a request that changes something where another site may have made the browser send it. A
// request with a token in its header is not asked: browsers add no Authorization header by themselves. Of a session
// are asked what the browser says of where the request comes from, and the session's token, which no other site can
// read. Where nobody signs in there is no session: then it is the browser's word alone, and every browser of this
// decade gives it.
func (g *Guard) checkOrigin(w http.ResponseWriter, r *http.Request, v visit) *refusal {
	if v.bearer {
		return nil
	}
	if why := g.foreign(r); why != "" {
		g.o.Logger.Warn("a request from another site was refused", "why", why, "actor", v.Actor.Name, "address", v.address, "path", r.URL.Path)
		return &refusal{status: http.StatusForbidden, reason: reasonCSRF, detail: "the request does not come from a page of this console; nothing was done"}
	}
	if v.cookie == "" {
		return nil
	}
	given := r.Header.Get(access.CSRFHeader)
	if given == "" && access.IsForm(r) {
		unread := (*access.FormError)(nil)
		if errors.As(access.Form(w, r), &unread) { // the token may stand behind what was read
			return &refusal{status: unread.Status, reason: reasonCSRF, detail: unread.Text}
		}
		given = r.PostFormValue(access.CSRFField)
	}
	if subtle.ConstantTimeCompare([]byte(given), []byte(v.CSRF)) != 1 {
		g.o.Logger.Warn("a request without the session's token was refused", "actor", v.Actor.Name, "address", v.address, "path", r.URL.Path)
		return &refusal{status: http.StatusForbidden, reason: reasonCSRF,
			detail: "the form is not of this session (field " + access.CSRFField + " or header " + access.CSRFHeader + "): load the page again; nothing was done"}
	}
	return nil
}

// foreign says why a request is not from a page of this console; empty where nothing says so.
func (g *Guard) foreign(r *http.Request) string {
	if site := r.Header.Values("Sec-Fetch-Site"); len(site) > 0 && (len(site) > 1 || site[0] != "same-origin") {
		return "Sec-Fetch-Site: " + strings.Join(site, ", ")
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return ""
	}
	origin, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil || origin.Host == "" || !strings.EqualFold(origin.Host, r.Host) || origin.Scheme != g.scheme(r) {
		return "Origin: " + strings.Join(origins, ", ")
	}
	return ""
}

// scheme is how the browser asks: what the public URL says, for the name in it, since TLS may end at a proxy.
func (g *Guard) scheme(r *http.Request) string {
	if r.TLS != nil || g.secure {
		return "https"
	}
	return "http"
}
