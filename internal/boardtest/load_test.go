package boardtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/demo"
)

// weirGate is a weir gate that the test asks: one that holds, one that only observes, and one that never finds its Redis.
type weirGate struct{ role, address string }

// check is a request that a gate was asked about, and what it said.
type check struct {
	at                             time.Time
	role, protocol, decision, rule string
}

// load is what the test itself sends.
type load struct {
	in     *installation
	cancel context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	checks []check
	odd    map[string]int // checks of a kind that gates count by themselves
	rounds int            // of lines that were shipped
}

// load sends demo traffic and that of the trailers through the gateway, checks to the gates, and events that cannot be
// counted, until end.
func (in *installation) load() *load {
	in.t.Helper()
	ctx, cancel := context.WithCancel(in.t.Context())
	l := &load{in: in, cancel: cancel, ended: make(chan error, 4), odd: map[string]int{}}
	go func() { l.ended <- l.play(ctx) }()
	go func() { l.ended <- l.askForTrailers(ctx) }()
	go func() { l.ended <- l.askOddly() }()
	go func() { l.ended <- l.ship(ctx) }()
	return l
}

// play plays the demo again and again.
func (l *load) play(ctx context.Context) error {
	for round := uint64(1); ; round++ {
		_, err := demo.Run(ctx, demo.Options{
			Seed: 1, Round: round, Duration: 2 * time.Minute, GatewayURL: "http://" + l.in.gateway, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

func (l *load) end() {
	l.cancel()
	for range cap(l.ended) {
		if err := <-l.ended; err != nil && !errors.Is(err, context.Canceled) {
			l.in.t.Error(err)
		}
	}
}

// askForTrailers asks for one after another from a few addresses, at the gateway and at the gates as each kind of proxy does.
func (l *load) askForTrailers(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		who := fmt.Sprintf("198.51.100.%d", 1+n%5)
		if _, _, err := l.ask(http.Header{"X-Forwarded-For": {who}}, "http://"+l.in.gateway+"/v1/trailers/1"); err != nil {
			return err
		}
		proxied := http.Header{"X-Forwarded-For": {who + ", 127.0.0.1"}} // with the address of the proxy before
		at := []weirGate{l.in.gates[n%2]}
		if n%10 == 0 {
			at = append(at, l.in.gates[2])
		}
		for _, g := range at {
			if err := l.check(g, "forward_auth", "/v1/trailers/1", proxied); err != nil {
				return err
			}
			if n%3 == 0 { // not as often, so that no protocol is taken for another
				if err := l.check(g, "auth_request", "/v1/trailers/1", proxied); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ask sends a request, to its end even if the load is over meanwhile: what a gate has counted is known here.
func (l *load) ask(headers http.Header, url string) (status int, told http.Header, err error) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	r.Header = headers
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
	return answer.StatusCode, answer.Header, answer.Body.Close()
}

// check asks a gate about a request as a proxy does, and writes down the answer.
func (l *load) check(g weirGate, protocol, path string, headers http.Header) error {
	headers = headers.Clone()
	url := "http://" + g.address + "/v1/" + strings.ReplaceAll(protocol, "_", "-")
	names := map[string]string{"forward_auth": "X-Forwarded-", "auth_request": "X-Original-"}[protocol]
	if path != "" {
		headers.Set(names+"Method", http.MethodGet)
		headers.Set(names+"Uri", path)
		headers.Set(names+"Host", "api.example.com")
	}
	status, told, err := l.ask(headers, url)
	if err != nil {
		return err
	}
	c := check{at: time.Now(), role: g.role, protocol: protocol}
	switch {
	case g.role == "blind":
		c.decision = "fail_open"
	case status == http.StatusTooManyRequests, status == http.StatusForbidden:
		c.decision, c.rule = "refuse", told.Get("X-Weir-Rule")
	case told.Get("X-Weir-Would-Rule") != "":
		c.decision, c.rule = "would_refuse", told.Get("X-Weir-Would-Rule")
	default:
		c.decision = "pass"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks = append(l.checks, c)
	return nil
}

// askOddly asks what gates cannot judge, or not whole, each kind another number of times.
func (l *load) askOddly() error {
	const nobody = "198.51.100.77"
	for _, odd := range []struct {
		kind           string
		times          int
		protocol, path string
		headers        http.Header
	}{
		{"untold", 3, "auth_request", "", http.Header{"X-Forwarded-For": {nobody + ", 127.0.0.1"}}},
		{"address forwarded_short", 4, "forward_auth", "/v1/catalog/1", http.Header{}},
		{"address ip_unparsable", 5, "forward_auth", "/v1/catalog/1", http.Header{"X-Forwarded-For": {"nonsense, 127.0.0.1"}}},
		{"field device repeated", 6, "forward_auth", "/v1/catalog/1", http.Header{"X-Forwarded-For": {nobody + ", 127.0.0.1"}, "X-Device-Id": {"a", "b"}}},
	} {
		for range odd.times {
			if err := l.check(l.in.gates[0], odd.protocol, odd.path, odd.headers); err != nil {
				return err
			}
			l.count(odd.kind)
		}
	}
	for _, malformed := range []struct {
		kind, head, status string
		times              int
	}{
		{"malformed not_http", "GET /v1/forward-auth nonsense\r\nHost: gate\r\n\r\n", " 400 ", 2},
		{"malformed too_large", "GET /v1/forward-auth HTTP/1.1\r\nHost: gate\r\nX-Forwarded-Uri: /" + strings.Repeat("a", 3<<20) + "\r\n\r\n", " 431 ", 1},
	} {
		for range malformed.times {
			status, err := l.raw(malformed.head)
			if err != nil {
				return err
			}
			if !strings.Contains(status, malformed.status) {
				return fmt.Errorf("%s is answered with %q", malformed.kind, status)
			}
			l.count(malformed.kind)
		}
	}
	return nil
}

func (l *load) count(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd[kind]++
}

// raw sends bytes to the first gate, and gives the line with the status, which may come before all of them are sent: a gate hangs up over
// what it does not read.
func (l *load) raw(head string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(l.in.t.Context(), "tcp", l.in.gates[0].address)
	if err != nil {
		return "", err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	sending.Go(func() { _, _ = io.WriteString(conn, head) })
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// startShipper starts weir ingest.
func (in *installation) startShipper() {
	in.t.Helper()
	command := in.command("ingest", "-", "--config", in.config(), "--format", "weir", "--live", "--http-listen", in.metrics["shipper"])
	lines, err := command.StdinPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	in.run("shipper", command)
	in.shipper = lines
	in.t.Cleanup(func() { _ = lines.Close() })
}

// ship sends, once a second through weir ingest, what a busy installation also has: events that are too late, lack what a rule
// asks for, or are watched by none, and lines that are no event; and some such records straight to Kafka.
func (l *load) ship(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.in.brokers...), kgo.DefaultProduceTopic(l.in.schema+".requests"))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now().UTC()
		old := now.Add(-5 * time.Minute).Format(time.RFC3339Nano)
		_, err := fmt.Fprintf(l.in.shipper, `{"v": 1, "time": %[1]q, "forwarded_for": "203.0.113.9", "method": "GET", "path": "/v1/catalog/1", "status": 200}
{"v": 1, "time": %[2]q, "method": "GET", "path": "/v1/catalog/1", "status": 200}
{"v": 1, "time": %[2]q, "forwarded_for": "203.0.113.9", "method": "POST", "path": "/v1/guest-tokens", "status": 201}
{"v": 1, "time": %[2]q, "method": "POST", "path": "/v1/sign-in", "status": 200}
{"v": 1, "time": %[2]q, "method": "POST", "path": "/v1/sign-in", "status": 200}
{"v": 1, "time": %[1]q, "forwarded_for": "203.0.113.10", "method": "GET", "path": "/v1/nothing", "status": 404}
no event at all
`, old, now.Format(time.RFC3339Nano))
		if err != nil {
			return err
		}
		bad := []*kgo.Record{{Value: []byte(`{`)}, {Value: []byte(`{"v": 2}`)}, {Value: []byte(`{"v": 3}`)}}
		if err := client.ProduceSync(context.WithoutCancel(ctx), slices.Clone(bad)...).FirstErr(); err != nil {
			return err
		}
		l.mu.Lock()
		l.rounds++
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}
