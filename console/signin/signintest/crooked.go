package signintest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
)

// Crooked asks for each route by other spellings of its path and by other methods, as everybody and without what proves that a request is
// no other site's. Nobody gets an answer whom the route does not give one, and nothing at all may change. It returns how many requests it
// has made.
func (m *Matrix) Crooked(t *testing.T) int {
	t.Helper()
	asked, before := m.asked, m.state()
	for _, route := range m.routes {
		if route.Act == access.Public {
			continue
		}
		rules := m.rules(route)
		for _, who := range m.casts[1] {
			if who.bearer == "" || who.Actor.Role == access.Owner { // another role's token is let in where its session is
				m.crooked(t, route, rules[len(rules)-1], who)
			}
		}
	}
	if after := m.state(); after != before {
		t.Errorf("requests without proof have changed\n%s\nto\n%s", before, after)
	}
	return m.asked - asked
}

func (m *Matrix) crooked(t *testing.T, route access.Route, rule string, who Caller) {
	t.Helper()
	straight := m.request(route, rule)
	may := m.may(route, rule, who)
	if may && !route.CSRF() {
		return // he is let in by the straight path
	}
	judge := func(method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // the server answers 400 before anybody is asked
		}
		r := m.request(route, rule)
		r.Method, r.URL, r.RequestURI = method, u, target
		r.Header.Set("X-Http-Method-Override", route.Method)
		r.Header.Set("X-Original-Url", straight.URL.Path)
		switch status := m.send(r, who, "no token"); {
		case status == http.StatusTooManyRequests && (who.unknown || who.bearer != ""): // who asks so often by tokens is slowed down
		case status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusTooManyRequests:
		case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect, status == http.StatusPermanentRedirect:
		default:
			t.Errorf("%s as %s %s: got %d", m.name(route, rule, who), method, target, status)
		}
	}
	if may && who.bearer != "" {
		return // of a token no proof is asked
	}
	for _, target := range spellings(straight.URL.RequestURI()) {
		judge(route.Method, target)
	}
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost, http.MethodGet, "get", "post", "LOCK"} {
		if !m.served(method, route) {
			judge(method, straight.URL.RequestURI())
		}
	}
	if route.Method == http.MethodGet {
		judge(http.MethodHead, straight.URL.RequestURI())
	}
}

// served reports whether a route of its own answers the path with a method.
func (m *Matrix) served(method string, like access.Route) bool {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return slices.ContainsFunc(m.routes, func(r access.Route) bool { return r.Method == method && r.Pattern == like.Pattern })
}

// spellings are other ways to write a path, some of which mean the same to some servers.
func spellings(path string) []string {
	last := strings.LastIndexByte(path, '/')
	head, tail := path[:last], path[last+1:]
	all := []string{
		path + "/", "/" + path, "//" + path, head + "//" + tail, head + "/./" + tail, "/assets/.." + path, "/signin/.." + path, head + "/x/../" + tail,
		head + "%2f" + tail, head + "%2F" + tail, head + "%5c" + tail, "/signin%2f.." + path, "/assets/..%2f" + strings.TrimPrefix(path, "/"),
		path + "%00", path + "%20", path + ";x=/signin", path + "?next=/signin", path + "/signin", path + "/..%2fsignin", path + "?_method=POST", strings.ToUpper(path),
		"http://" + host + path, "https://evil.example" + path,
	}
	if tail != "" { // one letter of it as its code
		all = append(all, head+"/%"+hexOf(tail[0])+tail[1:])
	}
	if len(path) > 2 {
		all = append(all, "/%"+hexOf(path[1])+path[2:])
	}
	return all
}

func hexOf(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}
