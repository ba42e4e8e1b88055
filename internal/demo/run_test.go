package demo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/rules"
)

func TestRunOptions(t *testing.T) {
	good := demo.Options{Duration: demo.MinDuration, GatewayURL: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)}
	tests := []struct {
		change func(o *demo.Options)
		want   string
	}{
		{func(o *demo.Options) { o.Log = nil }, "Log"},
		{func(o *demo.Options) { o.Duration = 19 * time.Second }, "duration 19s, allowed: 20s and more"},
		{func(o *demo.Options) { o.GatewayURL = "127.0.0.1:8080" }, "http://HOST:PORT"},
		{func(o *demo.Options) { o.Abusers = 51 }, "abusers is 51, allowed: 1 to 50"},
		{func(o *demo.Options) { o.Viewers = -1 }, "viewers is -1"},
	}
	for _, test := range tests {
		o := good
		test.change(&o)
		if _, err := demo.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

// TestWatched: what people look at is there. Blocks outlast the run, which nobody waits beyond its time for; nobody ordinary is refused; and
// the rules that stay in shadow find one abusers only, the other also an address whose people pay.
func TestWatched(t *testing.T) {
	var stay []string
	for _, d := range watched(t) {
		if !slices.Contains(demo.WatchedPromotions(), d.ID) {
			stay = append(stay, d.ID)
		}
	}
	if !slices.Equal(stay, []string{"catalog-scraper", "tokens-by-address"}) {
		t.Fatalf("these stay in shadow: %v", stay)
	}
	synctest.Test(t, func(t *testing.T) {
		began, w := time.Now(), world{seed: 3, duration: time.Minute, watched: true, prepare: func(e *engine) { e.unready = stay }}
		ledger, answers, recorded := w.play(t)
		if took := time.Since(began); took > w.duration+5*time.Second {
			t.Errorf("the run took %s of %s", took, w.duration)
		}
		plans := map[string]string{} // by subject of an address
		refused, longest := 0, 0
		for _, a := range answers.Requests {
			c := &answers.Cast[a.Client]
			if longest = max(longest, a.RetryAfter); a.Refused() && !c.Kind.Abuses() {
				t.Errorf("%s is refused by %s", c.Name, a.Rule)
			} else if a.Refused() {
				refused++
			}
			if slices.Contains(stay, a.Rule) {
				t.Errorf("%s, in shadow, refuses %s", a.Rule, c.Name)
			}
			bits := 32
			if c.Network.Addr().Is6() {
				bits = 64
			}
			if subject := fmt.Sprintf("ip=%s%%2F%d", c.Network.Addr(), bits); c.Kind == demo.KindOffice || c.Kind.Abuses() {
				plans[subject] = string(c.Kind)
			}
		}
		if refused < 100 || longest < 150 || len(ledger.Stamps) < 1000 {
			t.Errorf("%d requests, %d refused, for %d s at most", len(ledger.Stamps), refused, longest)
		}
		kinds := map[string]map[string]bool{}
		for _, h := range recorded.Hits {
			if kinds[h.Rule] == nil {
				kinds[h.Rule] = map[string]bool{}
			}
			kinds[h.Rule][plans[h.Subject]] = true
		}
		if got := kinds["catalog-scraper"]; len(got) != 1 || !got["scraper"] {
			t.Errorf("catalog-scraper finds %v", got)
		}
		if got := kinds["tokens-by-address"]; len(got) < 3 || !got["office"] {
			t.Errorf("tokens-by-address finds %v", got)
		}
	})
}

// watched are the rules that people watch.
func watched(t *testing.T) []rules.Document {
	t.Helper()
	documents, err := rules.ParseFiles([]rules.File{{Name: "watched.yaml", Src: demo.WatchedRules()}}, rules.Environment{Identity: demo.IdentityMap()})
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stuck answers nothing until the request is given up.
func stuck(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRunEnds: whatever the gateway does, a run ends when it is told to, and when its promotion fails.
func TestRunEnds(t *testing.T) {
	o := demo.Options{
		Duration: demo.MinDuration, GatewayURL: "http://gateway.test", Log: slog.New(slog.DiscardHandler), Transport: transport(stuck), Clock: clock,
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		answers, err := demo.Run(ctx, o)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 4*time.Second {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
		if len(answers.Requests) == 0 || answers.Requests[0].Status != 0 || answers.Requests[0].Err == "" {
			t.Errorf("%d answers", len(answers.Requests))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("the rule store is away")
		o := o
		o.Promote = func(context.Context) error { return failure }
		answers, err := demo.Run(t.Context(), o)
		if !errors.Is(err, failure) || answers.Promoted != 0 || answers.Promotion == 0 {
			t.Errorf("error %v, promoted %s", err, answers.Promoted)
		}
	})
}

// TestRequestsAreBounded: a client stops when it has sent enough, however fast it may.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := demo.Options{
			Duration: time.Hour, GatewayURL: "http://gateway.test", Log: slog.New(slog.DiscardHandler), Clock: clock, Requests: 40,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
			}),
		}
		answers, err := demo.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		sent := map[int]int{}
		for _, a := range answers.Requests {
			sent[a.Client]++
		}
		for i, n := range sent {
			if n > 40+4 { // what belongs together is sent together
				t.Errorf("%s sent %d", answers.Cast[i].Name, n)
			}
		}
	})
}
