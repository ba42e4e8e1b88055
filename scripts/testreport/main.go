// Command testreport runs `go test -json` commands side by side and prints what `go test` would: the output of what
// failed and a line per package. It then runs each test that failed once more, alone, counts how many tests ran on
// which kind of server, from the file that WEIR_TEST_REPORT names (internal/testbed writes it), repeats why tests
// failed without the logs of what they ran, and ends with the package lines once more.
//
//	testreport [flags] -- go test -json ./... [-- go test -json -race ./...]
//
// A test that passes alone has flaked: the run passes, names it, and enters it in the ledger. What is never tried
// again, and when flakes fail the run all the same, stands in again.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings is what the command line asks for.
type settings struct {
	title   string
	whole   bool   // a skipped test fails the run
	real    bool   // as whole, and each kind of server must see a test, and the list of servers must be true
	night   bool   // the long run: no test is left to another one
	servers string // file: which tests use which server
	update  bool   // write the list of servers, and do not compare it
	ledger  string // file of the flakes; empty: a test that failed is not run again
	kept    string // folder with the binaries of what failed
	again   string // command that runs a test once more, see rerunBy; empty: by its binary
	commit  string // that is tested, for the ledger
	lines   string // file for the lines of the packages; empty: they close the output
}

func main() {
	var s settings
	flag.StringVar(&s.title, "title", "tests", "name of the run, for the heading of the counts")
	flag.BoolVar(&s.whole, "whole", false, "fail where a test was skipped")
	flag.BoolVar(&s.real, "real", false, "as -whole, and where a kind of server saw no test, or the list of -servers is not true")
	flag.BoolVar(&s.night, "night", false, "this is the long run: a test that leaves itself to it fails")
	flag.StringVar(&s.servers, "servers", "", "file with the tests that use a Kafka or a Redis")
	flag.BoolVar(&s.update, "update", false, "write the file of -servers anew")
	flag.StringVar(&s.ledger, "ledger", "", "file of the tests that passed when they were run again; without it none is")
	flag.StringVar(&s.kept, "kept", "", "folder in which scripts/keep-binary.sh leaves the programs of tests")
	flag.StringVar(&s.again, "again", "", "command that runs a test that failed once more, given -run and its package; without it the test's own program does")
	flag.StringVar(&s.commit, "commit", "", "commit that is tested, for the ledger")
	flag.StringVar(&s.lines, "lines", "", "file for the lines of the packages, which else close what is printed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, s, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, arguments []string, out io.Writer) (ok bool, err error) {
	start := time.Now()
	results, err := followCommands(ctx, commandsOf(arguments), s.kept, out)
	if err != nil {
		return false, err
	}
	var complaints []string
	if s.ledger != "" {
		a := again{settings: s, rerun: rerunKept(ctx, s.kept), now: start}
		if s.again != "" {
			a.rerun = rerunBy(ctx, strings.Fields(s.again))
		}
		if complaints, err = a.retry(&results, out); err != nil {
			return false, err
		}
	}
	uses, err := readUses(os.Getenv("WEIR_TEST_REPORT"))
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\n%s: %d passed, %d failed, %d skipped, %d flaked in %v\n", s.title, results.passed, results.failed,
		len(results.skipped), len(results.flaked), time.Since(start).Round(time.Second))
	uses.print(out)
	results.printTimes(out)
	servers, err := s.judgeServers(&results, uses)
	if err != nil {
		return false, err
	}
	complaints = append(append(complaints, servers...), s.judgeSkips(&results, uses, out)...)
	results.printFailures(out)
	for _, complaint := range complaints {
		fmt.Fprintln(out, "FAIL:", complaint)
	}
	if err := results.printLines(out, s.lines); err != nil {
		return false, err
	}
	return !results.broken() && len(complaints) == 0, nil
}

// judgeServers complains about kinds of servers without a test, and about a list that says something else than what was
// seen.
func (s settings) judgeServers(r *results, seen uses) (complaints []string, err error) {
	if s.real {
		complaints = seen.untouched()
	}
	if s.servers == "" {
		return complaints, nil
	}
	list, err := readList(s.servers)
	if err != nil {
		return nil, err
	}
	if s.update {
		return complaints, writeList(s.servers, list, seen, r.executed)
	}
	return append(complaints, list.stale(seen, r.executed, s.real)...), nil
}

// judgeSkips complains about the tests that may not be skipped, and counts or names the others.
func (s settings) judgeSkips(r *results, seen uses, out io.Writer) (complaints []string) {
	left := 0
	for _, skip := range r.skipped {
		switch {
		case skip.atNight() && !s.night:
			left++
		case (s.whole || s.real) && (!skip.unprivileged() || seen.touched(skip.Package, skip.Test)):
			complaints = append(complaints, fmt.Sprintf("%s %s was skipped: %s", skip.Package, skip.Test, skip.reason))
		default:
			fmt.Fprintf(out, "  skipped: %s %s: %s\n", skip.Package, skip.Test, skip.reason)
		}
	}
	if left > 0 {
		fmt.Fprintf(out, "  left to `make test-night`: %d tests\n", left)
	}
	return complaints
}

// printLines ends the run with the line of each package: a log of which only the end is kept has them.
func (r *results) printLines(out io.Writer, file string) error {
	var text strings.Builder
	text.WriteString("\n")
	for _, line := range r.lines {
		text.WriteString(line.text)
	}
	if file == "" {
		fmt.Fprint(out, text.String())
		return nil
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("lines of the packages: %w", err)
	}
	return nil
}
