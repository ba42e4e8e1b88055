package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// elapsed is how long a package or, by itself, a test took, in seconds of the clock: side by side with others.
type elapsed struct {
	name    string
	seconds float64
}

// How much of the times is shown.
const (
	leastPackage = 5.0 // seconds; what is quicker is one sum
	slowestTests = 12
)

// printTimes shows where the time of the run went: every package that took long, and the slowest tests of all.
func (r *results) printTimes(out io.Writer) {
	slowestFirst := func(a, b elapsed) int { return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name)) }
	slices.SortFunc(r.packages, slowestFirst)
	slices.SortFunc(r.tests, slowestFirst)
	fmt.Fprintln(out, "  time per package (side by side; with what it waited for):")
	quick, sum := 0, 0.0
	for _, p := range r.packages {
		if p.seconds < leastPackage {
			quick, sum = quick+1, sum+p.seconds
			continue
		}
		fmt.Fprintf(out, "    %7.1fs  %s\n", p.seconds, p.name)
	}
	if quick > 0 {
		fmt.Fprintf(out, "    %7.1fs  in all: %d packages of less than %.0f s each\n", sum, quick, leastPackage)
	}
	shown := r.tests[:min(slowestTests, len(r.tests))]
	if len(shown) > 0 {
		fmt.Fprintf(out, "  the slowest %d of %d tests:\n", len(shown), len(r.tests))
	}
	for _, test := range shown {
		fmt.Fprintf(out, "    %7.1fs  %s\n", test.seconds, test.name)
	}
}
