package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheListOfServersIsHeldAgainstWhatRan(t *testing.T) {
	written := "# why\n" + "a TestBoth kafka redis\n" + "a TestSkipped kafka\n" + "a TestStopped kafka\n" + "a TestGone kafka\n" + "other TestNotRun redis\n"
	file := filepath.Join(t.TempDir(), "servers.txt")
	if err := os.WriteFile(file, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := readList(file)
	if err != nil {
		t.Fatal(err)
	}
	e := executed{
		packages: map[string]bool{"a": true},
		tests: map[string]bool{
			"a TestBoth": true, "a TestSkipped": false, "a TestStopped": true, "a TestNew": true, "a TestPostgres": true, "a TestOwn": true,
		},
	}
	seen := uses{
		{"a", "TestBoth", "kafka", "real"}: true, {"a", "TestBoth", "redis", "embedded"}: true, {"a", "TestNew/part", "redis-cluster", "real"}: true,
		{"a", "TestPostgres", "postgres", "real"}: true, {"a", "TestSkipped", "kafka", "skipped"}: true, {"a", "BenchmarkX", "kafka", "real"}: true,
	}
	whole := []string{
		"the list of servers lacks: a TestNew redis-cluster",
		"the list of servers has a test that is not there: a TestGone",
		"the list of servers has what was not seen: a TestStopped kafka",
		"`scripts/test.sh servers` writes the list anew",
	}
	if got := before.stale(seen, e, true); !slices.Equal(got, whole) {
		t.Errorf("of a whole run: %q, want %q", got, whole)
	}
	if got, want := before.stale(seen, e, false), []string{whole[0], whole[1], whole[3]}; !slices.Equal(got, want) {
		t.Errorf("of a part: %q, want %q", got, want)
	}
	if err := writeList(file, before, seen, e); err != nil {
		t.Fatal(err)
	}
	after, err := readList(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.stale(seen, e, true); len(got) > 0 {
		t.Errorf("what was just written: %q", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a TestBoth kafka redis\na TestNew redis-cluster\na TestSkipped kafka\nother TestNotRun redis\n"; !strings.HasSuffix(string(text), "\n"+want) {
		t.Errorf("written:\n%swant at its end:\n%s", text, want)
	}
}

func TestAListThatCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.txt")
	if err := os.WriteFile(file, []byte("a TestOne\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readList(file); err == nil || !strings.Contains(err.Error(), `"a TestOne" has 2 fields`) {
		t.Errorf("error %v", err)
	}
}
