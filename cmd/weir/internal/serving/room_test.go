package serving_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/cmd/weir/internal/serving"
	"github.com/weirhq/weir/internal/testbed"
)

// dropped wants a counter to say how many connections of the console made room.
func dropped(t *testing.T, registry *prometheus.Registry, name, help string, n int) {
	t.Helper()
	want := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s counter\n%[1]s{server=\"console\"} %[3]d\n"+
		"%[1]s{server=\"metrics\"} 0\n", name, help, n)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

// takes reads an answer that is all right, to its end.
func takes(t *testing.T, c net.Conn) {
	t.Helper()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		err = errors.Join(err, answer.Body.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestIdleConnectionsMakeRoom fills a server by connections that have had their answers: the longest idle one goes.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l, registry := bounded(t, p, serving.Bounds{All: 3, Each: 2})
		serve(t, p, l, http.HandlerFunc(reads))
		var all []net.Conn
		for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
			c := p.dial(t, from)
			all = append(all, c)
			say(c, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != http.StatusOK || answer.Body.Close() != nil {
				t.Fatal(answer, err)
			}
			time.Sleep(time.Second)
		}
		if c := p.dial(t, "192.0.2.3"); refused(c) {
			t.Error("nobody made room")
		}
		for i, gone := range []bool{true, false, false} {
			if refused(all[i]) != gone {
				t.Errorf("connection %d is gone: %v, want %v", i, !gone, gone)
			}
		}
		dropped(t, registry, "weir_http_dropped_idle_connections_total",
			"Connections without a request that made room for others.", 1)
	})
}

// TestWhoOwesARequestMakesRoom fills a server, from many addresses, by heads that do not end, by bodies that do not
// come and by some that come byte by byte: whoever comes with a whole request is answered a second later. Those who
// are being answered stay, and so do those who have been; who takes place after place takes those of his own address.
func TestWhoOwesARequestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l, registry := bounded(t, p, serving.Bounds{All: 5, Each: 5})
		work := make(chan struct{})
		serve(t, p, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				_, _ = io.Copy(io.Discard, r.Body)
				<-work
			}
			reads(w, r)
		}))
		idle := p.dial(t, "192.0.2.8")
		say(idle, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
		if answer, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil || answer.Body.Close() != nil {
			t.Fatal(err)
		}
		long := p.dial(t, "192.0.2.9")
		say(long, "POST /long HTTP/1.1\r\nHost: weir\r\nContent-Length: 3\r\n\r\nabc")
		head := p.dial(t, "192.0.2.1")
		say(head, "GET / HTTP/1.1\r\n")
		body := p.dial(t, "192.0.2.2")
		say(body, "POST / HTTP/1.1\r\nHost: weir\r\nContent-Length: 100\r\n\r\n")
		drip := p.dial(t, "192.0.2.3")
		say(drip, "POST / HTTP/1.1\r\nHost: weir\r\nContent-Length: 100\r\n\r\n")
		for range 4 {
			time.Sleep(250 * time.Millisecond)
			say(drip, "x")
		}
		time.Sleep(time.Millisecond)
		for n := range 3 {
			c := p.dial(t, "192.0.2.4")
			say(c, "GET / HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != http.StatusOK || answer.Body.Close() != nil {
				t.Fatal(n, answer, err)
			}
			synctest.Wait() // until its place is free
			if n < 2 {      // the place of whoever was answered is taken by somebody who sends nothing
				say(p.dial(t, "192.0.2.5"), "GET")
				time.Sleep(1100 * time.Millisecond)
			}
		}
		synctest.Wait()
		last := p.dial(t, "192.0.2.5")
		time.Sleep(1100 * time.Millisecond)
		say(p.dial(t, "192.0.2.6"), "GET") // instead of the first one of 192.0.2.5
		time.Sleep(1100 * time.Millisecond)
		if c := p.dial(t, "192.0.2.6"); refused(c) || refused(last) {
			t.Error("the place was somebody else's")
		}
		for name, c := range map[string]net.Conn{"head": head, "body": body, "drip": drip} {
			if !refused(c) {
				t.Errorf("%s has its place still", name)
			}
		}
		if refused(long) || refused(idle) {
			t.Error("who is being answered, or has been, had to go")
		}
		_ = long.SetReadDeadline(time.Time{})
		close(work)
		answer, err := http.ReadResponse(bufio.NewReader(long), nil)
		if err != nil || answer.StatusCode != http.StatusOK || answer.Body.Close() != nil {
			t.Error(answer, err)
		}
		dropped(t, registry, "weir_http_dropped_unsent_connections_total",
			"Connections whose request had not come whole, and that made room for others.", 5)
	})
}

