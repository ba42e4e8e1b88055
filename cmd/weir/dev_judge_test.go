package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/devserver"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/testbed"
)

// devSeed is the demo's seed in these tests, whose cast the hooks pick their victims from.
const devSeed = 11

// castOf gives the first client of a kind.
func castOf(kind demo.Kind) demo.Client {
	all := demo.Options{Seed: devSeed}.Cast()
	return all[slices.IndexFunc(all, func(c demo.Client) bool { return c.Kind == kind })]
}

// guarded is a guard that does something else first.
type guarded func(next http.Handler) http.Handler

func (g guarded) Middleware(next http.Handler) http.Handler { return g(next) }

// losing loses the events of one abuser.
func losing(emit demo.EmitFunc) demo.EmitFunc {
	lost := castOf(demo.KindStuffer).Network.Masked().Addr()
	return func(ctx context.Context, events []demo.Event) error {
		kept := slices.DeleteFunc(slices.Clone(events), func(e demo.Event) bool { return strings.HasPrefix(string(e.Key), lost.String()) })
		if len(kept) == 0 {
			return nil
		}
		return emit(ctx, kept)
	}
}

// confusing takes one who shares the address of an abuser for the abuser.
func confusing(inner demo.Guard) demo.Guard {
	abuser := castOf(demo.KindSlow)
	return guarded(func(next http.Handler) http.Handler {
		asked := inner.Middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Forwarded-For") == abuser.Network.Addr().String() {
				r.Header.Set("X-Device-Id", abuser.Device)
			}
			asked.ServeHTTP(w, r)
		})
	})
}

// unforgiving goes on refusing who has been refused once.
func unforgiving(inner demo.Guard) demo.Guard {
	var mu sync.Mutex
	refused := map[string]http.Header{}
	return guarded(func(next http.Handler) http.Handler {
		asked := inner.Middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := r.Header.Get("X-Forwarded-For") + " " + r.Header.Get("X-Device-Id") + " " + r.URL.Path
			mu.Lock()
			header, again := refused[who]
			mu.Unlock()
			if again {
				for name, values := range header {
					w.Header()[name] = values
				}
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			answer := httptest.NewRecorder()
			asked.ServeHTTP(answer, r)
			if answer.Code == http.StatusTooManyRequests {
				mu.Lock()
				refused[who] = answer.Header().Clone()
				mu.Unlock()
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		})
	})
}

// hasty refuses one request although no rule blocks.
func hasty(inner demo.Guard) demo.Guard {
	var once sync.Once
	return guarded(func(next http.Handler) http.Handler {
		asked := inner.Middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refused := false
			once.Do(func() {
				w.Header().Set("X-Weir-Rule", "guest-tokens")
				w.Header().Set("X-Weir-Block", "0123456789abcdef")
				w.WriteHeader(http.StatusTooManyRequests)
				refused = true
			})
			if !refused {
				asked.ServeHTTP(w, r)
			}
		})
	})
}

func replacing(before, after string) func([]byte) []byte {
	return func(documents []byte) []byte {
		return []byte(strings.Replace(string(documents), before, after, 1))
	}
}

// The demo is judged: 0 for weir as it is, 1 for weir broken in one place. What is broken is so beside others, too, and
// three run side by side; what is to be in time runs alone, as at a user's: three share the two threads that one has.
// Judge asks for a block within two seconds in which the machine lets weir run, which is not to be asked of a build
// that the race detector makes ten times slower: that one watches the shadow run here, and blocks in TestDevDemo.
func TestDevJudgesTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute and a half")
	}
	tests := []struct {
		name  string
		hooks devserver.Hooks
		args  []string
		code  int
		says  []string
	}{
		{"weir as it is", devserver.Hooks{}, nil, exitOK, []string{"ordinary viewers refused   0 of", "The outcome is the truth: every abuser was blocked, and nobody else."}},
		{"nothing is promoted", devserver.Hooks{}, []string{"--no-promote"}, exitOK, []string{"answered 429               0\n", "nobody was blocked"}},
		{"an abuser's events are lost", devserver.Hooks{Emit: losing}, nil, exitError, []string{"history does not know", castOf(demo.KindStuffer).Name}},
		{"a neighbour is blocked", devserver.Hooks{Guard: confusing}, nil, exitError, []string{"FAIL  no ordinary viewer is ever refused", "neighbour-"}},
		{"a block never lifts", devserver.Hooks{Guard: unforgiving}, nil, exitError, []string{"FAIL  nobody else is refused, and nobody for longer"}},
		{"a limit is one too high", devserver.Hooks{Rules: replacing("limit: 20\n", "limit: 21\n")}, nil, exitError, []string{"FAIL  history has exactly the truth's sources"}},
		{"a limit is one too low", devserver.Hooks{Rules: replacing("limit: 2\n", "limit: 1\n")}, nil, exitError, []string{"FAIL  no ordinary viewer is ever refused"}},
		{"somebody is refused though nothing is promoted", devserver.Hooks{Guard: hasty}, []string{"--no-promote"}, exitError, []string{"FAIL  nobody else is refused"}},
	}
	switch {
	case slowBuild:
		tests = tests[1:2]
	case !testbed.AtNight(): // internal/demo has each lie in a world of its own; here it is that weir dev asks the judge
		tests = append(tests[:1:1], tests[2:4]...)
	}
	got := make([]outcome, len(tests))
	var broken sync.WaitGroup
	three := make(chan struct{}, 3)
	for i, test := range tests {
		args := append([]string{"dev", "--demo-seconds", fmt.Sprint(demo.MinDuration.Seconds()), "--exit", "--seed", fmt.Sprint(devSeed), "--config", emptyFile(t),
			"--console-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0"}, test.args...)
		judged := func() {
			three <- struct{}{}
			defer func() { <-three }()
			var out, problems lines
			a := &app{Output: terminal.Output{Stdout: &out, Stderr: &problems}, stdin: strings.NewReader(""), environ: devEnviron(), devHooks: test.hooks}
			code := a.run(t.Context(), args)
			got[i] = outcome{code, out.String(), problems.String()}
		}
		if test.code == exitOK { // these come first
			judged()
		} else {
			broken.Go(judged)
		}
	}
	broken.Wait()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got[i].code != test.code {
				t.Errorf("exit code %d, want %d", got[i].code, test.code)
			}
			wantWords(t, got[i].stdout, test.says...)
			if t.Failed() {
				t.Logf("%s%s", got[i].stdout, got[i].stderr)
			}
		})
	}
}
