package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func output(t *testing.T, pkg, test, text string) string {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(text) {
		encoded, err := json.Marshal(event{Action: "output", Package: pkg, Test: test, Output: line})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s\n", encoded)
	}
	return all.String()
}

// Why a test failed stands at the end, whatever its program has logged since.
func TestFailuresAreRepeatedWithoutLogs(t *testing.T) {
	log := strings.Repeat("        time=2026-11-23T04:48:19.190Z level=WARN msg=\"tried again\"\n", 300)
	in := output(t, "weir/a", "TestBad", "    a_test.go:3: a new series: x\n          of two lines\n    bed.go:9: its log:\n"+log+"--- FAIL: TestBad (2.00s)\n") +
		`{"Action":"fail","Package":"weir/a","Test":"TestBad"}` + "\n" +
		output(t, "weir/a", "TestParts/one", "        a_test.go:7: one is wrong\n") + `{"Action":"fail","Package":"weir/a","Test":"TestParts/one"}` + "\n" +
		output(t, "weir/a", "TestParts", "--- FAIL: TestParts (0.10s)\n") + `{"Action":"fail","Package":"weir/a","Test":"TestParts"}` + "\n" +
		output(t, "weir/a", "TestMany", strings.Repeat("    a_test.go:4: wrong\n", failureLines+2)) +
		`{"Action":"fail","Package":"weir/a","Test":"TestMany"}` + "\n" +
		output(t, "weir/a", "TestHung", "    a_test.go:5: so far so good\npanic: test timed out after 1s\nrunning tests:\n\tTestHung (1s)\n") +
		output(t, "weir/a", "", "FAIL\nFAIL\tweir/a\t2.1s\n") +
		`{"Action":"fail","Package":"weir/a"}` + "\n" +
		`{"ImportPath":"weir/c","Action":"build-output","Output":"x.go:1:2: undefined: y\n"}` + "\n" +
		`{"ImportPath":"weir/c","Action":"build-fail"}` + "\n" + stream
	got := followed(t, in, &strings.Builder{})
	var out strings.Builder
	got.printFailures(&out)
	want := `
why (up to 40 lines of each; all that it printed is above):
  FAIL weir/a TestBad
    a_test.go:3: a new series: x
    of two lines
    bed.go:9: its log:
  FAIL weir/a TestParts/one
    a_test.go:7: one is wrong
  FAIL weir/a TestMany
` + strings.Repeat("    a_test.go:4: wrong\n", failureLines) + `    … and 2 lines more
  FAIL weir/a TestHung
    a_test.go:5: so far so good
    panic: test timed out after 1s
    running tests:
    TestHung (1s)
  FAIL weir/c
    x.go:1:2: undefined: y
`
	if out.String() != want {
		t.Errorf("printed:\n%swant:\n%s", out.String(), want)
	}
}

// A test that says nothing itself, but for its logs, failed for what else it printed.
func TestAFailureWithoutWords(t *testing.T) {
	got := reasons("time=x level=INFO msg=up\nsomething went wrong\n--- FAIL: TestQuiet (0.00s)\n")
	if len(got) != 1 || got[0] != "something went wrong" {
		t.Errorf("%q", got)
	}
	var out strings.Builder
	if new(results).printFailures(&out); out.Len() > 0 {
		t.Errorf("with no failure: %q", out.String())
	}
}
