package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"text/tabwriter"
)

// use is one line of the report file: a test of a package (the last element of its import path) on a kind of server.
type use struct {
	pkg, test, kind, source string
}

type uses map[use]bool

// readUses reads the report file; without one there are no uses.
func readUses(file string) (uses, error) {
	found := uses{}
	if file == "" {
		return found, nil
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return found, nil // no test used a server
	}
	if err != nil {
		return nil, fmt.Errorf("WEIR_TEST_REPORT: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("WEIR_TEST_REPORT: line %q has %d fields, want package, test, kind, source", line, len(fields))
		}
		found[use{fields[0], fields[1], fields[2], fields[3]}] = true
	}
	return found, nil
}

func serverKinds() []string { return []string{"kafka", "redis", "redis-cluster", "postgres"} }

// count is the number of tests that used a kind of server from a source. A test that asks twice counts once.
func (u uses) count(kind, source string) int {
	n := 0
	for use := range u {
		if use.kind == kind && use.source == source {
			n++
		}
	}
	return n
}

// touched reports whether a test of the package with this import path asked for a server.
func (u uses) touched(importPath, test string) bool {
	for use := range u {
		if use.pkg == path.Base(importPath) && use.test == test {
			return true
		}
	}
	return false
}

func (u uses) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "tests on\tembedded\treal\tskipped\t")
	for _, kind := range serverKinds() {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", kind, u.count(kind, "embedded"), u.count(kind, "real"), u.count(kind, "skipped"))
	}
	_ = table.Flush() // to standard output: there is nowhere left to say that it failed
}

// untouched names the kinds of server on which no test ran for real.
func (u uses) untouched() []string {
	var complaints []string
	for _, kind := range serverKinds() {
		if u.count(kind, "real") == 0 {
			complaints = append(complaints, "no test ran on a real "+kind)
		}
	}
	return complaints
}
