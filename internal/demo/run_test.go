package demo_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/demo"
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
