package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/demo"
)

// play runs w in a bubble of its own, where 20 seconds take none.
func play(t *testing.T, w world) (report demo.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { report = w.run(t) })
	return report
}

// played is what came of a run.
type played struct {
	ledger   demo.Ledger
	answers  demo.Answers
	recorded demo.Recorded
}

func playHonestly(t *testing.T, seed uint64) (p played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { p.ledger, p.answers, p.recorded = world{seed: seed}.play(t) })
	return p
}

// judge judges what was played as meddle tells of it.
func (p played) judge(t *testing.T, meddle func(*demo.Ledger, *demo.Answers, *demo.Recorded)) demo.Report {
	t.Helper()
	p.ledger.Stamps = slices.Clone(p.ledger.Stamps)
	p.answers.Requests = slices.Clone(p.answers.Requests)
	p.recorded.Hits = slices.Clone(p.recorded.Hits)
	meddle(&p.ledger, &p.answers, &p.recorded)
	report, err := demo.Judge(p.ledger, p.answers, p.recorded, demo.JudgeOptions{Promoted: true})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func table(t *testing.T, r *demo.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// seeds is how many runs a test plays, out of n.
func seeds(n uint64) uint64 {
	if testing.Short() || slowBuild {
		return (n + 19) / 20
	}
	return n
}

// honest is how many honest runs there are to be.
func honest() uint64 {
	if os.Getenv("WEIR_TEST_NIGHT") != "" {
		return 200
	}
	return 50
}

// alone keeps a run in a bubble on one core: there one thing goes on at a time, and to wake a second core for it costs more
// than it brings.
func alone(t *testing.T) {
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
}

// TestHonestRuns is the half of the proof that everybody wants: what is right passes, whoever plays.
func TestHonestRuns(t *testing.T) {
	alone(t)
	for seed := range seeds(honest()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := play(t, world{seed: seed})
			if r.Err() != nil {
				t.Fatal(table(t, &r))
			}
			if r.Refused < 100 || r.ViewersRefused != 0 || r.Latencies < 10 || r.Blocked != 15 {
				t.Errorf("hardly anything took place:\n%s", table(t, &r))
			}
		})
	}
}

// TestShadow: without a promotion nobody is refused, and history knows everybody all the same.
func TestShadow(t *testing.T) {
	alone(t)
	for seed := range seeds(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := play(t, world{seed: seed, shadow: true})
			if r.Err() != nil || r.Refused != 0 || r.Blocked != 0 {
				t.Fatal(table(t, &r))
			}
		})
	}
}

// TestBusyMachine: a machine that is too busy at first for anybody to go over the greater limits makes the run longer,
// not its outcome wrong.
func TestBusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := world{seed: 5, slow: 7 * time.Second}.run(t)
		if r.Failed() > 0 {
			t.Errorf("%+v", r.Checks)
		}
		if took := time.Since(began); took < 23*time.Second {
			t.Errorf("the run took %s: nothing was waited for", took)
		}
	})
}

// TestRealTime plays outside of a bubble: by the machine's clock, with its scheduler and its connections.
func TestRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	t.Parallel()
	for tries := 1; ; tries++ {
		stood := standstill(t)
		r := world{seed: 7, real: true}.run(t)
		longest := stood()
		if r.Err() == nil {
			t.Log("\n" + table(t, &r))
			return
		}
		if longest < demo.Allowance/4 || tries == 5 {
			t.Fatalf("the machine stood still for %s at the longest\n%s", longest, table(t, &r))
		}
		t.Logf("the machine stood still for %s, which says nothing of the demo: again\n%s", longest, table(t, &r))
	}
}

// standstill measures for how long the machine lets this process, which has something to do every few milliseconds, do nothing at the
// longest, until the call of what it returns.
func standstill(t *testing.T) (longest func() time.Duration) {
	t.Helper()
	const every = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		most, last := time.Duration(0), time.Now()
		for {
			select {
			case <-ctx.Done():
				done <- most
				return
			case <-tick.C:
				now := time.Now()
				most, last = max(most, now.Sub(last)-every), now
			}
		}
	}()
	return func() time.Duration {
		cancel()
		return <-done
	}
}

// TestLongRun has episodes that last longer than the cooldown of updates.
func TestLongRun(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		r := play(t, world{seed: 1, shadow: shadow, duration: 100 * time.Second})
		if r.Err() != nil {
			t.Fatal(table(t, &r))
		}
	}
}

