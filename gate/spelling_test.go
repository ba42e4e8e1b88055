package gate

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// watched is a blocklist of one block, of one address, for the requests that a rule watches.
type watched struct {
	ip    netip.Addr
	match rules.Match
}

var _ Blocklist = (*watched)(nil)

func (w *watched) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	if id.IP != w.ip || !w.match.Reaches(&request) {
		return blocklist.Block{}, false
	}
	return blocklist.Block{Rule: "guest-token-flood", Hit: "0123456789abcdef0123456789abcdef", Until: now.Add(time.Minute), Scope: "match"}, true
}

func (w *watched) Ready() bool { return true }

func (w *watched) Rules() []string { return []string{"guest-token-flood"} }

func guestTokens() rules.Match {
	return rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
}

// respelled are spellings of the watched path: the first ones nginx itself serves as it.
func respelled() []string {
	return []string{
		"/v1/guest-tokens", "/v1/%67uest-tokens", "//v1/guest-tokens", "/v1/./guest-tokens", "/v1/x/../guest-tokens", "/x/%2e%2E/v1/guest-tokens",
		"/v1%2Fguest-tokens", "/v1/guest-tokens#", "/v1/guest-tokens#/../x", "/v1/guest-tokens?x#", "http://x/v1/guest-tokens",
		"/v1/guest-tokens/", "/v1/guest-tokens/.", "/v1/guest-tokens;a=b", `/v1\guest-tokens`, "//evil.example/v1/guest-tokens", "/v1/guest-tokens\xa0",
	}
}

// The shipped files before an API that is a nginx too. %[1]s: folder. %[2]s: where it listens. %[3]s: the gate. %[4]s: the API.
const respellingConfig = nginxHead + `
    include weir_log.conf;
    upstream weir_gate { server %[3]s; keepalive 64; }
    server {
        listen %[2]s;
        access_log %[1]s/access.log weir;
        include weir_check.conf;
        location / { proxy_pass http://%[4]s; }
    }
    server {
        listen %[4]s;
        access_log off;
        location = /v1/guest-tokens { return 201 "a token"; }
        location = /v1/films { return 200 "the API got 0 bytes"; }
        location / { return 404 "no such thing"; }
    }
}
`

// TestNoSpellingPassesNginx asks through a real nginx with the shipped files, before an API that serves a path however it is
// spelled: of a blocked client nothing is served, and what is served to another one is counted.
func TestNoSpellingPassesNginx(t *testing.T) {
	d := newDoor(t, newGate(t, &watched{netip.MustParseAddr(theAbuser), guestTokens()}, nil).Handler())
	g := &gateway{t: t, dir: t.TempDir(), address: port(t)}
	g.start(fmt.Sprintf(respellingConfig, g.dir, g.address, d.address, port(t)), longTimeouts)

	served := 0
	for _, path := range respelled() {
		if got := g.send(call{client: theAbuser, method: "POST", path: path}); got.status == http.StatusCreated {
			t.Errorf("the blocked client is served %q", path)
		}
		if g.send(call{client: viewer, method: "POST", path: path}).status == http.StatusCreated {
			served++
		}
	}
	if served < 10 {
		t.Fatalf("nginx serves %d spellings: the test asks for too little", served)
	}
	index := (&rules.Routing{RecordFormat: rules.ReadingRecordFormat, Rules: []rules.Version{{Document: rules.Document{Match: guestTokens()}}}}).Index()
	testbed.Eventually(t, 5*time.Second, func() error {
		log, err := os.ReadFile(filepath.Join(g.dir, "access.log"))
		if err != nil {
			return err
		}
		logged := 0
		for _, r := range decoded(t, log) {
			if r.Status != http.StatusCreated {
				continue
			}
			if logged++; len(index.Match(nil, &rules.Target{Method: r.Method, Path: r.Path})) == 0 {
				t.Errorf("%q was served, and is counted by no rule", r.Path)
			}
		}
		if logged < served {
			return fmt.Errorf("%d lines of %d", logged, served)
		}
		return nil
	})
}

// TestNoSpellingPassesTheMiddleware sends targets as they stand to a Go server.
func TestNoSpellingPassesTheMiddleware(t *testing.T) {
	g := newGate(t, &watched{netip.MustParseAddr("127.0.0.1"), guestTokens()}, nil)
	s := httptest.NewServer(http.StripPrefix("/v1", g.Middleware(answers(http.StatusTeapot))))
	t.Cleanup(s.Close)
	address := s.Listener.Addr().(*net.TCPAddr).String()
	for _, path := range respelled() {
		got, err := try(address, call{method: "POST", path: path})
		if err != nil || got.status == http.StatusTeapot {
			t.Errorf("%q: got %d, %v", path, got.status, err)
		}
	}
	if got := through(t, address, call{method: "POST", path: "/v1/films"}); got.status != http.StatusTeapot {
		t.Errorf("another path: got %d", got.status)
	}
	if strings.Contains(target(&http.Request{RequestURI: "/a#b", URL: nil}), "%23") {
		t.Error("the target is not what was received")
	}
}
