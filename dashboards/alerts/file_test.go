package alerts

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

var update = flag.Bool("update", false, "write rules.yaml anew")

// What is committed is what is generated.
func TestFileIsGenerated(t *testing.T) {
	want, err := Generate(RunbookURL)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(FileName, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(FileName)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what weir dashboards generate writes: go test ./dashboards/alerts -run TestFileIsGenerated -update", FileName)
	}
}

// promtool checks or tests, and fails the test with what it says.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	command := exec.Command(testbed.Program(t, "promtool"), args...)
	command.Env = append(os.Environ(), "GOGC=800") // days of series in a process that lives for seconds
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestPrometheusTakesTheRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", FileName)
}

// Another runbook's address stands before each anchor.
func TestRunbookURL(t *testing.T) {
	const home = "https://wiki.example/weir"
	for _, g := range Groups(home) {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if got, want := r.Annotations["runbook_url"], home+"#"+Anchor(r.Alert); got != want {
				t.Errorf("%s: %s, want %s", r.Alert, got, want)
			}
		}
	}
}
