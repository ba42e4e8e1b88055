package signintest

import (
	"net/http"
	"net/url"
	"sync"
)

// jar keeps cookies by host and port: the standard library's takes Secure cookies from localhost only over TLS, as browsers do not,
// and all ports of a host for one.
type jar struct {
	mu      sync.Mutex
	cookies map[string]map[string]*http.Cookie
}

var _ http.CookieJar = (*jar)(nil)

func newJar() *jar { return &jar{cookies: map[string]map[string]*http.Cookie{}} }

// SetCookies is http.CookieJar's.
func (j *jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.cookies[u.Host]
	if of == nil {
		of = map[string]*http.Cookie{}
		j.cookies[u.Host] = of
	}
	for _, c := range cookies {
		if c.MaxAge < 0 {
			delete(of, c.Name)
			continue
		}
		of[c.Name] = c
	}
}

// Cookies is http.CookieJar's.
func (j *jar) Cookies(u *url.URL) (out []*http.Cookie) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.cookies[u.Host] {
		out = append(out, &http.Cookie{Name: c.Name, Value: c.Value})
	}
	return out
}
