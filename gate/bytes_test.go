package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// holdsAll is a blocklist that holds all requests of one address, and remembers who asked for which path.
type holdsAll struct {
	ip    netip.Addr
	mu    sync.Mutex
	asked map[string]traffic.Identity
}

func (h *holdsAll) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id.Device = strings.Clone(id.Device)
	h.asked[strings.Clone(request.Path)] = id
	return blocklist.Block{Rule: "guest-token-flood", Hit: "0123456789abcdef0123456789abcdef", Until: now.Add(time.Minute)}, id.IP == h.ip
}

func (h *holdsAll) Ready() bool { return true }

func (h *holdsAll) Rules() []string { return []string{"guest-token-flood"} }

func (h *holdsAll) of(path string) (traffic.Identity, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, ok := h.asked[path]
	return id, ok
}

var _ Blocklist = (*holdsAll)(nil)

func holding(address string) *holdsAll {
	return &holdsAll{ip: netip.MustParseAddr(address), asked: make(map[string]traffic.Identity)}
}

func withSession(_ *Options, m *traffic.IdentityMap) {
	m.Session = traffic.FieldSource{Cookie: "sid", Vouched: true}
}

// laxAPI serves whatever a proxy asks it for, as servers do that look at no header.
func laxAPI(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				if c.SetDeadline(time.Now().Add(patience)) != nil {
					return
				}
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\r\n" {
						break
					}
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 19\r\n\r\nthe API got 0 bytes")
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

// places are where in a request a client can write b. All requests have paths of their own.
func places(b byte) map[string]call {
	odd := string([]byte{b})
	headed := func(place, name, value string) call {
		return call{method: "GET", path: fmt.Sprintf("/v1/%s/%02x", place, b), headers: [][2]string{{name, value}}}
	}
	return map[string]call{
		"any":       headed("any", "X-Any", "a"+odd+"b"),
		"agent":     headed("agent", "User-Agent", "a"+odd+"b"),
		"chain":     headed("chain", "X-Forwarded-For", "203.0.113.5"+odd),
		"cookie":    headed("cookie", "Cookie", "a=1; sid=s"+odd+"t"),
		"device":    headed("device", "X-Device-Id", "a"+odd+"b"),
		"first":     headed("first", "X-Device-Id", odd+"b"),
		"last":      headed("last", "X-Device-Id", "a"+odd),
		"name":      headed("name", "X-A"+odd+"b", "v"),
		"framing":   headed("framing", odd+"Transfer-Encoding", "chunked"),
		"path":      {method: "GET", path: fmt.Sprintf("/v1/path/%02xx%s", b, odd)},
		"query":     {method: "GET", path: fmt.Sprintf("/v1/query/%02x?q=%s", b, odd)},
		"method":    {method: "GE" + odd + "T", path: fmt.Sprintf("/v1/method/%02x", b)},
		"authority": {method: "GET", path: fmt.Sprintf("http://api.example.com%s/v1/authority/%02x", odd, b)},
	}
}

// eachByte sends every byte at every place: as a client that is blocked, who is never served and gets a 429 wherever the
// proxy takes the request; and as another, who gets what it gets without a gate.
func eachByte(t *testing.T, guarded, plain string, blocked, other func(call) call) {
	t.Helper()
	status := func(address string, c call) (int, bool) {
		got, err := try(address, c)
		if err != nil {
			return 0, false // it hung up, or answered in HTTP/0.9
		}
		return got.status, strings.HasPrefix(got.body, "the API got")
	}
	var sending sync.WaitGroup
	for name := range places(0) {
		sending.Go(func() {
			taken := 0
			for i := range 256 {
				c := places(byte(i))[name]
				// What a byte does it does every time; that a busy machine kept a proxy from the API, it does not.
				var want, got, held int
				var takes, served bool
				for range 5 {
					want, takes = status(plain, other(c))
					if got, served = status(guarded, other(c)); got == want && served == takes {
						break
					}
				}
				if got != want || served != takes {
					t.Errorf("%s: byte %#02x of a client that is not blocked: got %d, want %d as without a gate", name, i, got, want)
				}
				for range 5 {
					if held, served = status(guarded, blocked(c)); served || !takes || held == 429 {
						break
					}
				}
				if served || takes && held != 429 {
					t.Errorf("%s: byte %#02x of a blocked client: got %d, another gets %d", name, i, held, want)
				}
				if takes {
					taken++
				}
			}
			if taken == 0 {
				t.Errorf("%s: the proxy took none of the requests", name)
			}
			t.Logf("%s: the proxy takes %d of 256 bytes", name, taken)
		})
	}
	sending.Wait()
}

