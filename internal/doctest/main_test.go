package doctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// program is the environment variable that names the built weir for the tests of this run.
const program = "WEIR_TEST_DOCTEST_PROGRAM"

// repository is the top of the repository, seen from here.
const repository = "../.."

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-doctest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", binary, "github.com/weirhq/weir/cmd/weir")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building weir: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(program, binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return testbed.Main(m)
}
