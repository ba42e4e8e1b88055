package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A test that fails is run once more, alone, by the same program on the same servers. When it passes, it has flaked:
// what failed was the machine or the test's patience, and no change should wait for that. So that this hides nothing,
// some kinds of failure are never tried again, a run has few flakes or fails, and each is written down: whoever flakes
// too often fails.
const (
	mostFlaked = 2 // in one run
	mostListed = 3 // times that a test stands in the ledger, with which the run fails
)

// flake is a test that failed beside the others and passed alone.
type flake struct {
	pkg, test string
	first     string // line of its failure
}

// again tries failed tests once more.
type again struct {
	settings
	rerun func(pkg, test string) (results, error)
	now   time.Time
}

// kinds are failures that a second try would only hide, each with how it is known: by what the test said, its name, or
// its package.
func kinds() []kind {
	return []kind{
		{"a race", regexp.MustCompile(`WARNING: DATA RACE|race detected during execution of test`), nil},
		{"a panic", regexp.MustCompile(`(?m)^\s*(panic: |fatal error: |runtime: |signal: )`), nil},
		{"a leak", regexp.MustCompile(`goroutines are still running|found unexpected goroutines`), nil},
		{"a judge's verdict", regexp.MustCompile(`(?i)\b(lost|doubled|extra|wrong)\b`), nil},
		{"a property", regexp.MustCompile(`\[rapid\] (failed|panic)`), nil}, // it has drawn a counter-example
		{"generated files", regexp.MustCompile(`WEIR_TEST_UPDATE`), nil},
		{"a surviving mutation", nil, regexp.MustCompile(`Mutation|Mutant`)},
		{"the floor plan", nil, regexp.MustCompile(`/internal/arch Test`)},
	}
}

type kind struct {
	name     string
	said     *regexp.Regexp // of what the test said
	identity *regexp.Regexp // of "package test"
}

// final names the kind for which a failed test is not tried again; empty: it is.
func final(failures []failure) string {
	for _, k := range kinds() {
		for _, f := range failures {
			said := strings.Join(reasons(f.output), "\n")
			if k.said != nil && (k.said.MatchString(said) || k.said.MatchString(f.test)) ||
				k.identity != nil && k.identity.MatchString(f.pkg+" "+f.test) {
				return k.name
			}
		}
	}
	return ""
}

// retry runs what failed once more, and takes what passes out of the failures. It complains where flakes fail the run.
func (a *again) retry(r *results, out io.Writer) (complaints []string, err error) {
	for _, pkg := range packagesOf(r.failures) {
		tests, outside := failedTests(r.failures, pkg)
		for _, test := range slices.Sorted(maps.Keys(tests)) {
			if why := final(append(slices.Clone(tests[test]), outside...)); why != "" {
				fmt.Fprintf(out, "not run again: %s %s: %s\n", pkg, test, why)
				continue
			}
			if len(outside) > 0 {
				fmt.Fprintf(out, "not run again: %s %s: its package failed beside its tests\n", pkg, test)
				continue
			}
			fmt.Fprintf(out, "once more, alone: %s %s\n", pkg, test)
			second, err := a.rerun(pkg, test)
			if err != nil {
				return nil, err
			}
			if !second.broken() && second.executed.ran(path.Base(pkg)+" "+test) {
				r.forgive(pkg, test, tests[test])
			}
		}
		r.relabel(pkg)
	}
	return a.enter(r, out)
}

// enter writes the flakes into the ledger and names them.
func (a *again) enter(r *results, out io.Writer) (complaints []string, err error) {
	listed, err := readLedger(a.ledger)
	if err != nil {
		return nil, err
	}
	for _, f := range r.flaked {
		fmt.Fprintf(out, "FLAKE %s %s: %s\n", f.pkg, f.test, f.first)
		if err := enter(a.ledger, a.now, a.commit, f); err != nil {
			return nil, err
		}
		listed[f.pkg+" "+f.test]++
		if n := listed[f.pkg+" "+f.test]; n >= mostListed {
			complaints = append(complaints, fmt.Sprintf("%s %s stands %d times in %s: mend it, and take its lines out", f.pkg, f.test, n, a.ledger))
		}
	}
	if len(r.flaked) > mostFlaked {
		complaints = append(complaints, fmt.Sprintf("%d tests flaked, and a run may have %d", len(r.flaked), mostFlaked))
	}
	return complaints, nil
}

func packagesOf(failures []failure) (packages []string) {
	for _, f := range failures {
		if !slices.Contains(packages, f.pkg) {
			packages = append(packages, f.pkg)
		}
	}
	return packages
}

// failedTests are the failures of a package by test, those of subtests with it, and the failures that belong to no
// test.
func failedTests(failures []failure, pkg string) (tests map[string][]failure, outside []failure) {
	tests = map[string][]failure{}
	for _, f := range failures {
		switch top, _, _ := strings.Cut(f.test, "/"); {
		case f.pkg != pkg:
		case f.test == "":
			outside = append(outside, f)
		default:
			tests[top] = append(tests[top], f)
		}
	}
	return tests, outside
}

// forgive makes a flake of a test's failures.
func (r *results) forgive(pkg, test string, failures []failure) {
	first := "no reason given"
	for _, f := range failures {
		if lines := reasons(f.output); len(lines) > 0 {
			first = lines[0]
			break
		}
	}
	r.flaked = append(r.flaked, flake{pkg, test, first})
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return slices.Contains(failures, f) })
	r.failed -= len(failures)
	r.passed += len(failures)
}

// relabel has the line of a package say that all of it passed, where in the end it did.
func (r *results) relabel(pkg string) {
	if slices.ContainsFunc(r.failures, func(f failure) bool { return f.pkg == pkg }) {
		return
	}
	for i := range r.lines {
		if rest, failed := strings.CutPrefix(r.lines[i].text, "FAIL\t"); failed && r.lines[i].pkg == pkg {
			r.lines[i].text = "ok  \t" + strings.TrimSuffix(rest, "\n") + " (flaked)\n"
		}
	}
}
