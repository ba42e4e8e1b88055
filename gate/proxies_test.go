package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// sampleAPI is what the proxies under test stand in front of. It says how many bytes of a body it got.
func sampleAPI(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return // the proxy will say so
		}
		switch r.URL.Path {
		case "/v1/guest-tokens":
			w.WriteHeader(http.StatusCreated)
		case "/v1/staff":
			w.WriteHeader(http.StatusForbidden)
		case "/v1/nothing":
			w.WriteHeader(http.StatusNotFound)
		case "/v1/unclear":
			w.WriteHeader(http.StatusBadRequest)
		case "/v1/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = fmt.Fprintf(w, "the API got %d bytes", n)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// door is where a proxy asks. What answers there can be changed.
type door struct {
	address string
	mu      sync.Mutex
	handler http.Handler
	dialled int
}

// doorOf is a door at which a gate answers, and reads what is asked.
func doorOf(t *testing.T, g *Gate) *door {
	t.Helper()
	server := g.Server()
	server.ReadHeaderTimeout = patience
	return openDoor(t, server, func(on net.Listener) net.Listener {
		l, ok := g.Listener(on).(*listener)
		if !ok {
			t.Fatal("Listener makes another listener")
		}
		l.lingers = patience
		return l
	})
}

func newDoor(t *testing.T, h http.Handler) *door {
	t.Helper()
	return openDoor(t, &http.Server{Handler: h}, func(l net.Listener) net.Listener { return l })
}

func openDoor(t *testing.T, config *http.Server, reading func(net.Listener) net.Listener) *door {
	t.Helper()
	d := &door{handler: config.Handler}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		h := d.handler
		d.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	config.Handler, server.Config = server.Config.Handler, config
	server.Listener = reading(server.Listener)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			d.mu.Lock()
			d.dialled++
			d.mu.Unlock()
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	d.address = server.Listener.Addr().String()
	return d
}

func (d *door) becomes(h http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handler = h
}

func (d *door) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dialled
}

// silent is a gate that takes questions and never answers them.
func silent(t *testing.T) http.Handler {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
}

// answers is a program that is no gate.
func answers(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// hangsUp is a gate that dies over every question.
func hangsUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}

type call struct {
	client       string // address that nginx is told
	from         string // loopback address to call from; empty: the usual one
	method, path string
	headers      [][2]string
	body         string
}

type reply struct {
	status int
	header http.Header
	body   string
}

// testClient is the header in which tests tell a proxy their address.
const testClient = "X-Test-Client"

// through sends a request to a proxy.
func through(t *testing.T, address string, c call) reply {
	t.Helper()
	got, err := try(address, c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// patience is how long a client waits, and what it talks to: an end says that something hangs, not that the machine is busy.
const patience = 2 * time.Minute

func try(address string, c call) (reply, error) {
	dialer := net.Dialer{Timeout: patience}
	if c.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
	}
	connection, err := dialer.Dial("tcp", address)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return reply{}, err
	}
	// Written by hand: the path must arrive as it stands.
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\nContent-Length: %d\r\n", c.method, c.path, len(c.body))
	if c.client != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", testClient, c.client)
	}
	for _, h := range c.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	if _, err := io.WriteString(connection, b.String()+"\r\n"+c.body); err != nil {
		return reply{}, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, answer.Header, string(body)}, err
}

// passesSoon sends a request that the API is to answer though no gate says a word, within a time that the proxy's configuration bounds. What
// that imposes comes with every request, what a busy machine imposes does not: the quickest of ten requests counts.
func passesSoon(t *testing.T, address string, c call, within time.Duration) {
	t.Helper()
	quickest := patience
	for range 10 {
		begun := time.Now()
		got := through(t, address, c)
		if want := fmt.Sprintf("the API got %d bytes", len(c.body)); got.status != http.StatusCreated || got.body != want {
			t.Fatalf("got %d %q, want the API's answer", got.status, got.body)
		}
		if quickest = min(quickest, time.Since(begun)); quickest <= within {
			return
		}
	}
	t.Errorf("the quickest of ten requests took %s", quickest)
}

// wantHeldSoon sends a request that is to be held, through a proxy that waits for the gate for a moment only, which a busy machine may
// overrun. A proxy that took the gate for dead would let all of them pass, in a fraction of the time for which it does so.
func wantHeldSoon(t *testing.T, address string, c call) {
	t.Helper()
	got := through(t, address, c)
	for tries := 1; tries < 50 && got.status != http.StatusTooManyRequests; tries++ {
		got = through(t, address, c)
	}
	wantHeld(t, got)
}

// await waits until a proxy answers at all.
func await(t *testing.T, p *testbed.Running, address string) {
	t.Helper()
	testbed.Eventually(t, 20*time.Second, func() error {
		if err := p.Alive(); err != nil {
			t.Fatal(err)
		}
		got, err := try(address, call{client: "203.0.113.7", method: "GET", path: "/v1/films"})
		if err == nil && (got.status != http.StatusOK || got.body != "the API got 0 bytes") {
			err = fmt.Errorf("got %d %q, want the API's answer", got.status, got.body)
		}
		return err
	})
}

// wantHeld looks at a refusal as clients get it.
func wantHeld(t *testing.T, got reply) {
	t.Helper()
	if got.status != http.StatusTooManyRequests {
		t.Fatalf("got %d %s, want 429", got.status, got.body)
	}
	for header, want := range map[string]string{
		"Retry-After": "91", "X-Weir-Block": "0123456789abcdef", "X-Weir-Rule": "guest-token-flood",
		"Content-Type": "application/problem+json", "Cache-Control": "no-store", "X-Weir-Status": "",
	} {
		if value := got.header.Get(header); value != want {
			t.Errorf("%s: got %q, want %q", header, value, want)
		}
	}
	var p, want Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatalf("%v in %s", err, got.body)
	}
	w := httptest.NewRecorder()
	refuse(w, &Answer{BlockID: "0123456789abcdef"})
	if err := json.Unmarshal(w.Body.Bytes(), &want); err != nil || p != want {
		t.Errorf("problem: got %+v, want %+v (%v)", p, want, err)
	}
}

// place writes a file for a program under test, in a folder of the test.
func place(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func port(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t))
}
