package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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
func (s skip) unprivileged() bool {
	_, said, _ := strings.Cut(s.reason, ": ")
	return strings.HasPrefix(said, "unprivileged: ")
}

type results struct {
	passed, failed int // tests, subtests included
	skipped        []skip
	lines          []string // one per package, as go test prints it
	broken         bool     // a test, a build or a package failed
	failures       []failure
	packages       []elapsed
	tests          []elapsed // without their subtests
}

// follow reads events to their end and prints on the way what plain `go test` would.
func follow(in io.Reader, out io.Writer) (results, error) {
	f := follower{out: out, output: map[string]map[string]*strings.Builder{}}
	reader := bufio.NewReader(in)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			f.line(line)
		}
		if err == io.EOF {
			return f.results, nil
		}
		if err != nil {
			return results{}, fmt.Errorf("events of go test: %w", err)
		}
	}
}

type follower struct {
	results
	out    io.Writer
	output map[string]map[string]*strings.Builder // of what is not known to have passed, by package and test
	built  strings.Builder                        // what the compiler says, up to the build that failed
}

func (f *follower) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		// go test itself speaks plain text where it fails before the first test.
		fmt.Fprintf(f.out, "%s", line)
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(f.out, e.Output)
		f.built.WriteString(e.Output)
	case "build-fail":
		f.broken = true
		f.failures = append(f.failures, failure{e.ImportPath, "", f.built.String()})
		f.built.Reset()
	case "output":
		f.keep(e)
	case "pass", "skip", "fail":
		f.end(e)
	}
}

func (f *follower) keep(e event) {
	if e.Test == "" && resultLine(e.Output) {
		fmt.Fprint(f.out, e.Output)
		f.lines = append(f.lines, e.Output)
		return
	}
	if strings.HasPrefix(e.Output, "=== ") {
		return
	}
	tests := f.output[e.Package]
	if tests == nil {
		tests = map[string]*strings.Builder{}
		f.output[e.Package] = tests
	}
	if tests[e.Test] == nil {
		tests[e.Test] = &strings.Builder{}
	}
	tests[e.Test].WriteString(e.Output)
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
	}
	switch e.Action {
	case "pass":
		f.passed++
	case "skip":
		f.skipped = append(f.skipped, skip{e.Package, e.Test, reason(text)})
	case "fail":
		f.failed++
		f.broken = true
		f.failures = append(f.failures, failure{e.Package, e.Test, text})
		fmt.Fprint(f.out, text)
	}
}

// endPackage shows, of a package that failed, also what belongs to no test that ended: a panic, a time-out, a leak.
func (f *follower) endPackage(e event) {
	f.packages = append(f.packages, elapsed{e.Package, e.Elapsed})
	if e.Action == "fail" {
		f.broken = true
		for _, test := range slices.Sorted(maps.Keys(f.output[e.Package])) {
			said := f.output[e.Package][test].String()
			fmt.Fprint(f.out, said)
			if test != "" || !slices.Contains([]string{"FAIL\n", "exit status 1\nFAIL\n"}, said) {
				f.failures = append(f.failures, failure{e.Package, test, said})
			}
		}
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
