package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCommandsAreSplit(t *testing.T) {
	for in, want := range map[string][][]string{
		"":                           nil,
		"go test":                    {{"go", "test"}},
		"go test -- go vet":          {{"go", "test"}, {"go", "vet"}},
		"-- go test -- -- go vet --": {{"go", "test"}, {"go", "vet"}},
	} {
		if got := commandsOf(strings.Fields(in)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestRunJudgesACommand runs commands that print events as go test would.
func TestRunJudgesACommand(t *testing.T) {
	events := func(t *testing.T, text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "cat " + file
	}
	skipped := func(said string) string {
		return output(t, "x/a", "TestOne", "    a_test.go:9: "+said+"\n") + `{"Action":"skip","Package":"x/a","Test":"TestOne"}` + "\n"
	}
	tests := []struct {
		name     string
		settings settings
		commands string
		ok       bool
		err      string
		printed  string
	}{
		{name: "two commands", commands: events(t, stream) + " -- " + events(t, stream), ok: true, printed: "2 passed, 0 failed, 2 skipped"},
		{name: "one of them fails", commands: events(t, stream) + " -- " + events(t, failing), printed: "1 passed, 1 failed"},
		{name: "dies without a word", commands: events(t, stream) + " -- false", err: "false: exit status 1"},
		{name: "is not there", commands: "/no/such/program", err: "/no/such/program: "},
		{name: "no command", err: "no command to run"},
		{name: "a skip in a whole run", commands: events(t, stream), settings: settings{whole: true}, printed: "FAIL: weir/a TestSkipped was skipped: a_test.go:9: no server here"},
		{name: "left to the night", commands: events(t, skipped("night: minutes")), settings: settings{whole: true}, ok: true, printed: "left to `make test-night`: 1 tests"},
		{name: "skipped at night", commands: events(t, skipped("night: minutes")), settings: settings{whole: true, night: true}, printed: "FAIL: x/a TestOne was skipped"},
		{name: "unprivileged", commands: events(t, skipped("unprivileged: no mount")), settings: settings{whole: true}, ok: true, printed: "skipped: x/a TestOne"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("WEIR_TEST_REPORT", "")
			var out strings.Builder
			ok, err := run(t.Context(), test.settings, strings.Fields(test.commands), &out)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || ok != test.ok || !strings.Contains(out.String(), test.printed) {
				t.Errorf("%v, %v; want %v and in what is printed %q:\n%s", ok, err, test.ok, test.printed, out.String())
			}
		})
	}
}

// TestAnotherCommandRunsATestOnceMore has a command that is asked for a test by -run and its package: it knows TestSlow alone.
func TestAnotherCommandRunsATestOnceMore(t *testing.T) {
	command := filepath.Join(t.TempDir(), "again")
	const script = `#!/bin/sh
[ "$1 $2 $3 $4" = '-seed 2 -run ^TestSlow$' ] || { printf '{"Action":"fail","Package":"%s","Test":"TestNever"}\n' "$5"; exit 1; }
printf '{"Action":"pass","Package":"%s","Test":"TestSlow"}\n' "$5"
`
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	for test, passes := range map[string]bool{"TestSlow": true, "TestNever": false} {
		r := followed(t, failedOnce(t, "x/a", test, "    a_test.go:3: took too long\n")+failedPackage(t, "x/a"), &strings.Builder{})
		a := again{settings: settings{ledger: filepath.Join(t.TempDir(), "flakes.txt")}, rerun: rerunBy(t.Context(), []string{command, "-seed", "2"})}
		if _, err := a.retry(&r, &strings.Builder{}); err != nil || r.broken() == passes || (len(r.flaked) == 1) != passes {
			t.Errorf("%s: %v, failures %+v, flaked %+v", test, err, r.failures, r.flaked)
		}
	}
	if _, err := rerunBy(t.Context(), []string{"/no/such/program"})("x/a", "TestSlow"); err == nil || !strings.Contains(err.Error(), "TestSlow of x/a once more: ") {
		t.Errorf("a command that is not there: %v", err)
	}
}
