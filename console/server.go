package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
)

// policy lets the page load its own files and nothing else, embed nowhere, and build no HTML out of texts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the API of the stream below /api/v1, and at all other places what Options.Pages answers. Until Run runs, the API
// answers 503.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, section := range sections() {
		mux.HandleFunc("GET /api/v1/"+section, func(w http.ResponseWriter, r *http.Request) { c.serveSection(w, r, section) })
	}
	mux.HandleFunc("GET /api/v1/hits/{id}", c.serveEvidence)
	mux.HandleFunc("GET /api/v1/stream", c.serveStream)
	nothing := func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is no "+r.Method+" "+shown.Text(r.URL.Path)+" here")
	}
	mux.HandleFunc("/api/", nothing)
	if c.o.Pages != nil {
		mux.Handle("/", c.o.Pages)
	} else {
		mux.HandleFunc("/", nothing)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Secure(w.Header())
		if !c.ours(r.Host) {
			c.metrics.refused.WithLabelValues(refusedHost).Inc()
			fail(w, http.StatusMisdirectedRequest, "the console does not answer for this host name")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func sections() []string { return []string{sectionPulse, sectionRules, sectionHits, sectionBlocks} }

// Secure sets the headers of every answer of the console: the page may load its own files and nothing else, and is framed nowhere.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the console's own forms with the origin null, as from anywhere
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// ours reports whether a request for host is meant for this server. A name could have been pointed here by anybody (DNS
// rebinding); a bare address could not.
func (c *Console) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(c.o.Hosts, func(known string) bool { return strings.EqualFold(known, host) })
}

// serveSection answers with a section as a stream would send it.
func (c *Console) serveSection(w http.ResponseWriter, r *http.Request, section string) {
	frame, err := c.section(r.Context(), section)
	if err != nil {
		c.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(slices.Clip(frame), '\n'))
}

// section waits for the newest frame of a section, as a viewer does.
func (c *Console) section(ctx context.Context, section string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	v, err := c.hub.join(whose(ctx))
	if err != nil {
		return nil, err
	}
	defer c.hub.leave(v)
	for {
		if frame, ok := c.hub.take(v)[section]; ok {
			return frame, nil
		}
		select {
		case <-v.ready:
		case <-c.hub.done:
			return nil, errStopped
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// whose is the actor of a request, as viewers are counted.
func whose(ctx context.Context) string {
	actor := access.From(ctx)
	return actor.Via + " " + actor.Name
}

func (c *Console) serveEvidence(w http.ResponseWriter, r *http.Request) {
	if _, err := c.section(r.Context(), sectionHits); err != nil { // so that what is looked at is fresh
		c.refuse(w, err)
		return
	}
	v, ok := c.evidence(r.PathValue("id"))
	if !ok {
		fail(w, http.StatusNotFound, "this hit is not among the newest of its rule any more; weir history hits has them all")
		return
	}
	answer(w, http.StatusOK, v)
}

func (c *Console) evidence(id string) (evidenceView, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return newPicture(&c.readings, c.o.Clock(), c.o.Command).evidence(id)
}

// refuse says why a section cannot be had.
func (c *Console) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "2")
	switch {
	case errors.Is(err, errOwn):
		c.metrics.refused.WithLabelValues(refusedOwn).Inc()
		fail(w, http.StatusTooManyRequests,
			fmt.Sprintf("you are connected %d times, which is the most: close a page", mostOfOne))
	case errors.Is(err, errFull):
		c.metrics.refused.WithLabelValues(refusedFull).Inc()
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d viewers are connected, which is the most", maxViewers))
	case errors.Is(err, errStopped):
		fail(w, http.StatusServiceUnavailable, "the console is stopping")
	default:
		fail(w, http.StatusServiceUnavailable, "the console has not read the stores yet")
	}
}

func fail(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client is gone, or the value is one of ours and encodes
}

// serveStream sends each section as a Server-Sent Event when it changes, the pulse once a second (WHATWG HTML, Server-sent
// events). It ends when the client leaves, when the client does not read, and when the console stops.
func (c *Console) serveStream(w http.ResponseWriter, r *http.Request) {
	v, err := c.hub.join(whose(r.Context()))
	if err != nil {
		c.refuse(w, err)
		return
	}
	defer c.hub.leave(v)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	out := http.NewResponseController(w)
	next := []byte("retry: 1000\n\n")
	for {
		// A server's own WriteTimeout is meant for short answers, so the deadline is set anew for each frame.
		_ = out.SetWriteDeadline(time.Now().Add(c.slowAfter)) // a writer without deadlines is a test's
		if _, err = w.Write(next); err == nil {
			err = out.Flush()
		}
		if err != nil {
			c.lost(err)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-c.hub.done:
			return
		case <-v.ready:
		}
		next = events(c.hub.take(v))
	}
}

// lost counts a viewer that was dropped because it did not read. One that closed its connection just left.
func (c *Console) lost(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.metrics.dropped.Inc()
	}
}

// events writes frames as events, in the order of the page. A frame is JSON and so has no line break.
func events(frames map[string][]byte) []byte {
	var out []byte
	for _, section := range sections() {
		if frame, ok := frames[section]; ok {
			out = fmt.Appendf(out, "event: %s\ndata: %s\n\n", section, frame)
		}
	}
	return out
}