// TestWhoHasFewConnectionsIsLetIn fills a server from a few addresses that open connections faster than they owe for
// long, and from a proxy: whoever has none, or fewer, is let in at once, and the place is of who has the most. Nobody
// who is being answered goes, nor anybody's only connection for one who has as many.
func TestWhoHasFewConnectionsIsLetIn(t *testing.T) {
	const proxy = "203.0.113.9"
	for _, test := range []struct {
		name  string
		there map[string]int // connections by address, each of which owes since now
		idle  map[string]int // and those that are idle
		from  string
		loses string // whose connection goes; empty: the newcomer is refused
	}{
		{"a flood of one", map[string]int{"192.0.2.1": 6}, nil, "192.0.2.9", "192.0.2.1"},
		{"of the largest", map[string]int{"192.0.2.1": 2, "192.0.2.2": 4}, nil, "192.0.2.9", "192.0.2.2"},
		{"of one with less than half", map[string]int{"192.0.2.1": 1, "192.0.2.2": 4, "192.0.2.3": 1}, nil, "192.0.2.1",
			"192.0.2.2"},
		{"of one with half", map[string]int{"192.0.2.1": 1, "192.0.2.2": 3, "192.0.2.3": 2}, nil, "192.0.2.1", ""},
		{"its own", map[string]int{"192.0.2.1": 2, "192.0.2.2": 4}, nil, "192.0.2.2", ""},
		{"of one with fewer", map[string]int{"192.0.2.1": 3, "192.0.2.2": 3}, nil, "192.0.2.2", ""},
		{"one more is no reason", map[string]int{"192.0.2.1": 2, "192.0.2.2": 1, "192.0.2.3": 1, "192.0.2.4": 1,
			"192.0.2.5": 1}, nil, "192.0.2.5", ""},
		{"each has one", map[string]int{"192.0.2.1": 1, "192.0.2.2": 1, "192.0.2.3": 1, "192.0.2.4": 1, "192.0.2.5": 1,
			"192.0.2.6": 1}, nil, "192.0.2.9", ""},
		{"each has one, one is idle", map[string]int{"192.0.2.1": 1, "192.0.2.2": 1, "192.0.2.3": 1, "192.0.2.4": 1,
			"192.0.2.5": 1}, map[string]int{"192.0.2.6": 1}, "192.0.2.9", "192.0.2.6"},
		{"an idle one is kept from a flood", map[string]int{"192.0.2.1": 5}, map[string]int{"192.0.2.6": 1},
			"192.0.2.1", ""},
		{"idle ones go first", map[string]int{"192.0.2.1": 3}, map[string]int{"192.0.2.6": 3}, "192.0.2.9", "either"},
		{"a proxy is many", map[string]int{proxy: 6}, nil, "192.0.2.9", ""},
		{"a proxy comes for many", map[string]int{proxy: 2, "192.0.2.1": 4}, nil, proxy, "192.0.2.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				l, _ := bounded(t, p, serving.Bounds{All: 6, Each: 6,
					Many: []netip.Prefix{netip.MustParsePrefix(proxy + "/32")}})
				serve(t, p, l, http.HandlerFunc(reads))
				all := map[string][]net.Conn{}
				for from, n := range test.idle {
					for range n {
						c := p.dial(t, from)
						say(c, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
						takes(t, c)
						all[from] = append(all[from], c)
					}
				}
				for from, n := range test.there {
					for range n {
						c := p.dial(t, from)
						say(c, "POST / HTTP/1.1\r\nHost: weir\r\nContent-Length: 100\r\n\r\n")
						all[from] = append(all[from], c)
					}
				}
				synctest.Wait()
				if got := !refused(p.dial(t, test.from)); got != (test.loses != "") {
					t.Errorf("the newcomer was let in: %v", got)
				}
				for from, those := range all {
					gone := 0
					for _, c := range those {
						if refused(c) {
							gone++
						}
					}
					if want := test.loses == from; (gone == 1) != want && test.loses != "either" || gone > 1 {
						t.Errorf("%d connections of %s had to go", gone, from)
					}
				}
			})
		})
	}
}

// TestABodyIsOwedWhateverElseItsConnectionAsks: over HTTP/2 a connection has many requests at a time. One whose body
// never comes makes room, though others on it are answered again and again.
func TestABodyIsOwedWhateverElseItsConnectionAsks(t *testing.T) {
	system, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := serving.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	known := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	work := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	bound := serving.Bound(system, serving.Bounds{All: 2, Each: 2}, metrics, "console")
	l := tls.NewListener(bound, &tls.Config{Certificates: certified.TLS.Certificates,
		NextProtos: []string{"h2", "http/1.1"}})
	go func() {
		ended <- serving.Run(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				<-work
			}
			reads(w, r)
		}))
	}()
	defer func() {
		close(work)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: known}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	at := "https://" + system.Addr().String()
	asks := func(c *http.Client, path string, body io.Reader) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+path, body)
		if err != nil {
			return err
		}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	go func() { _ = asks(client(), "/long", nil) }() // is answered at the end, or not at all
	never, sends := io.Pipe()
	defer func() { _ = sends.Close() }()
	owing, owed := client(), make(chan error, 1)
	go func() { owed <- asks(owing, "/", never) }()
	testbed.Eventually(t, 20*time.Second, func() error {
		_ = asks(owing, "/", nil) // on the connection that owes, while it stands
		select {
		case err := <-owed:
			if err == nil {
				t.Error("a request was answered whose body did not come")
			}
			return nil
		default:
		}
		if asks(client(), "/", nil) == nil {
			return errors.New("there was room all the time")
		}
		return errors.New("the connection that owes is there still")
	})
}

// TestWhoTakesNoAnswerMakesRoom: an answer that is not taken for a second keeps nobody out, be it long or short. One
// that is taken does.
func TestWhoTakesNoAnswerMakesRoom(t *testing.T) {
	for _, length := range []int{1, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes()
			l, _ := bounded(t, p, serving.Bounds{All: 2, Each: 2})
			serve(t, p, l, says(strings.Repeat("a", length)))
			taken := p.dial(t, "192.0.2.1")
			say(taken, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
			takes(t, taken)
			left := p.dial(t, "192.0.2.2")
			say(left, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
			time.Sleep(1100 * time.Millisecond)
			if refused(p.dial(t, "192.0.2.3")) || refused(taken) {
				t.Errorf("an answer of %d bytes: the place was not that of who does not take it", length)
			}
			_, _ = io.Copy(io.Discard, left)
			if !refused(left) {
				t.Errorf("an answer of %d bytes: who does not take it has his place still", length)
			}
		})
	}
}