// The names of the checks, by a part.
const (
	complete  = "every event went to Kafka"
	matching  = "every answer matches"
	decided   = "the truth is decided"
	refused   = "over-limit sources are refused"
	nobody    = "nobody else is refused"
	refusal   = "a refusal names the rule"
	ordinary  = "no ordinary viewer"
	oneID     = "each block has one id"
	exactly   = "history has exactly"
	everybody = "everybody played"
)

// TestLies is the other half: whatever is wrong, Judge says so, and by which question.
func TestLies(t *testing.T) {
	swap := func(old, next string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				panic("the rules do not have " + old)
			}
			return bytes.Replace(b, []byte(old), []byte(next), 1)
		}
	}
	tests := []struct {
		name   string
		world  world
		failed []string // these checks at least
	}{
		{"an abuser's events are lost", world{fault: demo.FaultEventsLost}, []string{refused, exactly}},
		{"a neighbour is blocked", world{fault: demo.FaultNeighbourBlocked}, []string{nobody, ordinary}},
		{"a block never lifts", world{fault: demo.FaultBlockStays}, []string{nobody, everybody}},
		{"a limit is one too high", world{fault: demo.FaultLimitOff}, []string{refused, exactly}},

		{"a token more", world{edit: swap("limit: 2\n", "limit: 3\n")}, []string{refused, exactly}},
		{"a page more", world{edit: swap("limit: 30", "limit: 31")}, []string{refused, exactly}},
		{"a token less", world{edit: swap("limit: 2\n", "limit: 1\n")}, []string{ordinary, nobody, exactly}},
		{"a sign-in less", world{edit: swap("limit: 20", "limit: 19")}, []string{ordinary, nobody, exactly}},
		{"a page less", world{edit: swap("limit: 30", "limit: 29")}, []string{ordinary, nobody, exactly}},
		{"a longer window", world{edit: swap("window: 3s", "window: 4s")}, []string{ordinary, exactly}},
		{"a shorter window", world{edit: swap("window: 3s", "window: 2s")}, []string{exactly}},
		{"a longer block", world{edit: swap("ttl: 5s", "ttl: 6s")}, []string{nobody, refusal}},
		{"a shorter block", world{edit: swap("ttl: 5s", "ttl: 4s")}, []string{refused, refusal}},
		{"a wider key", world{edit: swap("[ip, device]", "[ip]")}, []string{ordinary, exactly}},
		{"a narrower key", world{edit: swap("key: [ip]", "key: [{field: ip, v6: 128}, device]")}, []string{exactly}},
		{"addresses, not networks", world{edit: swap("[ip, device]", "[{field: ip, v6: 128}, device]")}, []string{refused, exactly}},

		{"blocks come late", world{prepare: func(e *engine) { e.lateHits = 2500 * time.Millisecond }}, []string{refused}},
		{"blocks before the promotion", world{prepare: func(e *engine) { e.promoted = true }}, []string{nobody}},
		{"blocks without a promotion", world{shadow: true, prepare: func(e *engine) { e.promoted = true }}, []string{nobody}},
		{"the promotion does nothing", world{prepare: func(e *engine) { e.mute = true }}, []string{refused, everybody}},

		{"an event is lost on the way", world{meddle: func(l *demo.Ledger, _ *demo.Answers, _ *demo.Recorded) { l.Dropped++ }}, []string{complete}},
		{"Kafka refuses an event", world{meddle: func(l *demo.Ledger, _ *demo.Answers, _ *demo.Recorded) { l.Failed++ }}, []string{complete}},
		{"the ledger is full", world{meddle: func(l *demo.Ledger, _ *demo.Answers, _ *demo.Recorded) { l.Unrecorded++ }}, []string{complete}},
		{"a stamp is missing", world{meddle: func(l *demo.Ledger, _ *demo.Answers, _ *demo.Recorded) { l.Stamps = l.Stamps[1:] }}, []string{matching}},
		{"an answer did not come", world{meddle: func(_ *demo.Ledger, a *demo.Answers, _ *demo.Recorded) {
			a.Requests[7].Status, a.Requests[7].Err = 0, "connection reset"
		}}, []string{matching}},
		{"the API failed", world{meddle: func(l *demo.Ledger, a *demo.Answers, _ *demo.Recorded) {
			a.Requests[0].Status = 500
			for i := range l.Stamps {
				if l.Stamps[i].ID == a.Requests[0].ID {
					l.Stamps[i].Status = 500
				}
			}
		}}, []string{matching}},
		{"an abuser did not rest", world{meddle: func(_ *demo.Ledger, a *demo.Answers, _ *demo.Recorded) {
			a.Promotion = a.Began.Add(3 * time.Second)
		}}, []string{decided}},
		{"history forgot an episode", world{meddle: func(_ *demo.Ledger, _ *demo.Answers, r *demo.Recorded) { r.Hits = r.Hits[1:] }}, []string{exactly}},
		{"history has one too many", world{meddle: func(_ *demo.Ledger, a *demo.Answers, r *demo.Recorded) {
			r.Hits = append(r.Hits, demo.RecordedHit{Rule: "guest-tokens", Subject: "ip=192.0.2.1%2F32&device=x", First: a.Ended})
		}}, []string{exactly}},
		{"history is a microsecond off", world{meddle: func(_ *demo.Ledger, _ *demo.Answers, r *demo.Recorded) { r.Hits[0].First++ }}, []string{exactly}},
		{"history counts one too many", world{meddle: func(_ *demo.Ledger, _ *demo.Answers, r *demo.Recorded) { r.Hits[0].Count += 1000 }}, []string{exactly}},
		{"support finds another block", world{meddle: func(_ *demo.Ledger, _ *demo.Answers, r *demo.Recorded) {
			for i := range r.Hits {
				r.Hits[i].ID = "0123456789abcdef"
			}
		}}, []string{oneID}},
	}
	alone(t)
	runs := map[uint64]played{} // what is told wrongly afterwards was played as it should be
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for seed := range seeds(3) {
				test.world.seed = 1000 + seed
				var r demo.Report
				if test.world.meddle == nil {
					r = play(t, test.world)
				} else {
					if _, ok := runs[seed]; !ok {
						runs[seed] = playHonestly(t, test.world.seed)
					}
					r = runs[seed].judge(t, test.world.meddle)
				}
				for _, name := range test.failed {
					if !failed(&r, name) {
						t.Errorf("%q found nothing, seed %d:\n%s", name, test.world.seed, table(t, &r))
					}
				}
				if err := r.Err(); err == nil || r.Failed() == 0 || !strings.Contains(table(t, &r), "FAIL") {
					t.Errorf("the report does not tell: error %v", err)
				}
			}
		})
	}
}

