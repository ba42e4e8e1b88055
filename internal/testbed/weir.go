package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// weirVariable names the built program for the tests of a run.
const weirVariable = "WEIR_TEST_PROGRAM"

// MainWithWeir is Main for a package whose tests run weir as a user would: it builds the program first, unless WEIR_TEST_PROGRAM
// names one that was built already (scripts/test.sh builds one for all packages).
//
//	func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }
func MainWithWeir(m *testing.M) int {
	if Weir() != "" {
		return Main(m)
	}
	dir, err := os.MkdirTemp("", "weir-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "github.com/weirhq/weir/cmd/weir")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building weir: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(weirVariable, program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Main(m)
}

// Weir is the path of the program under test, of a package that runs under MainWithWeir.
func Weir() string { return os.Getenv(weirVariable) }

// Workplace is a directory in which weir is run, with weir.yaml in it as the configuration.
type Workplace struct {
	t       testing.TB
	dir     string
	program string
}

// NewWorkplace makes one, which goes with the test. A package that uses it runs under MainWithWeir.
func NewWorkplace(t testing.TB) Workplace { return Workplace{t: t, dir: t.TempDir(), program: Weir()} }

// With is the same place, where another build of weir is run.
func (w Workplace) With(program string) Workplace {
	w.program = program
	return w
}

// Write makes a file and returns its path.
func (w Workplace) Write(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// Command is a command of weir's, not yet started.
func (w Workplace) Command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, w.program, args...)
	command.Dir = w.dir
	command.Env = append(os.Environ(), "WEIR_CONFIG="+filepath.Join(w.dir, "weir.yaml"))
	return command
}

// Weir runs one command to its end, for three minutes at most, and returns its standard output; what fails ends the test. A command that stood
// still for longer than it waits for a server, or until the time was over that it asked for, says so, and is run again.
func (w Workplace) Weir(args ...string) string {
	w.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		stdout, stderr, err := w.run(args)
		if err == nil {
			return stdout
		}
		stood := strings.Contains(stderr, context.DeadlineExceeded.Error()) || strings.Contains(stderr,
			"allowed a time ahead of now") || strings.Contains(stderr, "which is past now")
		if try == tries || !stood {
			w.t.Fatalf("weir %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
		}
	}
}

func (w Workplace) run(args []string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	command := w.Command(ctx, args...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err = command.Run()
	return out.String(), errs.String(), err
}
