// Command mutants breaks promises of the documents on purpose, one after the other, and runs the test that holds
// each: it has to fail. A mutant that lives says that nothing holds the promise.
//
//	go run ./scripts/mutants [-only REGEXP]
//
// Nothing in the tree is changed: go test reads the changed file in the place of the other one (-overlay). Each test
// runs on the file as it is first, and has to pass. The exit code is 1 where a mutant lives, and where a test fails
// by itself, or does not build.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("only", "", "only the mutants whose file, document or test matches")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	living, err := run(ctx, *only)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if living > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d promises that nothing holds\n", living)
		os.Exit(1)
	}
}

// run tries all mutants that match, and returns how many live.
func run(ctx context.Context, only string) (living int, err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return 0, fmt.Errorf("-only: %w", err)
	}
	work, err := os.MkdirTemp("", "weir-mutants-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DOCUMENT\tPROMISE\tMUTANT IN\tTEST\tTOOK\tOUTCOME")
	sound := map[string]string{}
	for _, m := range mutants() {
		if !wanted.MatchString(m.file + " " + m.doc + " " + m.test) {
			continue
		}
		began := time.Now()
		outcome := m.try(ctx, work, sound)
		if outcome != caught {
			living++
		}
		fmt.Fprintf(table, "%s\t%.60s\t%s\t%s\t%.0fs\t%s\n", m.doc, m.promise, m.file, m.test,
			time.Since(began).Seconds(), outcome)
		if err := ctx.Err(); err != nil {
			return living, err
		}
	}
	return living, table.Flush()
}

// What becomes of a mutant.
const (
	caught  = "caught"
	lives   = "LIVES: the test passes all the same"
	broken  = "does not build"
	unsound = "the test fails without it, too"
)

// try runs a mutant's test, first without it where no mutant before had the same one. sound has what came of that.
func (m *mutant) try(ctx context.Context, work string, sound map[string]string) string {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return err.Error()
	}
	if n := strings.Count(string(text), m.line); n != 1 {
		return fmt.Sprintf("its line is there %d times; allowed: once", n)
	}
	command := m.pack() + " " + m.test
	if sound[command] == "" {
		sound[command] = m.judge(ctx, "")
	}
	if sound[command] != lives { // it passes
		return unsound
	}
	overlay, err := m.write(work, string(text))
	if err != nil {
		return err.Error()
	}
	return m.judge(ctx, overlay)
}

// write puts the changed file, and what names it, into a folder.
func (m *mutant) write(work, text string) (overlay string, err error) {
	changed := filepath.Join(work, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(text, m.line, m.becomes, 1)), 0o600); err != nil {
		return "", err
	}
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	names, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, names, 0o600)
}

// judge runs the test, and tells whether it fails as a test does: what does not build says nothing.
func (m *mutant) judge(ctx context.Context, overlay string) string {
	args := []string{"test", "-count=1", "-vet=off", "-timeout=10m", "-v", "-run=^" + m.test + "$"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	//nolint:gosec // the arguments are those of the list
	said, err := exec.CommandContext(ctx, "go", append(args, m.pack())...).CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(said), "--- PASS: "+m.test):
		return lives
	case strings.Contains(string(said), "--- FAIL: "+m.test):
		return caught
	case err == nil:
		return "there is no such test"
	}
	return broken
}

// pack is the package whose test is run.
func (m *mutant) pack() string {
	if m.tested != "" {
		return "./" + m.tested
	}
	return "./" + filepath.Dir(m.file)
}
