package gate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// registry stands in for Redis.
type registry struct {
	mu   sync.Mutex
	told []blocklist.GateReport
	left []string
	fail error
	hang bool // it takes what it is told, and never answers
}

// be has it answer otherwise from now on.
func (r *registry) be(fail error, hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail, r.hang = fail, hang
}

func (r *registry) state(then func()) (hang bool, fail error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	then()
	return r.hang, r.fail
}

func (r *registry) Report(ctx context.Context, report blocklist.GateReport) error {
	hang, fail := r.state(func() { r.told = append(r.told, report) })
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

func (r *registry) Forget(ctx context.Context, instance string) error {
	if hang, _ := r.state(func() {}); hang {
		<-ctx.Done()
		return ctx.Err()
	}
	_, fail := r.state(func() { r.left = append(r.left, instance) })
	return fail
}

// copyOf is what a gate knows of the blocklist.
type copyOf struct {
	mu       sync.Mutex
	unready  error
	foreign  error
	heldBack int
}

func (*copyOf) Len() int                 { return 12 }
func (*copyOf) Missing() int             { return 3 }
func (*copyOf) Behind() time.Duration    { return time.Second }
func (c *copyOf) HeldBack() int          { return c.heldBack }
func (c *copyOf) Foreign() error         { return c.foreign }
func (*copyOf) Staleness() time.Duration { return 2 * time.Second }

func (c *copyOf) Unready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unready
}

// ready ends that it is not.
func (c *copyOf) ready() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unready = nil
}

// said is a log that may be read while it is written.
type said struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

var (
	_ Registry = (*registry)(nil)
	_ Copy     = (*copyOf)(nil)
)

func newHeartbeat(t *testing.T, g *Gate, to Registry, of Copy) *Heartbeat {
	t.Helper()
	m := traffic.DefaultIdentityMap()
	h, err := NewHeartbeat(HeartbeatOptions{Gate: g, Copy: of, Registry: to, Instance: "edge-1", Build: "1.4",
		Identity: &m, Ahead: func() time.Duration { return -70 * time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *Heartbeat) counted(outcome string) float64 {
	return testutil.ToFloat64(h.told.WithLabelValues(outcome))
}

// A gate tells at once and every ten seconds what it holds and has done, and takes leave when it stops.
func TestAGateTellsOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := abuser()
		g := newGate(t, list, nil)
		to := &registry{}
		h := newHeartbeat(t, g, to, &copyOf{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		ask := func(peer string) {
			g.Check(&Request{Method: "POST", Path: "/v1/guest-tokens", From: traffic.Carrier{Peer: peer,
				Header: http.Header{}}})
		}
		for range 3 {
			ask("192.0.2.1:1")
		}
		ask("192.0.2.2:1")
		g.SetObserve(true)
		ask("192.0.2.1:1")
		list.ready = false
		ask("192.0.2.1:1")
		time.Sleep(blocklist.GateEvery)
		synctest.Wait()
		if len(to.told) != 2 {
			t.Fatalf("told %d times in %s", len(to.told), blocklist.GateEvery)
		}
		m := traffic.DefaultIdentityMap()
		want := blocklist.GateReport{
			Instance: "edge-1", Build: "1.4", Identity: m.Fingerprint(), Observing: true, Blocks: 12, Missing: 3,
			Behind: 1, Staleness: 2, Clock: -70,
			Passed: 1, FailedOpen: 1, Refused: 3, WouldRefuse: 1, Started: start, At: start,
		}
		if to.told[1] != want {
			t.Errorf("told %+v, want %+v", to.told[1], want)
		}
		stop()
		if err := <-ended; err != nil || len(to.left) != 1 || to.left[0] != "edge-1" {
			t.Errorf("ended with %v, left %q", err, to.left)
		}
	})
}

// Redis being away, or hung, is counted and said once. The gate judges as before, and stops in time.
func TestRedisAwayIsNoTroubleOfTheGate(t *testing.T) {
	for name, to := range map[string]*registry{"away": {fail: errors.New("connection refused")}, "hung": {hang: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log said
				g := newGate(t, abuser(),
					func(o *Options, _ *traffic.IdentityMap) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				h := newHeartbeat(t, g, to, &copyOf{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- h.Run(ctx) }()
				time.Sleep(3*blocklist.GateEvery + heartbeatTimeout)
				synctest.Wait()
				if n := h.counted(reportFailed); n < 3 || h.counted(reportWritten) != 0 {
					t.Errorf("%v failures, %v written", n, h.counted(reportWritten))
				}
				if n := strings.Count(log.String(), "cannot tell Redis of itself"); n != 1 {
					t.Errorf("said %d times\n%s", n, log.String())
				}
				to.be(nil, false)
				time.Sleep(2*blocklist.GateEvery + heartbeatTimeout)
				synctest.Wait()
				if h.counted(reportWritten) == 0 || strings.Count(log.String(), "tells Redis of itself again") != 1 {
					t.Errorf("%v written\n%s", h.counted(reportWritten), log.String())
				}
				to.be(nil, true)
				begun := time.Now()
				stop()
				if err := <-ended; err != nil || time.Since(begun) > heartbeatTimeout+farewellTimeout {
					t.Errorf("ended with %v after %s", err, time.Since(begun))
				}
			})
		})
	}
}

// One that is not ready says why, and says soon when that is over.
func TestAGateThatIsNotReadyTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of, to := &copyOf{unready: errors.New("no epoch")}, &registry{}
		h := newHeartbeat(t, newGate(t, abuser(), nil), to, of)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		of.ready()
		time.Sleep(blocklist.GateEvery / unreadyOftener)
		synctest.Wait()
		if len(to.told) != 2 || to.told[0].Unready != "no epoch" || to.told[1].Unready != "" {
			t.Errorf("told %+v", to.told)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What a gate does not act on it tells as well, however long another installation's name is; as long as it is not
// ready, why that is says it all.
func TestAGateTellsWhatItDoesNotTake(t *testing.T) {
	long := errors.New(strings.Repeat("äß", 600))
	for _, tt := range []struct {
		what             string
		of               *copyOf
		unready, foreign bool
		held             int
	}{
		{"rules held back", &copyOf{heldBack: 3}, false, false, 3},
		{"another installation's Redis", &copyOf{foreign: long}, false, true, 0},
		{"from the beginning", &copyOf{foreign: long, unready: long}, true, false, 0},
	} {
		h := newHeartbeat(t, newGate(t, abuser(), nil), &registry{}, tt.of)
		r := h.report()
		if (r.Unready != "") != tt.unready || (r.Foreign != "") != tt.foreign || r.HeldBack != tt.held {
			t.Errorf("%s: told %+v", tt.what, r)
		}
		for _, text := range []string{r.Unready, r.Foreign} {
			if len(text) > 1024 || !utf8.ValidString(text) || text != "" && !strings.HasSuffix(text, "äß…") &&
				!strings.HasSuffix(text, "ä…") {
				t.Errorf("%s: %d bytes: %q", tt.what, len(text), text)
			}
		}
	}
}

func TestAHeartbeatNamesWhatIsMissing(t *testing.T) {
	if _, err := NewHeartbeat(HeartbeatOptions{}); err == nil || !strings.Contains(err.Error(), "Gate is missing") {
		t.Error(err)
	}
}