func failed(r *demo.Report, name string) bool { return check(r, name).Failures > 0 }

// check is the check whose name begins so.
func check(r *demo.Report, name string) (none demo.Check) {
	for _, c := range r.Checks {
		if strings.HasPrefix(c.Name, name) {
			return c
		}
	}
	return none
}

func TestJudgeInput(t *testing.T) {
	cast := demo.Options{}.Cast()
	tests := []struct {
		name    string
		answers demo.Answers
		options demo.JudgeOptions
		want    string
	}{
		{"no promotion", demo.Answers{Cast: cast}, demo.JudgeOptions{Promoted: true}, "promotion took place: false"},
		{"a promotion", demo.Answers{Cast: cast, Promotion: 1, Promoted: 2}, demo.JudgeOptions{}, "promotion took place: true"},
		{"too much allowed", demo.Answers{Cast: cast}, demo.JudgeOptions{Allowance: 3 * time.Second}, "allowed: up to 2s"},
		{"nobody there", demo.Answers{}, demo.JudgeOptions{}, "without a cast"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := demo.Judge(demo.Ledger{}, test.answers, demo.Recorded{}, test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	// An empty run is not a good one.
	r, err := demo.Judge(demo.Ledger{}, demo.Answers{Cast: cast}, demo.Recorded{}, demo.JudgeOptions{})
	if err != nil || !failed(&r, everybody) || !failed(&r, ordinary) {
		t.Errorf("error %v:\n%s", err, table(t, &r))
	}
}

func TestAwaited(t *testing.T) {
	play(t, world{seed: 5, meddle: func(l *demo.Ledger, _ *demo.Answers, r *demo.Recorded) {
		truth := demo.Truth(*l)
		if len(truth) < 10 || len(truth) != len(r.Hits) {
			t.Errorf("%d episodes, %d in history", len(truth), len(r.Hits))
		}
		for i, want := range []int{0, 1, len(truth)} {
			short := demo.Recorded{Hits: r.Hits[want:]}
			if got := demo.Awaited(*l, short); got != want {
				t.Errorf("case %d: got %d, want %d", i, got, want)
			}
		}
	}})
}
