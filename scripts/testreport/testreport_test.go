package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const stream = `{"Action":"start","Package":"weir/a"}
{"Action":"run","Package":"weir/a","Test":"TestGood"}
{"Action":"output","Package":"weir/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"weir/a","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"weir/a","Test":"TestGood"}
{"Action":"output","Package":"weir/a","Test":"TestSkipped","Output":"    a_test.go:9: no server here\n"}
{"Action":"output","Package":"weir/a","Test":"TestSkipped","Output":"--- SKIP: TestSkipped (0.00s)\n"}
{"Action":"skip","Package":"weir/a","Test":"TestSkipped"}
{"Action":"output","Package":"weir/a","Output":"PASS\n"}
{"Action":"output","Package":"weir/a","Output":"ok  \tweir/a\t0.1s\n"}
{"Action":"pass","Package":"weir/a"}
`

const failing = `{"Action":"output","Package":"weir/b","Test":"TestBad","Output":"    b_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"weir/b","Test":"TestBad"}
{"Action":"output","Package":"weir/b","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"weir/b","Output":"FAIL\tweir/b\t0.1s\n"}
{"Action":"fail","Package":"weir/b"}
`

func followed(t *testing.T, in string, out io.Writer) results {
	t.Helper()
	f := newFollower(out, "")
	if err := f.read([]byte(in)); err != nil {
		t.Fatal(err)
	}
	return f.results
}

func TestFollowPrintsWhatGoTestPrints(t *testing.T) {
	tests := []struct {
		name, in, out string
		broken        bool
		passed        int
		failed        int
		skipped       []skip
		lines         []line
	}{
		{
			name: "passed", in: stream, out: "ok  \tweir/a\t0.1s\n", passed: 1,
			skipped: []skip{{"weir/a", "TestSkipped", "a_test.go:9: no server here"}}, lines: []line{{"weir/a", "ok  \tweir/a\t0.1s\n"}},
		},
		{
			name: "failed", in: failing, broken: true, failed: 1, lines: []line{{"weir/b", "FAIL\tweir/b\t0.1s\n"}},
			out: "    b_test.go:3: got 1, want 2\nFAIL\tweir/b\t0.1s\npanic: test timed out\n",
		},
		{
			name: "does not compile", broken: true, out: "x.go:1: undefined: y\n",
			in: `{"ImportPath":"weir/c","Action":"build-output","Output":"x.go:1: undefined: y\n"}` + "\n" +
				`{"ImportPath":"weir/c","Action":"build-fail"}` + "\n",
		},
		{name: "plain text", in: "go: no such tool\n", out: "go: no such tool\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			got := followed(t, test.in, &out)
			if out.String() != test.out {
				t.Errorf("printed:\n%swant:\n%s", out.String(), test.out)
			}
			if got.broken() != test.broken || got.passed != test.passed || got.failed != test.failed ||
				!slices.Equal(got.skipped, test.skipped) || !slices.Equal(got.lines, test.lines) {
				t.Errorf("results %+v", got)
			}
		})
	}
}

func TestUnprivileged(t *testing.T) {
	for reason, want := range map[string]bool{
		"a_test.go:9: unprivileged: no file system can be mounted here": true,
		"a_test.go:9: no server here":                                   false,
		"a_test.go:9: no server here: unprivileged: really":             false,
		"unprivileged: without a place":                                 false,
		"no reason given":                                               false,
	} {
		if got := (skip{reason: reason}).unprivileged(); got != want {
			t.Errorf("%q: %v, want %v", reason, got, want)
		}
	}
}

func TestUses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	lines := "a\tTestOne\tkafka\treal\na\tTestOne\tkafka\treal\nb\tTestOne\tkafka\treal\n" +
		"a\tTestTwo\tredis\tembedded\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readUses(file)
	if err != nil {
		t.Fatal(err)
	}
	if real, embedded := got.count("kafka", "real"), got.count("redis", "embedded"); real != 2 || embedded != 1 {
		t.Errorf("%d tests on real Kafka, %d on embedded Redis; want 2 and 1", real, embedded)
	}
	if !got.touched("weir/internal/a", "TestTwo") || got.touched("weir/internal/a", "TestThree") || got.touched("weir/internal/b", "TestTwo") {
		t.Error("who touched a server is not known")
	}
	want := []string{"no test ran on a real redis", "no test ran on a real redis-cluster", "no test ran on a real postgres"}
	if complaints := got.untouched(); !slices.Equal(complaints, want) {
		t.Errorf("complaints %q, want %q", complaints, want)
	}
}

func TestReadUsesRefusesWhatItCannotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(file, []byte("a\tTestOne\tkafka\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readUses(file); err == nil || !strings.Contains(err.Error(), "3 fields") {
		t.Errorf("error %v, want one that counts the fields", err)
	}
}

func TestTimesAreToldSlowestFirst(t *testing.T) {
	var lines strings.Builder
	for i, seconds := range []string{"0.5", "31.25", "4.9", "120"} {
		name := string(rune('a' + i))
		lines.WriteString(`{"Action":"pass","Package":"weir/` + name + `","Test":"TestAll/part","Elapsed":3}` + "\n" +
			`{"Action":"pass","Package":"weir/` + name + `","Test":"TestAll","Elapsed":` + seconds + `}` + "\n" +
			`{"Action":"pass","Package":"weir/` + name + `","Elapsed":` + seconds + `}` + "\n")
	}
	got := followed(t, lines.String(), &strings.Builder{})
	var out strings.Builder
	got.printTimes(&out)
	want := `  time per package (side by side; with what it waited for):
      120.0s  weir/d
       31.2s  weir/b
        5.4s  in all: 2 packages of less than 5 s each
  the slowest 4 of 4 tests:
      120.0s  weir/d TestAll
       31.2s  weir/b TestAll
        4.9s  weir/c TestAll
        0.5s  weir/a TestAll
`
	if out.String() != want {
		t.Errorf("printed:\n%swant:\n%s", out.String(), want)
	}
}
