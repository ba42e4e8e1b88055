// Command stopping runs the tests of packages on a machine that stands still again and again: it stops the program of
// the tests, and the programs of weir's that it started, for 1.5 to 12 seconds at random moments. Kafka, Redis,
// PostgreSQL and other programs go on meanwhile.
//
//	go run ./scripts/stopping [-seed N] [-run REGEXP] [-json] PACKAGE...
//
// Tests that fail only here have taken a stop for a fault: they judge a time of the clock. What failed is printed with
// the moments at which it was stopped, then a line per package. With -json it writes the events of `go test -json` for
// scripts/testreport instead, and the rest to standard error. Nothing is left stopped when it ends, however it ends. It
// needs Linux's /proc.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are what the flags say.
type options struct {
	seed     uint64
	stops    int
	beside   int
	parallel int
	timeout  time.Duration
	run      string
	skip     string
	json     bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "the dice of when tests are stopped, and for how long")
	flag.IntVar(&o.stops, "stops", 60, "how often the tests of a package are stopped at the most")
	flag.IntVar(&o.beside, "p", 1, "how many packages are tested at once")
	flag.IntVar(&o.parallel, "parallel", 4, "how many tests of a package run at once")
	flag.DurationVar(&o.timeout, "timeout", time.Hour, "how long the tests of a package may take, stops included")
	flag.StringVar(&o.run, "run", "", "only the tests that match, as of go test")
	flag.StringVar(&o.skip, "skip", "", "without the tests that match, as of go test")
	flag.BoolVar(&o.json, "json", false, "write the events of go test -json")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	failed, err := testAll(ctx, o, flag.Args())
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopping:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// testedPackage is a package with tests.
type testedPackage struct{ path, dir string }

// testAll tests packages, some at once, and reports whether one failed.
func testAll(ctx context.Context, o options, patterns []string) (failed bool, err error) {
	packages, err := packagesOf(ctx, patterns)
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "weir-stopping-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	out := &printer{json: o.json}
	fmt.Fprintf(os.Stderr, "stopping: %d packages, seed %d\n", len(packages), o.seed)
	var running sync.WaitGroup
	places := make(chan struct{}, max(o.beside, 1))
	for _, p := range packages {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		// One after the other: the compiler has use for all processors. The program's name is that of go test, by which
		// internal/testbed knows the package; only the folder is another's.
		program := filepath.Join(work, strings.ReplaceAll(p.path, "/", "_"), path.Base(p.path)+".test")
		if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
			<-places
			return false, err
		}
		text, buildErr := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", program, p.path).CombinedOutput()
		if buildErr != nil {
			out.ended(p, result{broken: fmt.Sprintf("%v\n%s", buildErr, text)})
			<-places
			continue
		}
		running.Go(func() {
			defer func() { <-places }()
			out.ended(p, test(ctx, o, p, program, out))
			_ = os.Remove(program)
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	return out.failed, nil
}

// packagesOf lists the packages that have tests.
func packagesOf(ctx context.Context, patterns []string) (packages []testedPackage, err error) {
	if len(patterns) == 0 {
		return nil, errors.New("no packages named, such as ./gate or all below ./")
	}
	const form = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", form}, patterns...)...)
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, dir, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
			packages = append(packages, testedPackage{name, dir})
		}
	}
	return packages, nil
}

// result is what the tests of a package came to.
type result struct {
	failures []string // each a test's name, what it printed, and when it was stopped
	broken   string   // why there is no answer, or what failed beside the tests
	passed   int
	stops    int
	took     time.Duration
}

// printer writes what packages say, one at a time.
type printer struct {
	mu     sync.Mutex
	json   bool
	failed bool
}

// event passes on a line of test2json.
func (p *printer) event(line []byte) {
	if !p.json {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// ended writes the line of a package, with its failures before it.
func (p *printer) ended(tested testedPackage, r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := io.Writer(os.Stdout)
	if p.json {
		out = os.Stderr
	}
	verdict := "ok"
	if len(r.failures) > 0 || r.broken != "" {
		p.failed, verdict = true, "FAIL"
	}
	for _, f := range r.failures {
		fmt.Fprintf(out, "%s: %s\n", tested.path, strings.TrimRight(f, "\n"))
	}
	if r.broken != "" {
		fmt.Fprintf(out, "%s: %s\n", tested.path, strings.TrimRight(r.broken, "\n"))
		if p.json { // so that who reads the events sees it, too
			text, err := json.Marshal(event{Action: "fail", Package: tested.path})
			if err == nil {
				_, _ = os.Stdout.Write(append(text, '\n'))
			}
		}
	}
	fmt.Fprintf(out, "%-4s %s: %d passed, %d failed, stopped %d times, %s\n", verdict, tested.path, r.passed, len(r.failures), r.stops, r.took.Round(time.Second))
}
