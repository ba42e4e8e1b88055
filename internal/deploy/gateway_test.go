package deploy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// The gateway starts without a gate and lets everybody pass, asks a gate as soon as its name is known, and follows the name
// to another address, without a reload.
func TestGatewayFollowsTheNameOfTheGate(t *testing.T) {
	s := emptySite(t)
	s.programs.nginx = testbed.Program(t, "nginx")
	s.mount("gateway")
	s.start("gateway")
	wants := func(when string, status int) {
		t.Helper()
		testbed.Eventually(t, 20*time.Second, func() error {
			answer, err := http.Post("http://"+s.address("gateway", "8080")+"/v1/guest-tokens", "", nil)
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode != status {
				return fmt.Errorf("%s: got %s, want %d", when, answer.Status, status)
			}
			return nil
		})
	}
	wants("the gate's name is unknown", http.StatusCreated)

	asked := closedGate(t, s.address("gate", "9465"))
	s.docker.set("gate", "127.0.0.1")
	wants("the gate is there", http.StatusTooManyRequests)
	if got := <-asked; got != "POST /v1/guest-tokens of 127.0.0.1" {
		t.Errorf("the gate was asked about %s", got)
	}
	s.docker.set("gate", "127.0.0.2")
	wants("the gate has moved, and nobody listens there", http.StatusCreated)
	s.docker.set("gate", "127.0.0.1")
	wants("the gate has moved back", http.StatusTooManyRequests)
	s.docker.forget("gate")
	wants("the gate has gone", http.StatusCreated)
}

// The demo's way to a gate with a name is an nginx, too, and takes whatever the gateway hands on: nobody who is blocked
// passes by what it refuses.
func TestGatewayAsksTheGateHoweverLargeAHeaderIs(t *testing.T) {
	s := emptySite(t)
	s.programs.nginx = testbed.Program(t, "nginx")
	s.mount("gateway")
	s.start("gateway")
	closedGate(t, s.address("gate", "9465"))
	s.docker.set("gate", "127.0.0.1")
	post := func(target string, headers map[string]string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address("gateway", "8080")+target, nil)
		must(t, err)
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		if got := post("/v1/guest-tokens", nil); got != http.StatusTooManyRequests {
			return fmt.Errorf("got %d, want 429", got)
		}
		return nil
	})
	// Around what nginx takes unless told otherwise: it writes some lines longer than they came.
	const asked, unasked = "/v1/guest-tokens?", "/healthz?12345678" // of one length; the gate is not asked about the second
	taken := 0
	for size := 8<<10 - 64; size <= 8<<10; size++ {
		text := strings.Repeat("1", size)
		for name, request := range map[string]func(target string) int{
			"X-Forwarded-For": func(target string) int { return post(target, map[string]string{"X-Forwarded-For": text}) },
			"Cookie":          func(target string) int { return post(target, map[string]string{"Cookie": text}) },
			"the target":      func(target string) int { return post(target+text, nil) },
		} {
			want := request(unasked)
			if want == http.StatusOK {
				taken++
				want = http.StatusTooManyRequests
			}
			// A gate that a busy machine keeps from answering in time lets pass, as the shipped files say; not again and again.
			testbed.Eventually(t, 20*time.Second, func() error {
				if got := request(asked); got != want {
					return fmt.Errorf("%s of %d bytes: got %d, want %d", name, size, got, want)
				}
				return nil
			})
		}
	}
	if taken < 3*16 || taken == 3*65 {
		t.Errorf("the gateway takes %d of %d requests: no limit is among them", taken, 3*65)
	}
}

// closedGate is a gate that refuses everybody, as weir's says so to nginx. It tells what it was first asked about.
func closedGate(t *testing.T, address string) <-chan string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	asked := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/auth-request" {
			w.WriteHeader(http.StatusNotFound)
			return
		}

		select {
		case asked <- r.Header.Get("X-Original-Method") + " " + r.Header.Get("X-Original-URI") + " of " + r.Header.Get("X-Forwarded-For"):
		default: // only the first is looked at
		}
		w.Header().Set("X-Weir-Status", "429")
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusForbidden)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return asked
}
