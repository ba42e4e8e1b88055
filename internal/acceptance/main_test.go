// Package acceptance judges weir from outside: it builds the program, runs it as a user would against Kafka, Redis and
// Postgres, kills it, and compares what history holds with oracles that share no code with it.
package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// program is the name of the built binary in the directory that WEIR_TEST_ACCEPTANCE_DIR names for the tests of this run.
const program = "weir"

const dirVariable = "WEIR_TEST_ACCEPTANCE_DIR"

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-acceptance-")
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
