package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/testbed"
)

// tokenRule blocks however long a machine takes to start anew what was killed: evidence that is too old is the subject of other tests.
const tokenRule = `
id: guest-tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 2
window: 10s
lateness: 5s
max_lag: 10m
block: {ttl: 10m}
`

// street is a gateway with clients behind it: it asks weir gate about each request, as a proxy does by forward-auth, and
// writes an event of it to Kafka, the verdict included.
type street struct {
	t        *testing.T
	in       *install
	producer *kgo.Client
	refused  int
}

func newStreet(t *testing.T, in *install) *street {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.DefaultProduceTopic(in.ns+".requests"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &street{t: t, in: in, producer: client}
}

// ask is what the proxy asks the gate about a request of a client.
func (s *street) ask(ip, path string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+s.in.gate+"/v1/forward-auth", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", ip+", 10.0.0.1") // the proxy appends the peer that it saw
	req.Header.Set("X-Forwarded-Method", http.MethodPost)
	req.Header.Set("X-Forwarded-Host", "api.example.com")
	req.Header.Set("X-Forwarded-Uri", path+"?x=1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// request is one request of a client: asked, answered, and reported.
func (s *street) request(ip string) int {
	s.t.Helper()
	return s.requestOf(ip, "", time.Now())
}

// requestOf is one of a client who has a plan, by an access log that stamps it with a time.
func (s *street) requestOf(ip, plan string, at time.Time) int {
	s.t.Helper()
	resp := s.ask(ip, "/v1/guest-tokens")
	defer func() { _ = resp.Body.Close() }()
	event := map[string]any{
		"v": 1, "time": at.UTC().Format(time.RFC3339Nano), "ip": "10.0.0.1", "forwarded_for": ip,
		"method": "POST", "path": "/v1/guest-tokens", "status": resp.StatusCode, "plan": plan,
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		s.refused++
		event["verdict"] = map[string]string{"rule": resp.Header.Get("X-Weir-Rule"), "block": resp.Header.Get("X-Weir-Block")}
	}
	raw, err := json.Marshal(event)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.producer.ProduceSync(background(s.t), &kgo.Record{Value: raw}).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode
}

// abuse sends n requests of a client.
func (s *street) abuse(ip string, n int) {
	s.t.Helper()
	for range n {
		s.request(ip)
	}
}

func (s *street) status(ip, path string) int {
	s.t.Helper()
	resp := s.ask(ip, path)
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

// answers waits until the gate answers a client with status.
func (s *street) answers(ip string, status int) {
	s.t.Helper()
	testbed.Eventually(s.t, 30*time.Second, func() error {
		if got := s.status(ip, "/v1/guest-tokens"); got != status {
			return fmt.Errorf("%s gets %d, want %d", ip, got, status)
		}
		return nil
	})
}

// recorded waits until history has a hit of the client.
func (s *street) recorded(ip string) {
	s.t.Helper()
	testbed.Eventually(s.t, 30*time.Second, func() error {
		var subjects []string
		s.in.query(`SELECT subject FROM {ns}.hits_all WHERE stream = 'live'`, func(rows pgx.Rows) error {
			var subject string
			err := rows.Scan(&subject)
			subjects = append(subjects, subject)
			return err
		})
		if !slices.Contains(subjects, "ip="+ip+"%2F32") {
			return fmt.Errorf("no hit of %s is in history, only of %v", ip, subjects)
		}
		return nil
	})
}

// TestTheLifeOfABlock follows a rule from shadow to blocking and back, on each kind of Redis.
func TestTheLifeOfABlock(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		redis := fmt.Sprintf("{url: %q}", server.URL)
		if server.Kind == testbed.RedisClusterKind {
			redis = fmt.Sprintf("{addresses: [%s]}", strings.Join(server.Addrs, ", "))
		}
		in := newInstall(t, [3]int{2, 4, 2}, redis, 1)
		in.Weir("rules", "apply", "-f", in.Write("rules.yaml", tokenRule), "--reason", "tests")
		stages, gate := in.start("run"), in.start("gate")
		waitForGate(t, in)
		s := newStreet(t, in)
		app := newAppServer(t, in, server)

		const first, second, third, viewer = "203.0.113.1", "203.0.113.2", "203.0.113.3", "198.51.100.7"
		s.abuse(first, 5)
		s.request(viewer)
		s.recorded(first)
		if s.refused != 0 {
			t.Fatalf("a rule in shadow refused %d requests", s.refused)
		}

		in.Weir("rules", "promote", "guest-tokens", "--reason", "seen in shadow", "--yes", "--override", "tests")
		s.abuse(second, 5)
		s.answers(second, http.StatusTooManyRequests)
		s.checkRefusal(second)
		app.answers(second, http.StatusTooManyRequests)
		s.answers(viewer, http.StatusOK)
		app.answers(viewer, http.StatusOK)
		if status := s.status(second, "/v1/videos"); status != http.StatusOK {
			t.Errorf("a request that the rule does not match gets %d", status)
		}

		in.Weir("blocks", "release", "guest-tokens", "ip="+second, "--reason", "a hotel")
		s.answers(second, http.StatusOK)
		app.answers(second, http.StatusOK)
		stages.kill()
		stages = in.start("run")
		s.abuse(third, 5) // when this one is blocked, everything before it has been read again
		s.answers(third, http.StatusTooManyRequests)
		s.answers(second, http.StatusOK)

		in.Weir("rules", "demote", "guest-tokens", "--reason", "done")
		s.answers(third, http.StatusOK)
		app.answers(third, http.StatusOK)
		stages.stop()
		gate.stop()
	})
}

func waitForGate(t *testing.T, in *install) {
	t.Helper()
	testbed.Eventually(t, 30*time.Second, func() error {
		resp, err := http.Get("http://" + in.gate + "/v1/forward-auth")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// checkRefusal holds a refusal against RFC 9457 and RFC 9110.
func (s *street) checkRefusal(ip string) {
	s.t.Helper()
	resp := s.ask(ip, "/v1/guest-tokens")
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var problem struct {
		Type   string `json:"type"`
		Status int    `json:"status"`
	}
	if err := json.Unmarshal(body, &problem); err != nil || problem.Status != 429 || !strings.Contains(problem.Type, "abnormal-usage-detected") {
		s.t.Errorf("body %s: %v", body, err)
	}
	if resp.Header.Get("Content-Type") != "application/problem+json" || resp.Header.Get("Retry-After") == "" ||
		resp.Header.Get("X-Weir-Block") == "" {
		s.t.Errorf("headers %v", resp.Header)
	}
}
