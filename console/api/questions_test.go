package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// hanging is a rule store that does not answer. It tells by which connections it was asked.
type hanging struct {
	api.RuleStore
	asked chan postgres.Lane
}

func (h *hanging) List(ctx context.Context) ([]rulestore.Rule, error) {
	h.asked <- postgres.LaneOf(ctx)
	<-ctx.Done()
	return nil, ctx.Err()
}

// prompt is acts that are done at once. It tells by which connections.
type prompt struct {
	acts.Acts
	asked chan postgres.Lane
}

func (p *prompt) SetMode(ctx context.Context, _ access.Actor, _ acts.ModeRequest) (acts.ModeDone, error) {
	p.asked <- postgres.LaneOf(ctx)
	return acts.ModeDone{}, nil
}

// hung is an API whose rule store hangs, and whose acts do not.
func hung(t *testing.T) (handler http.Handler, questions, done chan postgres.Lane) {
	t.Helper()
	questions, done = make(chan postgres.Lane, 100), make(chan postgres.Lane, 100)
	registry := prometheus.NewRegistry()
	all, err := turns.New(turns.Options{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Options{
		Acts: &prompt{asked: done}, Turns: all, Logger: slog.New(slog.DiscardHandler), Registerer: registry,
		Health: func() api.Health { return api.Health{} }, Witness: struct{ access.Witness }{},
		Reader: &api.Reader{
			Rules: &hanging{asked: questions}, History: struct{ api.History }{}, Trail: struct{ api.Trail }{},
			Blocks: struct{ api.Blocks }{}, Explorer: struct{ api.Explorer }{}, Teller: struct{ api.Teller }{},
			Dossiers: struct{ api.Dossiers }{}, Clock: func() traffic.Time { return traffic.At(time.Now()) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a.Handler(), questions, done
}

// deaf is a trail that takes no entry.
type deaf struct{}

func (deaf) Tell(_ *http.Request, _ access.Actor, act access.Act) error {
	return &access.UnwrittenError{Act: act, Cause: errors.New("PostgreSQL at db.internal is away")}
}

// No question that can be answered with a file asks history before it is written down who takes it: here history would
// panic. By its description a route that is added is among them.
func TestNoFileWithoutAnEntry(t *testing.T) {
	a, err := api.New(api.Options{
		Acts: struct{ acts.Acts }{}, Witness: deaf{}, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Health: func() api.Health { return api.Health{} },
		Reader: &api.Reader{
			Rules: struct{ api.RuleStore }{}, History: struct{ api.History }{}, Trail: struct{ api.Trail }{},
			Blocks: struct{ api.Blocks }{}, Explorer: struct{ api.Explorer }{}, Teller: struct{ api.Teller }{},
			Dossiers: struct{ api.Dossiers }{}, Letters: &bed{},
			Clock: func() traffic.Time { return traffic.At(time.Now()) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name string }
		}
	}
	if err := json.Unmarshal(a.Document(), &described); err != nil {
		t.Fatal(err)
	}
	files := 0
	for path, methods := range described.Paths {
		if !slices.ContainsFunc(methods["get"].Parameters,
			func(p struct{ Name string }) bool { return p.Name == "format" }) {
			continue
		}
		files++
		for _, header := range []string{"", "text/csv"} {
			query := ""
			if header == "" {
				query = "?format=csv"
			}
			r := httptest.NewRequest(http.MethodGet, path+query, nil)
			r.Header.Set("Accept", header)
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Actor{Name: path + header,
				Role: access.Analyst})))
			if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "db.internal") ||
				!strings.Contains(w.Body.String(), "it cannot be written down just now who asks") {
				t.Errorf("%s as a file, with the trail away: got %d %s; allowed: 503", path, w.Code, w.Body)
			}
		}
	}
	if files < 8 {
		t.Errorf("got %d questions that can be answered with a file; allowed: all of history", files)
	}
}

// asks is the answer to a request of somebody, and how long it took.
func asks(handler http.Handler, who, method, path, body string) (*httptest.ResponseRecorder, api.Problem,
	time.Duration) {
	begun := time.Now()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), cast()[who])))
	var p api.Problem
	if w.Code >= http.StatusBadRequest {
		_ = json.Unmarshal(w.Body.Bytes(), &p) // what cannot be read has no title
	}
	return w, p, time.Since(begun)
}

func TestQuestionsThatHangEndAndKeepNobodyFromActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler, questions, done := hung(t)
		var asking sync.WaitGroup
		for range 2 {
			asking.Go(func() {
				w, p, took := asks(handler, "vera", http.MethodGet, "/api/v1/rulebook", "")
				late := p.Title == "the answer takes too long" && took == 10*time.Second
				if w.Code != http.StatusServiceUnavailable || !late {
					t.Errorf("a question that hangs: %d %q after %v, want 503 after 10 s", w.Code, p.Title, took)
				}
				if w.Header().Get("Retry-After") == "" {
					t.Error("a question that hangs: no Retry-After")
				}
			})
		}
		synctest.Wait()
		w, p, took := asks(handler, "vera", http.MethodGet, "/api/v1/rulebook", "")
		limited := w.Code == http.StatusTooManyRequests && p.Type == "urn:weir:problem:limited"
		if !limited || took != turns.DefaultPatient {
			t.Errorf("a third one: %d %q after %v, want 429 after %v", w.Code, p.Type, took, turns.DefaultPatient)
		}
		if w.Header().Get("Retry-After") == "" {
			t.Error("a third one: no Retry-After")
		}
		for _, path := range []string{"/api/v1/me", "/api/v1/health"} {
			if w, _, took := asks(handler, "vera", http.MethodGet, path, ""); w.Code != http.StatusOK || took != 0 {
				t.Errorf("%s: %d after %v, want an answer at once", path, w.Code, took)
			}
		}
		w, _, took = asks(handler, "adam", http.MethodPost, "/api/v1/rules/logins/demote", `{"reason":"tests"}`)
		if w.Code != http.StatusOK || took != 0 {
			t.Errorf("an act: %d after %v, want it done at once: %s", w.Code, took, w.Body)
		}
		if lane := <-done; lane != postgres.Work {
			t.Errorf("the act used the connections of %v", lane)
		}
		for range 2 {
			if lane := <-questions; lane != postgres.Questions {
				t.Errorf("a question used the connections of %v", lane)
			}
		}
		asking.Wait()
		if n := len(questions); n > 0 {
			t.Errorf("%d more questions were asked than have had turns", n)
		}
	})
}

func TestWhenAllTurnsAreTakenOthersAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler, _, _ := hung(t)
		var asking sync.WaitGroup
		for _, who := range []string{"vera", "anna", "otto"} {
			for range turns.DefaultAll / 3 {
				asking.Go(func() { asks(handler, who, http.MethodGet, "/api/v1/rulebook", "") })
			}
		}
		synctest.Wait()
		w, p, _ := asks(handler, "olga", http.MethodGet, "/api/v1/rulebook", "")
		again := w.Header().Get("Retry-After")
		if w.Code != http.StatusServiceUnavailable || p.Title != "too many questions at a time" || again == "" {
			t.Errorf("got %d %q, want 503 and when to ask again", w.Code, p.Title)
		}
		asking.Wait()
	})
}
