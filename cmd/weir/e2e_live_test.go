package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/testbed"
)

const tokenRule = `
id: tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 3
window: 60s
block: {key: [ip], ttl: 10m}
`

// calls are n events of one client, a millisecond apart, as the gateway reports them now.
func calls(ip string, n int) string {
	var b strings.Builder
	at := time.Now().Add(-time.Duration(n) * time.Millisecond)
	for i := range n {
		fmt.Fprintf(&b, `{"v":1,"time":%q,"ip":%q,"method":"POST","path":"/v1/guest-tokens","status":201}`+"\n",
			at.Add(time.Duration(i)*time.Millisecond).UTC().Format(time.RFC3339Nano), ip)
	}
	return b.String()
}

// send sends calls into the live stream.
func (b *bed) send(ip string, n int) {
	b.t.Helper()
	o := b.weirWith(calls(ip, n), "ingest", "-", "--format", "weir", "--live", "--output", "json")
	var s stream.LiveSummary
	if err := json.Unmarshal([]byte(o.stdout), &s); err != nil || o.code != exitOK || s.Events != int64(n) {
		b.t.Fatalf("sending %d events of %s: exit code %d, %v\n%s%s", n, ip, o.code, err, o.stdout, o.stderr)
	}
}

// verdict is a gate's answer.
type verdict struct {
	status int
	header http.Header
	body   []byte
}

// check asks the gate about a call of ip.
func check(t *testing.T, address, ip string) verdict {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-Method", "POST")
	r.Header.Set("X-Forwarded-Uri", "/v1/guest-tokens?x=1")
	r.Header.Set("X-Forwarded-For", ip)
	return exchange(t, r)
}

func awaitStatus(t *testing.T, address, ip string, want int) {
	t.Helper()
	testbed.Eventually(t, 30*time.Second, func() error {
		if got := check(t, address, ip).status; got != want {
			return fmt.Errorf("the gate answers %d for %s, want %d", got, ip, want)
		}
		return nil
	})
}

// The life of a rule: shadow, promotion, block, release, restart, demotion.
func TestLiveFromShadowToDemotion(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, redis testbed.RedisServer) {
		b := newBed(t, redis)
		b.ok("migrate")
		b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule), "--reason", "first")
		stages := b.start("run")
		door := b.start("gate", "--listen", "127.0.0.1:0")
		address := door.awaitLog(`forward-auth checks" address=(\S+)`)

		shadow := "198.51.100.7"
		b.send(shadow, 6)
		awaitHits(b, shadow, 1)
		awaitMetric(b, stages.address(), `weir_enforce_decisions_total{action="would_write"`, func(v float64) bool { return v == 1 })
		if got := check(t, address, shadow).status; got != http.StatusOK {
			t.Fatalf("a rule in shadow refuses: %d", got)
		}
		if blocks := decode[[]any](b, "blocks", "list"); len(blocks) != 0 {
			t.Fatalf("a rule in shadow has blocks: %v", blocks)
		}

		b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
		abuser := "198.51.100.8"
		b.send(abuser, 6)
		awaitStatus(t, address, abuser, http.StatusTooManyRequests)
		wantRefusal(t, check(t, address, abuser))
		if got := check(t, address, "198.51.100.200").status; got != http.StatusOK {
			t.Errorf("a client that did nothing gets %d", got)
		}

		b.ok("blocks", "release", "tokens", "ip="+abuser, "--reason", "ticket 4711", "--by", "support")
		awaitStatus(t, address, abuser, http.StatusOK)
		stages.end()
		stages = b.start("run")
		other := "198.51.100.9"
		b.send(other, 6)
		awaitStatus(t, address, other, http.StatusTooManyRequests)
		if got := check(t, address, abuser).status; got != http.StatusOK {
			t.Errorf("after a restart the released client gets %d", got)
		}
		wantDecisions(b, abuser)

		b.ok("rules", "demote", "tokens", "--reason", "enough")
		awaitStatus(t, address, other, http.StatusOK)
		awaitHits(b, other, 1)
		stages.end()
		door.end()
	})
}

func awaitHits(b *bed, ip string, want int) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		hits := decode[[]map[string]any](b, "history", "hits", "--source", ip, "--since", "1h", "--rule", "tokens")
		if len(hits) != want {
			return fmt.Errorf("history has %d hits of %s, want %d", len(hits), ip, want)
		}
		return nil
	})
}

func wantRefusal(t *testing.T, answer verdict) {
	t.Helper()
	var p gate.Problem
	if err := json.Unmarshal(answer.body, &p); err != nil {
		t.Fatal(err)
	}
	after, err := strconv.Atoi(answer.header.Get("Retry-After"))
	if err != nil || after < 500 || after > 600 {
		t.Errorf("Retry-After %q, want about 600", answer.header.Get("Retry-After"))
	}
	if p.Type != gate.ProblemType || p.Status != 429 || p.Block == "" || answer.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("body %+v of type %s", p, answer.header.Get("Content-Type"))
	}
}

