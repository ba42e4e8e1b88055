package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// a test that failed, with its package's line.
func failedOnce(t *testing.T, pkg, test, said string) string {
	t.Helper()
	return output(t, pkg, test, said) + fmt.Sprintf(`{"Action":"fail","Package":%q,"Test":%q}`, pkg, test) + "\n"
}

func failedPackage(t *testing.T, pkg string) string {
	t.Helper()
	return output(t, pkg, "", "FAIL\nFAIL\t"+pkg+"\t0.1s\n") + fmt.Sprintf(`{"Action":"fail","Package":%q}`, pkg) + "\n"
}

// passing answers as if each test passed when it ran alone.
func passing(pkg, test string) (results, error) {
	f := newFollower(&strings.Builder{}, "")
	err := f.read(fmt.Appendf(nil, `{"Action":"pass","Package":%q,"Test":%q}`+"\n"+`{"Action":"pass","Package":%q}`+"\n", pkg, test, pkg))
	return f.results, err
}

// TestWhatIsTriedAgain has each kind of failure once, run again by a world in which everything passes alone.
func TestWhatIsTriedAgain(t *testing.T) {
	const a = "example.org/weir/a"
	tests := []struct {
		name, in string
		rerun    func(pkg, test string) (results, error)
		ledger   string
		flaked   []string // tests
		ok       bool
		printed  []string
	}{
		{
			name: "passes alone", in: failedOnce(t, a, "TestOne", "    a_test.go:3: took too long\n") + failedPackage(t, a),
			flaked: []string{"TestOne"}, ok: true,
			printed: []string{"once more, alone: " + a + " TestOne", "FLAKE " + a + " TestOne: a_test.go:3: took too long"},
		},
		{
			name: "a subtest is its test's", ok: true, flaked: []string{"TestOne"},
			in: failedOnce(t, a, "TestOne/part", "        a_test.go:3: took too long\n") + failedOnce(t, a, "TestOne", "--- FAIL: TestOne\n") + failedPackage(t, a),
		},
		{
			name: "fails again", in: failedOnce(t, a, "TestOne", "    a_test.go:3: never\n") + failedPackage(t, a),
			rerun: func(pkg, test string) (results, error) {
				return followed(t, failedOnce(t, pkg, test, "again\n"), &strings.Builder{}), nil
			},
		},
		{
			name: "no test has the name", in: failedOnce(t, a, "TestOne", "    a_test.go:3: never\n") + failedPackage(t, a),
			rerun: func(string, string) (results, error) { return results{}, nil },
		},
		{name: "a race", in: failedOnce(t, a, "TestOne", "WARNING: DATA RACE\n") + failedPackage(t, a), printed: []string{"not run again: " + a + " TestOne: a race"}},
		{
			name: "a race that testing tells", in: failedOnce(t, a, "TestOne", "    testing.go:1712: race detected during execution of test\n") + failedPackage(t, a),
			printed: []string{"TestOne: a race"},
		},
		{
			name: "a panic", printed: []string{"TestOne: a panic"},
			in: output(t, a, "TestOne", "panic: boom\n\ngoroutine 7 [running]:\n") + failedPackage(t, a),
		},
		{
			name: "a time-out of another test", printed: []string{"TestOne: a panic", "TestHung: a panic"},
			in: failedOnce(t, a, "TestOne", "    a_test.go:3: took too long\n") + failedOnce(t, a, "TestHung", "") +
				output(t, a, "", "panic: test timed out after 20m0s\n") + failedPackage(t, a),
		},
		{
			name: "a leak of the package", in: failedPackage(t, a) + output(t, a, "", "testbed: goroutines are still running after the last test: x\n") +
				failedPackage(t, a),
		},
		{
			name: "a leak of a test", printed: []string{"TestOne: a leak"},
			in: failedOnce(t, a, "TestOne", "    a_test.go:3: found unexpected goroutines:\n") + failedPackage(t, a),
		},
		{
			name: "a judge that lost", printed: []string{"TestOne: a judge's verdict"},
			in: failedOnce(t, a, "TestOne", "    a_test.go:3: 3 lost, 0 doubled, 0 extra\n") + failedPackage(t, a),
		},
		{
			name: "a judge whose subtest lost", printed: []string{"TestOne: a judge's verdict"},
			in: failedOnce(t, a, "TestOne/x", "        a_test.go:3: seed 7: 2 things are wrong\n") + failedOnce(t, a, "TestOne", "") + failedPackage(t, a),
		},
		{
			name: "a property", printed: []string{"TestOne: a property"},
			in: failedOnce(t, a, "TestOne", "    a_test.go:3: [rapid] failed after 76 tests: limit 1: got 15, want 14\n") + failedPackage(t, a),
		},
		{
			name: "a surviving mutation", printed: []string{"TestMutations: a surviving mutation"},
			in: failedOnce(t, a, "TestMutations", "    a_test.go:3: nothing fails without it\n") + failedPackage(t, a),
		},
		{
			name: "the floor plan", printed: []string{"TestFloorPlan: the floor plan"},
			in: failedOnce(t, "x/internal/arch", "TestFloorPlan", "    a_test.go:3: a imports b\n") + failedPackage(t, "x/internal/arch"),
		},
		{
			name: "generated files", printed: []string{"TestPage: generated files"},
			in: failedOnce(t, a, "TestPage", "    a_test.go:3: not up to date (WEIR_TEST_UPDATE=1 writes it)\n") + failedPackage(t, a),
		},
		{
			name: "what does not compile", in: `{"ImportPath":"` + a + `","Action":"build-output","Output":"x.go:1: undefined: y\n"}` + "\n" +
				`{"ImportPath":"` + a + `","Action":"build-fail"}` + "\n" + failedPackage(t, a),
		},
		{
			name: "two flakes", ok: true, flaked: []string{"TestOne", "TestTwo"},
			in: failedOnce(t, a, "TestOne", "slow\n") + failedOnce(t, a, "TestTwo", "slow\n") + failedPackage(t, a),
		},
		{
			name: "three flakes", flaked: []string{"TestOne", "TestThree", "TestTwo"}, printed: []string{"3 tests flaked, and a run may have 2"},
			in: failedOnce(t, a, "TestOne", "slow\n") + failedOnce(t, a, "TestTwo", "slow\n") + failedOnce(t, a, "TestThree", "slow\n") + failedPackage(t, a),
		},
		{
			name: "once in the ledger before", in: failedOnce(t, a, "TestOne", "slow\n") + failedPackage(t, a),
			ledger: "2026-11-28\tabc\t" + a + "\tTestOne\tslow\n2026-11-28\tabc\t" + a + "\tTestTwo\tslow\n", ok: true, flaked: []string{"TestOne"},
		},
		{
			name: "twice in the ledger before", in: failedOnce(t, a, "TestOne", "slow\n") + failedPackage(t, a), flaked: []string{"TestOne"},
			ledger:  strings.Repeat("2026-11-28\tabc\t"+a+"\tTestOne\tslow\twith a tab\n", 2),
			printed: []string{a + " TestOne stands 3 times in "},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "flakes.txt")
			if err := os.WriteFile(file, []byte(test.ledger), 0o600); err != nil {
				t.Fatal(err)
			}
			rerun := test.rerun
			if rerun == nil {
				rerun = passing
			}
			r, out := followed(t, test.in, &strings.Builder{}), &strings.Builder{}
			a := again{settings{ledger: file, commit: "def"}, rerun, time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)}
			complaints, err := a.retry(&r, out)
			if err != nil {
				t.Fatal(err)
			}
			var flaked []string
			for _, f := range r.flaked {
				flaked = append(flaked, f.test)
			}
			if ok := !r.broken() && len(complaints) == 0; ok != test.ok || !slices.Equal(flaked, test.flaked) {
				t.Errorf("passed: %v, flaked: %q, complaints: %q; want %v and %q", ok, flaked, complaints, test.ok, test.flaked)
			}
			said := out.String() + strings.Join(complaints, "\n")
			for _, line := range test.printed {
				if !strings.Contains(said, line) {
					t.Errorf("printed:\n%swant in it: %s", said, line)
				}
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(string(text), "\t"+"def"+"\t"); lines != len(flaked) {
				t.Errorf("%d new lines in the ledger, want %d:\n%s", lines, len(flaked), text)
			}
		})
	}
}

