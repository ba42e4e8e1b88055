package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/internal/testbed"
)

type sseEvent struct{ name, data string }

// readEvents reads a stream of events until it ends.
func readEvents(from io.Reader) iter.Seq[sseEvent] {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 8<<20)
	return func(yield func(sseEvent) bool) {
		var e sseEvent
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				if e.name != "" && !yield(e) {
					return
				}
				e = sseEvent{}
			}
		}
	}
}

// TestOneActorsViewersLeavePlacesToOthers fills what one actor may have.
func TestOneActorsViewersLeavePlacesToOthers(t *testing.T) {
	h := newHub(maxViewers)
	var last *viewer
	for range mostOfOne {
		var err error
		if last, err = h.join("vera"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.join("vera"); err != errOwn {
		t.Errorf("one more got %v, want errOwn", err)
	}
	if _, err := h.join("anna"); err != nil {
		t.Errorf("somebody else got %v", err)
	}
	h.leave(last)
	h.leave(last) // counts once
	if _, err := h.join("vera"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if _, err := h.join("vera"); err != errOwn {
		t.Errorf("after one came in its place: got %v, want errOwn", err)
	}
}

func TestHubKeepsOnlyTheNewest(t *testing.T) {
	h := newHub(2)
	a, err := h.join("vera")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		h.publish(sectionHits, fmt.Appendf(nil, "%d", n))
		h.publish(sectionPulse, fmt.Appendf(nil, "p%d", n))
	}
	b, err := h.join("vera")
	if err != nil {
		t.Fatal(err)
	}
	for who, v := range map[string]*viewer{"from the start": a, "late": b} {
		<-v.ready
		got := h.take(v)
		if len(got) != 2 || string(got[sectionHits]) != "99" || string(got[sectionPulse]) != "p99" {
			t.Errorf("%s: %q", who, got)
		}
	}
	h.publish(sectionHits, []byte("99"))
	select {
	case <-a.ready:
		t.Error("the same bytes were told as news")
	default:
	}
	if _, err := h.join("vera"); err != errFull {
		t.Errorf("a third of two: %v", err)
	}
	h.leave(a)
	if _, err := h.join("vera"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	h.close()
	h.close()
	if _, err := h.join("vera"); err != errStopped {
		t.Errorf("after the end: %v", err)
	}
}

// However many watch, the stores are read about once a second; when nobody watches, not at all.
func TestPollsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(10)
		c := newConsole(t, options(s.stores))
		run(t, c)
		reads := func() (n int) {
			s.change(func(s *stores) { n = s.reads[partHistory]; s.reads = nil })
			return n
		}
		time.Sleep(10 * time.Second)
		if n := reads(); n != 0 {
			t.Errorf("nobody watches, and PostgreSQL was read %d times", n)
		}
		var all []*viewer
		for i := range 20 {
			v, err := c.hub.join(fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if n := reads(); n < 10 || n > 11 {
			t.Errorf("20 viewers in 10 s: PostgreSQL was read %d times, want 10 or 11", n)
		}
		for _, v := range all {
			if got := c.hub.take(v); len(got) != len(sections()) {
				t.Errorf("a viewer got %d sections", len(got))
			}
			c.hub.leave(v)
		}
		time.Sleep(10 * time.Second)
		if n := reads(); n > 1 {
			t.Errorf("all have left, and PostgreSQL was read %d times", n)
		}
		for range 40 { // viewers that come and go
			v, err := c.hub.join("vera")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			c.hub.leave(v)
		}
		if n := reads(); n > 3 {
			t.Errorf("40 short visits in 2 s: PostgreSQL was read %d times", n)
		}
	})
}

// A pulse is taken each second, and a late viewer sees no picture that nobody kept up to date.
func TestOldPicturesAreNotNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(10)
		c := newConsole(t, options(s.stores))
		run(t, c)
		v, err := c.hub.join("vera")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		c.hub.leave(v)
		time.Sleep(time.Minute)
		if v, err = c.hub.join("vera"); err != nil {
			t.Fatal(err)
		}
		got := c.hub.take(v)
		if len(got) != 1 || got[sectionPulse] == nil {
			t.Errorf("a minute later a viewer first got %d sections, want the pulse alone", len(got))
		}
		time.Sleep(100 * time.Millisecond)
		if got := c.hub.take(v); got[sectionHits] == nil {
			t.Error("and no fresh one at once")
		}
		c.hub.leave(v)
	})
}

// A viewer that does not read is dropped and holds up nobody.
func TestSlowViewerIsDropped(t *testing.T) {
	s := newScene(55)
	c := newConsole(t, options(s.stores))
	c.slowAfter = 200 * time.Millisecond
	server := httptest.NewUnstartedServer(c.Handler())
	server.Listener = smallBuffers{server.Listener}
	server.Start()
	defer server.Close()
	run(t, c)
	slow, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(slow, "GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		s.offend() // so that there is always something to say
		if testutil.ToFloat64(c.metrics.dropped) != 1 || c.hub.count() != 0 {
			return fmt.Errorf("%d viewers, %v dropped", c.hub.count(), testutil.ToFloat64(c.metrics.dropped))
		}
		return nil
	})
	testbed.Eventually(t, 20*time.Second, func() error { // on a busy machine the quick viewer may itself be slow for once
		quick, err := http.Get(server.URL + "/api/v1/stream")
		if err != nil {
			return err
		}
		defer quick.Body.Close()
		for e := range readEvents(quick.Body) {
			if e.name == sectionHits {
				return nil
			}
		}
		return errors.New("the other viewer was told nothing")
	})
}

// smallBuffers makes connections that take little without being read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4096)
	}
	return c, err
}

func TestViewersAreBounded(t *testing.T) {
	c := newConsole(t, options(newScene(5).stores))
	run(t, c)
	for i := range maxViewers {
		v, err := c.hub.join(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		defer c.hub.leave(v)
	}
	for _, path := range []string{"/api/v1/stream", "/api/v1/hits"} {
		w := get(t, c.Handler(), path, nil)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: viewer %d got %d", path, maxViewers+1, w.Code)
		}
	}
	if n := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedFull)); n != 2 {
		t.Errorf("%v were counted as refused", n)
	}
}
