package boardtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// weirGate is a weir gate that the test asks: one that holds, one that only observes, and one that never finds its
// Redis.
type weirGate struct{ role, address string }

// load is what the test itself sends.
type load struct {
	in     *installation
	cancel context.CancelFunc
	ended  chan error

	mu        sync.Mutex
	decisions map[string]int // of the gates, by what they were
	rounds    int            // of lines that were shipped
}

// load sends, beside the demo's traffic, that of the trailers through the gateway, checks to the gates, and events
// that cannot be counted, until end.
func (in *installation) load() *load {
	in.t.Helper()
	ctx, cancel := context.WithCancel(in.t.Context())
	l := &load{in: in, cancel: cancel, ended: make(chan error, 2), decisions: map[string]int{}}
	go func() { l.ended <- l.askForTrailers(ctx) }()
	go func() { l.ended <- l.ship(ctx) }()
	return l
}

func (l *load) end() {
	l.cancel()
	for range cap(l.ended) {
		if err := <-l.ended; err != nil && !errors.Is(err, context.Canceled) {
			l.in.t.Error(err)
		}
	}
}

// askForTrailers asks for one after another from a few addresses, at the gateway and at the gates as each kind of
// proxy does.
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
			protocol := "forward-auth"
			if n%3 == 0 { // not as often, so that no protocol is taken for another
				protocol = "auth-request"
			}
			if err := l.check(g, protocol, proxied); err != nil {
				return err
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

// check asks a gate about a request as a proxy does, and counts the answer.
func (l *load) check(g weirGate, protocol string, headers http.Header) error {
	headers = headers.Clone()
	names := map[string]string{"forward-auth": "X-Forwarded-", "auth-request": "X-Original-"}[protocol]
	headers.Set(names+"Method", http.MethodGet)
	headers.Set(names+"Uri", "/v1/trailers/1")
	headers.Set(names+"Host", "api.example.com")
	status, told, err := l.ask(headers, "http://"+g.address+"/v1/"+protocol)
	if err != nil {
		return err
	}
	decision := "pass"
	switch {
	case g.role == "blind":
		decision = "fail_open"
	case status == http.StatusTooManyRequests, status == http.StatusForbidden:
		decision = "refuse"
	case told.Get("X-Weir-Would-Rule") != "":
		decision = "would_refuse"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions[decision]++
	return nil
}

// startShipper starts weir ingest.
func (in *installation) startShipper() {
	in.t.Helper()
	command := in.command("ingest", "-", "--config", in.config(), "--format", "weir", "--live",
		"--http-listen", in.metrics["shipper"])
	lines, err := command.StdinPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	in.run("shipper", command)
	in.shipper = lines
	in.t.Cleanup(func() { _ = lines.Close() })
}

// ship sends, once a second through weir ingest, what a busy installation also has: events that are too late for
// their rule, lack what it asks for, or are watched by none, and a line that is no event; and such records straight
// to Kafka.
func (l *load) ship(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.in.brokers...), kgo.DefaultProduceTopic(l.in.schema+".requests"))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		now, old := time.Now().UTC(), time.Now().UTC().Add(-5*time.Minute)
		_, err := fmt.Fprintf(l.in.shipper, strings.ReplaceAll(`
{"v": 1, "time": %[1]q, "forwarded_for": "203.0.113.9", $, "path": "/v1/shipped"}
{"v": 1, "time": %[2]q, $, "path": "/v1/shipped"}
{"v": 1, "time": %[2]q, $, "path": "/v1/shipped"}
{"v": 1, "time": %[1]q, "forwarded_for": "203.0.113.10", $, "path": "/v1/nothing"}
no event at all
`, "$", `"method": "GET", "status": 200`)[1:], old.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
		if err != nil {
			return err
		}
		bad := []*kgo.Record{{Value: []byte(`{`)}, {Value: []byte(`{"v": 2}`)}, {Value: []byte(`{"v": 3}`)}}
		if err := client.ProduceSync(context.WithoutCancel(ctx), bad...).FirstErr(); err != nil {
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