// wantDecisions looks for the whole story of a released client in history.
func wantDecisions(b *bed, ip string) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		seen := map[string]bool{}
		for _, d := range decode[[]map[string]any](b, "history", "decisions", "--source", "ip="+ip) {
			seen[fmt.Sprint(d["action"])] = true
			if d["action"] == "released" && (d["by"] != "support" || d["reason"] != "ticket 4711") {
				return fmt.Errorf("released by %v for %v", d["by"], d["reason"])
			}
		}
		if !seen["written"] || !seen["released"] {
			return fmt.Errorf("decisions %v, want written and released", seen)
		}
		return nil
	})
}

// What was sent before any stage ran is routed by the rules of now, and not by those of weir migrate, which had none.
func TestBacklogIsRoutedByTheNewestRules(t *testing.T) {
	t.Parallel()
	for range 5 {
		b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
		b.ok("migrate")
		b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
		b.send("198.51.100.7", 6)
		stages := b.start("run")
		awaitHits(b, "198.51.100.7", 1)
		stages.end()
	}
}

func TestGateThatObservesRefusesNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	stages := b.start("run")
	door := b.start("gate", "--observe", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`forward-auth checks" address=(\S+)`)
	abuser := "198.51.100.8"
	b.send(abuser, 6)
	testbed.Eventually(t, 30*time.Second, func() error {
		answer := check(t, address, abuser)
		if answer.status != http.StatusOK {
			t.Fatalf("an observing gate answers %d", answer.status)
		}
		if answer.header.Get(gate.HeaderWouldRule) != "tokens" {
			return fmt.Errorf("headers %v say nothing of the rule", answer.header)
		}
		return nil
	})
	stages.end()
	door.end()
}

// The way out that needs nothing but the gate's machine: a file, while nothing else of weir runs.
func TestGateObservesWhileItsFileExists(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	stages := b.start("run")
	path := filepath.Join(t.TempDir(), "observe")
	door := b.start("gate", "--observe-file", path, "--listen", "127.0.0.1:0")
	address, metrics := door.awaitLog(`forward-auth checks" address=(\S+)`), door.awaitLog(`metrics=(\S+)`)
	abuser := "198.51.100.8"
	b.send(abuser, 6)
	awaitStatus(t, address, abuser, http.StatusTooManyRequests)
	// It looks for the epoch once a second, and holds blocks before.
	testbed.Eventually(t, 30*time.Second, func() error {
		if code, body := fetchPage(t, metrics, "/readyz"); code != http.StatusOK {
			return fmt.Errorf("/readyz answers %d %s", code, body)
		}
		return nil
	})
	stages.end()

	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		answer := check(t, address, abuser)
		if answer.status != http.StatusOK || answer.header.Get(gate.HeaderWouldRule) != "tokens" {
			return fmt.Errorf("the gate answers %d with %v", answer.status, answer.header)
		}
		return nil
	})
	if code, body := fetchPage(t, metrics, "/readyz"); code != http.StatusOK || !strings.Contains(body, "observing: nobody is refused") {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, address, abuser, http.StatusTooManyRequests)
	if code, body := fetchPage(t, metrics, "/readyz"); code != http.StatusOK || strings.Contains(body, "observing") {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	door.end()
}

// The process reads its checks by the gate's own listener: net/http alone answers 400 and 431 to these.
func TestGateProcessTakesWhatClientsWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	door := b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`forward-auth checks" address=(\S+)`)
	for _, header := range []string{"X-Device-Id: a\x01b", "X-Device-Id: " + strings.Repeat("x", 1<<20), "X-Any\x01: b"} {
		connection, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(connection, "GET /v1/forward-auth HTTP/1.1\r\n"+header+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		_ = connection.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%.20q: got %s, want 200 of a gate without blocks", header, answer.Status)
		}
	}
	door.end()
}

func TestProcessesServeMetricsAndHealth(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	for _, tc := range []struct {
		args   []string
		log    string
		metric string
	}{
		{[]string{"run"}, `serving metrics and health" address=(\S+)`, "weir_build_info"},
		{[]string{"gate", "--listen", "127.0.0.1:0"}, `metrics=(\S+)`, "weir_gate_decisions_total"},
	} {
		p := b.start(tc.args...)
		address := p.awaitLog(tc.log)
		testbed.Eventually(t, 30*time.Second, func() error {
			if code, body := fetchPage(t, address, "/readyz"); code != http.StatusOK {
				return fmt.Errorf("%s: /readyz answers %d %s", tc.args[0], code, body)
			}
			return nil
		})
		if code, _ := fetchPage(t, address, "/livez"); code != http.StatusOK {
			t.Errorf("%s: /livez answers %d", tc.args[0], code)
		}
		if _, body := fetchPage(t, address, "/metrics"); !strings.Contains(body, tc.metric) || !strings.Contains(body, "go_goroutines") {
			t.Errorf("%s: /metrics lacks %s or go_goroutines", tc.args[0], tc.metric)
		}
		defer p.end() // a gate is ready where weir run has been
	}
}
