package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// failure is what a test, or a package outside of its tests, said when it failed.
type failure struct {
	pkg, test string
	output    string
}

// failureLines is how many lines of one failure are repeated at the end.
const failureLines = 40

var (
	// said is how testing begins what a test itself says.
	said = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
	// logged is a line of a program's log, in text or JSON.
	logged = regexp.MustCompile(`^\s*(time=\S+ level=|\{"time":)`)
	// crashed is how the runtime and the race detector begin what they say.
	crashed = regexp.MustCompile(`^\s*(panic: |fatal error: |WARNING: DATA RACE|runtime: |signal: |exit status )`)
)

// belongs is how testing indents the further lines of what a test says.
const belongs = "        "

// printFailures repeats why tests failed, without the logs of what they ran: a log of which only the end is kept has that, too.
func (r *results) printFailures(out io.Writer) {
	if len(r.failures) == 0 {
		return
	}
	fmt.Fprintf(out, "\nwhy (up to %d lines of each; all that it printed is above):\n", failureLines)
	for _, f := range r.failures {
		lines := reasons(f.output)
		if len(lines) == 0 && r.failedBelow(f) {
			continue
		}
		fmt.Fprintf(out, "  FAIL %s\n", strings.TrimSpace(f.pkg+" "+f.test))
		for _, line := range lines[:min(len(lines), failureLines)] {
			fmt.Fprintf(out, "    %s\n", line)
		}
		if left := len(lines) - failureLines; left > 0 {
			fmt.Fprintf(out, "    … and %d lines more\n", left)
		}
	}
}

// failedBelow reports whether a subtest of a test failed, which then says why.
func (r *results) failedBelow(f failure) bool {
	return slices.ContainsFunc(r.failures, func(sub failure) bool { return sub.pkg == f.pkg && strings.HasPrefix(sub.test, f.test+"/") })
}

// reasons are the lines of an output that say why: what the test itself said, with the lines that belong to it, and all of a crash, but no
// line of a log. Where it said nothing, they are everything but the logs.
func reasons(output string) []string {
	var own, all []string
	mine, crash := false, false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimSpace(line)
		if text == "" || logged.MatchString(line) || strings.HasPrefix(text, "--- ") {
			continue
		}
		crash = crash || crashed.MatchString(line)
		mine = crash || said.MatchString(line) || mine && strings.HasPrefix(line, belongs)
		all = append(all, text)
		if mine {
			own = append(own, text)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}