func TestNginxChecksEveryByte(t *testing.T) {
	list := holding(theAbuser)
	g := newGate(t, list, withSession)
	n := startNginxBefore(t, doorOf(t, g).address, laxAPI(t), longTimeouts)
	as := func(client string) func(call) call {
		return func(c call) call { c.client = client; return c }
	}
	eachByte(t, n.address, n.plain, as(theAbuser), as(viewer))
	repeated := call{client: viewer, method: "GET", path: "/v1/repeated", headers: [][2]string{{"X-Device-Id", "one"}, {"X-Device-Id", "two"}}}
	if got := n.send(repeated); got.status != 200 {
		t.Errorf("a repeated header: got %d", got.status)
	}
	cookies := call{client: viewer, method: "GET", path: "/v1/cookies", headers: [][2]string{{"Cookie", "a=1; sid=real"}, {"Cookie", "sid=other; b=2"}}}
	if got := n.send(cookies); got.status != 200 {
		t.Errorf("two Cookie lines: got %d", got.status)
	} else if id, _ := list.of(cookies.path); id.Session != "real" {
		t.Errorf("two Cookie lines: the gate sees session %q, want the first", id.Session)
	}

	// The log and the gate name the same client.
	m := traffic.DefaultIdentityMap()
	x, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 5*time.Second, func() error {
		log, err := os.ReadFile(filepath.Join(n.dir, "access.log"))
		if err != nil {
			return err
		}
		compared, bytes := 0, make(map[string]bool)
		for _, event := range decoded(t, log) {
			atGate, asked := list.of(event.Path)
			if !asked || event.Status == 400 { // 400: nginx's own, of the same path with another byte in it
				continue
			}
			logged, _ := x.FromEvent(&event)
			if got, want := atGate.Device, logged.Device; got != want {
				t.Errorf("%s: the gate sees device %q, the log %q", event.Path, got, want)
			}
			compared, bytes[event.Path] = compared+1, true
		}
		if compared < 2*6*200 || !bytes["/v1/repeated"] || !bytes["/v1/device/01"] || !bytes["/v1/device/ff"] {
			return fmt.Errorf("%d requests compared, of %d paths", compared, len(bytes))
		}
		return nil
	})
	eachSize(t, n.address, 1000<<10, as(theAbuser), as(viewer))
}

func TestCaddyChecksEveryByte(t *testing.T) {
	g := newGate(t, holding(loopbackAbuser), withSession)
	address, plain := startCaddyBefore(t, doorOf(t, g).address, laxAPI(t), longTimeouts)
	from := func(client string) func(call) call {
		return func(c call) call { c.from = client; return c }
	}
	eachByte(t, address, plain, from(loopbackAbuser), from("127.0.0.1"))
	eachSize(t, address, 1<<20, from(loopbackAbuser), from("127.0.0.1"))
}

// eachSize sends large headers, of one line and of many, as a client that is blocked, and as another. That they were not
// answered once must not let anybody pass afterwards.
func eachSize(t *testing.T, address string, most int, blocked, other func(call) call) {
	t.Helper()
	for _, size := range []int{70 << 10, 200 << 10, most} {
		c := call{method: "GET", path: "/v1/large"}
		many := c
		for i := range 10 {
			many.headers = append(many.headers, [2]string{fmt.Sprintf("X-H%d", i), strings.Repeat("x", size/10)})
		}
		requests := map[string]call{"no header": c, "many lines": many}
		for _, name := range []string{"X-Any", "X-Device-Id", "Cookie", "X-Forwarded-For"} {
			one := c
			one.headers = [][2]string{{name, strings.Repeat("x", size)}}
			requests[name] = one
		}
		for name, request := range requests {
			if got := through(t, address, other(request)); got.status != 200 || got.body != "the API got 0 bytes" {
				t.Errorf("%d bytes of %s, of a client that is not blocked: got %d %s", size, name, got.status, got.body)
			}
			for _, request := range []call{request, c} {
				if got := through(t, address, blocked(request)); got.status != 429 {
					t.Errorf("%d bytes of %s, of a blocked client: got %d %s", size, name, got.status, got.body)
				}
			}
		}
	}
}

// asDocumented leaves a configuration as it is.
func asDocumented(text string) string { return text }

// longTimeouts lets a proxy wait for the gate for longer than a busy machine may need: what it was not told in time it lets pass.
func longTimeouts(text string) string {
	return strings.NewReplacer(" 50ms", " 1m", " 100ms", " 1m", " 500ms", " 1m").Replace(text)
}
