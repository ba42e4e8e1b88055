package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

var (
	seedCount = flag.Int("simulation.seeds", 0, "how many seeds TestSimulation runs; 0: 1,000, at night 10,000, fewer with -race or -short")
	firstSeed = flag.Uint64("simulation.first", 0, "the first of them")
	account   = flag.String("simulation.account", "", "a file for what the runs held; TestSimulation shares its seeds out among processes")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) }

// seeds is how many seeds TestSimulation runs.
func seeds() int {
	switch {
	case *seedCount > 0:
		return *seedCount
	case testing.Short():
		return 100
	case raceDetector: // it is after other things, and fifty times as slow; the run without it has the others
		return 100
	case os.Getenv("WEIR_TEST_NIGHT") != "":
		return 10_000
	}
	return 1000
}

// alone makes the runtime fit for many small worlds in a row, each with one thing going on at a time: to wake a second
// core for it costs more than it brings.
func alone(t *testing.T) {
	procs, gc := runtime.GOMAXPROCS(1), debug.SetGCPercent(800)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(gc)
	})
}

// play runs one world in a bubble of virtual time, and judges it.
func play(t *testing.T, seed uint64, l *lab) (w *world, wrong []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed, l)
		w.run()
		wrong = w.verdict()
	})
	return w, wrong
}

// TestSimulation: whatever crashes, freezes, is lost, late or torn, the keyed log after the fence is an independent routing
// of the requests log, history is the oracle's account of the keyed log, and blocks are only raised, released for good, and
// only those of rules that block; and a gate knows of all that in time.
func TestSimulation(t *testing.T) {
	alone(t)
	l := newLab(bugs{})
	defer l.close()
	n, start := seeds(), time.Now()
	var total seen
	own, shared := uint64(n), share(t, n)
	if len(shared) > 0 {
		own = shared[0].first - *firstSeed
	}
	for i := range own {
		seed := *firstSeed + i
		w, wrong := play(t, seed, l)
		wrong = append(wrong, w.announcements()...)
		if len(wrong) > 0 {
			t.Fatalf("seed %d: %d things are wrong, with the first ones:\n\t%s\nalone: go test ./internal/simulation -run '^TestSimulation$' "+
				"-simulation.first %d -simulation.seeds 1", seed, len(wrong), strings.Join(wrong[:min(len(wrong), 5)], "\n\t"), seed)
		}
		total.add(&w.seen)
	}
	for _, s := range shared {
		total.add(s.wait(t))
	}
	if *account != "" { // whoever shared them out says whether that is enough
		total.write(t, *account)
		return
	}
	t.Logf("%d seeds in %v: %s", n, time.Since(start).Round(time.Second), total.String())
	if missing := total.missing(n); n >= 100 && len(missing) > 0 {
		t.Errorf("in %d runs nothing was seen of: %s. The simulation is too kind to prove anything", n, strings.Join(missing, ", "))
	}
}

// TestMutations takes one sentence of the protocol away at a time. If no seed failed without it, the silence of
// TestSimulation would mean nothing for it. It begins with the seed that was seen to fail, and goes on where that no longer does.
func TestMutations(t *testing.T) {
	if raceDetector {
		return // it is after other things, and fifty times as slow; the run without it proves these
	}
	alone(t)
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			l := newLab(m.bugs)
			defer l.close()
			for i := range uint64(m.seeds) {
				w, wrong := play(t, m.first+i, l)
				if len(wrong) > 0 && !w.overdue { // a stream that only stops has not counted wrongly
					t.Logf("seed %d, of %d from %d on: %s", m.first+i, m.seeds, m.first, wrong[0])
					return
				}
			}
			if m.bugs.script[0] != "" && !l.changed {
				t.Fatalf("no script holds the line %q any more", m.bugs.script[0])
			}
			t.Errorf("%d seeds, and nothing fails without: %s", m.seeds, m.sentence)
		})
	}
}

// TestMutationsShowInCommits: what the judge of commits asks for is broken by these, too.
func TestMutationsShowInCommits(t *testing.T) {
	if raceDetector {
		return // as in TestMutations
	}
	alone(t)
	for _, name := range []string{
		"announced end forgotten", "announced end lowered [shrink]", "chunk over the announced end [overshoot]", "older version [fwd]",
		"commits of old generations", "first chunk not announced [first]",
	} {
		t.Run(name, func(t *testing.T) {
			m := mutated(t, name)
			l := newLab(m.bugs)
			defer l.close()
			for seed := m.first; seed < m.first+50; seed++ {
				if w, _ := play(t, seed, l); len(w.announcements()) > 0 {
					t.Logf("seed %d: %s", seed, w.announcements()[0])
					return
				}
			}
			t.Error("50 seeds, and nothing is wrong with the commits")
		})
	}
}

// TestSeedsRepeat: a seed names one run, so that a failure can be looked at again. In one run of a thousand, and more often
// under the race detector, two goroutines of one process meet at one instant, and their order is the scheduler's.
func TestSeedsRepeat(t *testing.T) {
	alone(t)
	l := newLab(bugs{})
	defer l.close()
	const tried, most = 20, 2
	differ := 0
	for seed := range uint64(tried) {
		a, _ := play(t, seed, l)
		b, _ := play(t, seed, l)
		if a.digest() != b.digest() {
			differ++
		}
	}
	if differ > most {
		t.Errorf("%d seeds of %d gave two different runs", differ, tried)
	}
}

// The document's table is that of the tests.
func TestDocumentListsMutations(t *testing.T) {
	text, err := os.ReadFile("../../docs/simulation.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Count(string(text), "\n| ") - 1 // without the head
	for _, m := range mutations() {
		row := fmt.Sprintf("| %s | %s | %d |", m.name, m.sentence, m.seeds)
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/simulation.md lacks the row\n%s", row)
		}
	}
	if n := len(mutations()); rows != n {
		t.Errorf("docs/simulation.md has %d rows, there are %d mutations", rows, n)
	}
}

// digest is a short account of all that a run wrote.
func (w *world) digest() string {
	h := roll(w.seed)
	mix := func(s string) {
		for i := range len(s) {
			h.state = h.state*31 + uint64(s[i])
		}
	}
	for _, t := range []*topic{w.keyed, w.hits} {
		for p := range t.parts {
			for _, r := range t.parts[p].records {
				mix(fmt.Sprintf("%d %x", r.at.Sub(w.begin), r.value[len(r.value)/2:]))
			}
		}
	}
	mix(fmt.Sprint(w.seen, len(w.changes)))
	return fmt.Sprintf("%x", h.next())
}
