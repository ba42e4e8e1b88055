package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build's output
	Test       string
	Output     string
	Elapsed    float64 // seconds, of what ended
}

type skip struct {
	Package, Test, reason string
}

// unprivileged reports whether the reason, which follows "file.go:line: ", is that this user may not do what the test needs.
func (s skip) unprivileged() bool { return s.because("unprivileged: ") }

// atNight reports whether the test leaves itself to the long run.
func (s skip) atNight() bool { return s.because("night: ") }

func (s skip) because(of string) bool {
	_, said, _ := strings.Cut(s.reason, ": ")
	return strings.HasPrefix(said, of)
}

// line is what go test prints about a whole package.
type line struct {
	pkg, text string
}

type results struct {
	passed, failed int // tests, subtests included
	skipped        []skip
	flaked         []flake
	lines          []line // one per package, as go test prints it
	failures       []failure
	packages       []elapsed
	tests          []elapsed // without their subtests
	executed       executed
}

// broken reports whether a test, a build or a package failed.
func (r *results) broken() bool { return len(r.failures) > 0 }

// executed is what ended, by the last element of a package's import path: internal/arch sees to it that no two packages
// share one.
type executed struct {
	packages map[string]bool
	tests    map[string]bool // by "package Test", without subtests: false where it was skipped
}

// ran reports whether the test ran to its end and was not skipped.
func (e executed) ran(test string) bool { return e.tests[test] }

// lacks reports whether the test's package ran, and has no such test.
func (e executed) lacks(test string) bool {
	pkg, _, _ := strings.Cut(test, " ")
	_, known := e.tests[test]
	return e.packages[pkg] && !known
}

type follower struct {
	mu sync.Mutex // events come from several commands
	results
	out    io.Writer
	kept   string                                 // folder of the programs of tests, of which those that passed are removed; empty: there are none
	output map[string]map[string]*strings.Builder // of what is not known to have passed, by package and test
	built  map[string]*strings.Builder            // what the compiler says, by import path
}

func newFollower(out io.Writer, kept string) *follower {
	return &follower{
		out: out, kept: kept, output: map[string]map[string]*strings.Builder{}, built: map[string]*strings.Builder{},
		results: results{executed: executed{map[string]bool{}, map[string]bool{}}},
	}
}

// read follows events that have all come.
func (f *follower) read(events []byte) error { return f.events(bytes.NewReader(events)) }

func (f *follower) line(line []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		// go test itself speaks plain text where it fails before the first test.
		fmt.Fprintf(f.out, "%s", line)
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(f.out, e.Output)
		written(f.built, e.ImportPath, e.Output)
	case "build-fail":
		said := ""
		if text := f.built[e.ImportPath]; text != nil {
			said = text.String()
		}
		f.failures = append(f.failures, failure{e.ImportPath, "", said})
	case "output":
		f.keep(e)
	case "pass", "skip", "fail":
		f.end(e)
	}
}

func written(texts map[string]*strings.Builder, at, text string) {
	if texts[at] == nil {
		texts[at] = &strings.Builder{}
	}
	texts[at].WriteString(text)
}

func (f *follower) keep(e event) {
	if e.Test == "" && resultLine(e.Output) {
		fmt.Fprint(f.out, e.Output)
		f.lines = append(f.lines, line{e.Package, e.Output})
		return
	}
	if strings.HasPrefix(e.Output, "=== ") {
		return
	}
	if f.output[e.Package] == nil {
		f.output[e.Package] = map[string]*strings.Builder{}
	}
	written(f.output[e.Package], e.Test, e.Output)
}

// resultLine tells the line about a whole package from everything else that it prints.
func resultLine(line string) bool {
	for _, start := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

func (f *follower) end(e event) {
	text := ""
	if kept := f.output[e.Package][e.Test]; kept != nil {
		text = kept.String()
	}
	if e.Test == "" {
		f.endPackage(e)
		return
	}
	delete(f.output[e.Package], e.Test)
	if !strings.Contains(e.Test, "/") {
		f.tests = append(f.tests, elapsed{e.Package + " " + e.Test, e.Elapsed})
		f.executed.tests[path.Base(e.Package)+" "+e.Test] = e.Action != "skip"
	}
	switch e.Action {
	case "pass":
		f.passed++
	case "skip":
		f.skipped = append(f.skipped, skip{e.Package, e.Test, reason(text)})
	case "fail":
		f.failed++
		f.failures = append(f.failures, failure{e.Package, e.Test, text})
		fmt.Fprint(f.out, text)
	}
}

// endPackage shows, of a package that failed, also what belongs to no test that ended: a panic, a time-out, a leak.
func (f *follower) endPackage(e event) {
	f.packages = append(f.packages, elapsed{e.Package, e.Elapsed})
	f.executed.packages[path.Base(e.Package)] = true
	if e.Action == "fail" {
		before := len(f.failures)
		for _, test := range slices.Sorted(maps.Keys(f.output[e.Package])) {
			said := f.output[e.Package][test].String()
			fmt.Fprint(f.out, said)
			if test != "" || !slices.Contains([]string{"FAIL\n", "exit status 1\nFAIL\n", "FAIL\nexit status 1\n"}, said) {
				f.failures = append(f.failures, failure{e.Package, test, said})
			}
		}
		if len(f.failures) == before && !slices.ContainsFunc(f.failures, func(f failure) bool { return f.pkg == e.Package }) {
			f.failures = append(f.failures, failure{e.Package, "", "the package failed without a word\n"})
		}
	} else if f.kept != "" {
		_ = os.Remove(binary(f.kept, e.Package)) // what is left over goes with the folder
	}
	delete(f.output, e.Package)
}

// reason is what the test said last before it skipped itself.
func reason(output string) string {
	said := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--- SKIP") {
			said = line
		}
	}
	return said
}