// A package whose failures have all flaked has passed, also in the lines that close the run.
func TestAFlakesPackageHasPassed(t *testing.T) {
	const a, b = "example.org/weir/a", "example.org/weir/b"
	r := followed(t, failedOnce(t, a, "TestOne", "slow\n")+failedPackage(t, a)+
		failedOnce(t, b, "TestOne", "slow\n")+failedOnce(t, b, "TestTwo", "WARNING: DATA RACE\n")+failedPackage(t, b), &strings.Builder{})
	tries := again{settings{ledger: filepath.Join(t.TempDir(), "flakes.txt")}, passing, time.Now()}
	if _, err := tries.retry(&r, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	want := []line{{a, "ok  \t" + a + "\t0.1s (flaked)\n"}, {b, "FAIL\t" + b + "\t0.1s\n"}}
	if !slices.Equal(r.lines, want) || r.failed != 1 || r.passed != 2 {
		t.Errorf("lines %q, %d failed, %d passed", r.lines, r.failed, r.passed)
	}
}

func TestTheLedgerRefusesWhatItCannotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flakes.txt")
	if listed, err := readLedger(file); err != nil || len(listed) > 0 {
		t.Errorf("no file: %v, %v", listed, err)
	}
	if err := os.WriteFile(file, []byte("2026-11-28 abc a TestOne slow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(file); err == nil || !strings.Contains(err.Error(), "1 fields, want date, commit, package, test and failure") {
		t.Errorf("error %v", err)
	}
}
