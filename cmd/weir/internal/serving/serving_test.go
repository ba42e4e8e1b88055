package serving_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/cmd/weir/internal/serving"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// pipes is a listener whose connections are in memory, from any address: their times are those of a bubble.
type pipes struct {
	come chan net.Conn
	gone chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.come:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.gone)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dialed is a connection from an address.
type dialed struct {
	net.Conn
	from net.Addr
}

func (d *dialed) RemoteAddr() net.Addr { return d.from }

// dial connects from an address.
func (p *pipes) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	p.come <- &dialed{there, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 4000))}
	t.Cleanup(func() { _ = here.Close() })
	return here
}

// serve serves h over p until the test ends.
func serve(t *testing.T, p *pipes, l net.Listener, h http.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serving.Run(ctx, l, h) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// say sends text, in so far as it is taken.
func say(c net.Conn, text string) { go func() { _, _ = io.WriteString(c, text) }() }

// hear reads an answer, and how long it took from now on; then how long the connection stays open.
func hear(t *testing.T, c net.Conn) (status int, answered, open time.Duration) {
	t.Helper()
	begun := time.Now()
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	answered = time.Since(begun)
	if err == nil {
		status = answer.StatusCode
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close() // it has been read
	}
	if err == nil {
		_, err = r.ReadByte()
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("the connection ends with %v", err)
	}
	return status, answered, time.Since(begun)
}

func reads(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(r.Body); err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func refuses(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }

const head = "POST / HTTP/1.1\r\nHost: weir\r\nContent-Length: 100\r\n"

func TestNothingThatDoesNotComeHoldsAConnection(t *testing.T) {
	tests := []struct {
		name, said string
		handler    http.HandlerFunc
		status     int
		answered   time.Duration // at most
		open       time.Duration // at most
	}{
		{"a head", "GET / HTTP/1.1\r\nHo", reads, 400, 5 * time.Second, 5 * time.Second},
		{"a body that is read", head + "\r\nhalf", reads, 400, 20 * time.Second, 22 * time.Second},
		{"a body that nobody reads", head + "\r\n", refuses, 403, 0, 2 * time.Second},
		{"a body without an answer", head + "\r\n", says(""), 200, 0, 2 * time.Second},
		{"a body with an answer", head + "\r\n", says("yes"), 200, 0, 2 * time.Second},
		{"a body of a form with files", head + "Content-Type: multipart/form-data; boundary=x\r\n\r\n",
			reads, 415, 0, 2 * time.Second},
		{"a body in chunks", "POST / HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
			reads, 400, 20 * time.Second, 22 * time.Second},
		{"a body to the server itself", strings.Replace(head, "POST /", "OPTIONS *", 1) + "\r\n",
			refuses, 403, 0, 2 * time.Second},
		{"the next request", "GET / HTTP/1.1\r\nHost: weir\r\n\r\n", reads, 200, 0, 2*time.Minute + time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				serve(t, p, p, tt.handler)
				c := p.dial(t, "192.0.2.1")
				say(c, tt.said)
				status, answered, open := hear(t, c)
				if status != tt.status || answered > tt.answered || open > tt.open {
					t.Errorf("answered %d after %v, open for %v; want %d within %v, open for %v at most",
						status, answered, open, tt.status, tt.answered, tt.open)
				}
			})
		})
	}
}

func TestWhoReadsNoAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		ended := make(chan time.Duration, 1)
		serve(t, p, p, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun := time.Now()
			for range 10 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					break
				}
			}
			ended <- time.Since(begun)
		}))
		say(p.dial(t, "192.0.2.1"), "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
		if took := <-ended; took != 30*time.Second {
			t.Errorf("it was written to for %v, want 30 s", took)
		}
	})
}

// TestARequestThatIsWorkedOnMayTakeItsTime has answers that come after all times of heads, bodies and writes.
func TestARequestThatIsWorkedOnMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		serve(t, p, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reads(w, r)
			for range 3 {
				select {
				case <-time.After(10 * time.Minute):
				case <-r.Context().Done():
					t.Error("the request was ended")
				}
				fmt.Fprintln(w, "so far")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
		}))
		for _, said := range []string{
			"GET / HTTP/1.1\r\nHost: weir\r\n\r\n", "POST / HTTP/1.1\r\nHost: weir\r\nContent-Length: 4\r\n\r\nbody",
		} {
			c := p.dial(t, "192.0.2.1")
			say(c, said)
			if status, _, _ := hear(t, c); status != http.StatusOK {
				t.Errorf("%q: got %d", said, status)
			}
		}
	})
}

// bounded is a listener over p, and its counters.
func bounded(t *testing.T, p *pipes, b serving.Bounds) (net.Listener, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	first, err := serving.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	serving.Bound(newPipes(), b, first, "metrics") // a process has several servers
	m, err := serving.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return serving.Bound(p, b, m, "console"), registry
}

// refused reports whether a connection was closed at once.
func refused(c net.Conn) bool {
	synctest.Wait()
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestConnectionsAreBoundedByAddressAndInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l, registry := bounded(t, p, serving.Bounds{
			All: 8, Kept: 2, Each: 3, Many: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")},
		})
		work := make(chan struct{})
		serve(t, p, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-work }))
		var open []net.Conn
		come := func(from string, want bool) {
			t.Helper()
			c := p.dial(t, from)
			if got := !refused(c); got != want {
				t.Errorf("connection %d, from %s: let in %v, want %v", len(open)+1, from, got, want)
			}
			if want {
				open = append(open, c)
				say(c, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
				_ = c.SetReadDeadline(time.Time{})
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
		}
		come("2001:db8::1", true)
		come("2001:db8::2", true)
		come("2001:db8::3", true)
		come("2001:db8::4", false) // of the same /64
		for range 3 {
			come("192.0.2.1", true)
		}
		come("192.0.2.1", false)   // a proxy may have more than three, but the last are kept
		come("203.0.113.9", false) // for this machine
		come("127.0.0.1", true)
		come("127.0.0.1", true)
		come("127.0.0.1", false)
		want := `# HELP weir_http_refused_connections_total Connections that were closed at once: there were as many as may be.
# TYPE weir_http_refused_connections_total counter
weir_http_refused_connections_total{reason="address",server="console"} 1
weir_http_refused_connections_total{reason="address",server="metrics"} 0
weir_http_refused_connections_total{reason="all",server="console"} 3
weir_http_refused_connections_total{reason="all",server="metrics"} 0
`
		const refusals = "weir_http_refused_connections_total"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), refusals); err != nil {
			t.Error(err)
		}
		close(work)
		synctest.Wait()
		come("203.0.113.9", true) // they are idle now
	})
}
