package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// The release before this one, and the newest record format that it knows. Both go up with each release.
const (
	previousRelease = "63cd912381c5a792f028da5246da1a726affdf60"
	previousFormat  = 5
)

// previousVariable names a program of the previous release, for where git has not its source.
const previousVariable = "WEIR_TEST_PREVIOUS"

// previousProgram builds the previous release from this repository's own history, once: it stays in weir's cache folder.
func previousProgram(t *testing.T) string {
	t.Helper()
	if given := os.Getenv(previousVariable); given != "" {
		return given
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "weir", "releases", previousRelease, "weir")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// Whoever owns the clone, reading it is no danger.
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-C", root, "-c", "safe.directory=" + root}, args...)...)
	}
	if out, err := git("cat-file", "-e", previousRelease+"^{commit}").CombinedOutput(); err != nil {
		testbed.Missing(t, fmt.Sprintf("there is no source of the previous release: git has no commit %s here (%v%s); "+
			"fetch the whole history (git fetch --unshallow), or name its program in %s", previousRelease, err, aside(out), previousVariable))
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	// Beside its place, so that it comes there whole, whoever else is building it.
	work, err := os.MkdirTemp(filepath.Dir(program), "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	archive, built := filepath.Join(work, "source.tar"), filepath.Join(work, "weir")
	source := filepath.Join(work, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", built, "./cmd/weir")
	build.Dir = source
	for _, step := range []*exec.Cmd{
		git("archive", "--format=tar", "-o", archive, previousRelease), exec.Command("tar", "-xf", archive, "-C", source), build,
	} {
		if out, err := step.CombinedOutput(); err != nil {
			t.Fatalf("building the previous release: %s: %v%s", strings.Join(step.Args, " "), err, aside(out))
		}
	}
	if err := os.Rename(built, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// aside is what a program said, after a colon.
func aside(said []byte) string {
	if said = bytes.TrimSpace(said); len(said) == 0 {
		return ""
	}
	return ": " + string(said)
}
