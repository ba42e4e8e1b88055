// Package faults kills, freezes and restarts real processes of weir, and the servers that they work with, under load, and
// has the judges of internal/exactness say whether any event was lost, counted twice, or made up.
//
// TestFaults has three forms, each a bounded time:
//
//	full      WEIR_TEST_FAULTS=full, make test-faults: half a million events a fault, one fault after the other
//	short     against real servers, as in make test: fewer events and instants, faults side by side
//	embedded  with nothing running: the same on the embedded Kafka, where it can do what the fault needs
//
// docs/faults.md says what is done, and holds the table of a full run.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// program is the name of the built binary in the directory that dirVariable names for the tests of this run.
const (
	program     = "weir"
	dirVariable = "WEIR_TEST_FAULTS_DIR"
)

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, program), "github.com/weirhq/weir/cmd/weir")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building weir: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(dirVariable, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return testbed.Main(m)
}
