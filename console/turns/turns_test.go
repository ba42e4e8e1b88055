package turns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/turns"
)

func named(name string) access.Actor { return access.Actor{Name: name, Via: access.ViaToken} }

func made(t *testing.T, o turns.Options) (*turns.Turns, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	all, err := turns.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return all, registry
}

// take takes a turn that is free, and fails where it has to be waited for.
func take(t *testing.T, all *turns.Turns, name string) func() {
	t.Helper()
	begun := time.Now()
	done, err := all.Take(t.Context(), named(name))
	if err != nil || time.Since(begun) > 0 {
		t.Fatalf("%s got %v after %v, want a turn at once", name, err, time.Since(begun))
	}
	return done
}

func TestOneActorsQuestionsLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registry := made(t, turns.Options{Each: 2, All: 4, Waiting: 3, Patient: 3 * time.Second})
		give := []func(){take(t, all, "greedy"), take(t, all, "greedy")}
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				begun := time.Now()
				_, err := all.Take(t.Context(), named("greedy"))
				busy := (*turns.BusyError)(nil)
				if !errors.As(err, &busy) || !busy.Own || busy.Most != 2 || time.Since(begun) != 3*time.Second {
					t.Errorf("a third question got %v after %v, want to wait 3 s", err, time.Since(begun))
				}
			})
		}
		synctest.Wait()
		busy := (*turns.BusyError)(nil)
		if _, err := all.Take(t.Context(), named("greedy")); !errors.As(err, &busy) || !busy.Own || busy.Waited != 0 {
			t.Errorf("a question without a place in the queue got %v, want to be refused at once", err)
		}
		give = append(give, take(t, all, "other"), take(t, all, "other"))
		waiting.Wait()
		if _, err := all.Take(t.Context(), named("third")); !errors.As(err, &busy) || busy.Own || busy.Most != 4 {
			t.Errorf("with all turns taken by others a question got %v, want to hear that all are busy", err)
		}
		for _, done := range give {
			done()
			done() // is done once
		}
		take(t, all, "greedy")()
		want := `# HELP weir_console_turns_total Questions to console and API that wanted a turn.
# TYPE weir_console_turns_total counter
weir_console_turns_total{outcome="all-busy"} 1
weir_console_turns_total{outcome="at-once"} 5
weir_console_turns_total{outcome="left"} 0
weir_console_turns_total{outcome="own-busy"} 4
weir_console_turns_total{outcome="waited"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_console_turns_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestTurnsGoRound has one actor queue before all others: each of them is served before his second.
func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := made(t, turns.Options{Each: 1, All: 1, Waiting: 8, Patient: time.Hour})
		first := take(t, all, "greedy")
		var mu sync.Mutex
		var served []string
		var asking sync.WaitGroup
		ask := func(name string) {
			asking.Go(func() {
				done, err := all.Take(t.Context(), named(name))
				if err != nil {
					t.Error(err)
					return
				}
				defer done()
				mu.Lock()
				defer mu.Unlock()
				served = append(served, name)
			})
			synctest.Wait()
		}
		for range 3 {
			ask("greedy")
		}
		for i := range 3 {
			ask(fmt.Sprint("other ", i))
		}
		first()
		asking.Wait()
		want := []string{"other 0", "other 1", "other 2", "greedy", "greedy", "greedy"}
		if !slices.Equal(served, want) {
			t.Errorf("served %q, want %q", served, want)
		}
	})
}

func TestWhoLeavesTheQueueTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, registry := made(t, turns.Options{Each: 1, All: 1, Patient: time.Hour})
		first := take(t, all, "a")
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := all.Take(ctx, named("b"))
			ended <- err
		}()
		synctest.Wait()
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		first()
		take(t, all, "c")()
		for _, name := range []string{"weir_console_questions", "weir_console_questions_waiting"} {
			want := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s gauge\n%[1]s 0\n", name, map[string]string{
				"weir_console_questions":         "Questions to console and API that are being answered.",
				"weir_console_questions_waiting": "Questions to console and API that wait for their turn.",
			}[name])
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNewRefusesOptionsThatLetNobodyAsk(t *testing.T) {
	for name, o := range map[string]turns.Options{
		"no registerer": {}, "each": {Each: -1, Registerer: prometheus.NewRegistry()},
		"all": {All: -1, Registerer: prometheus.NewRegistry()},
	} {
		if _, err := turns.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
