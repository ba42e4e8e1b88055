package local_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

func TestDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := local.OpenDirectory(dir, 0)
	if err == nil || !strings.Contains(err.Error(), "holds files of somebody else (thesis.tex)") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestDirectoryIsForOneAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first, err := local.OpenDirectory(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.OpenDirectory(dir, 0); !errors.Is(err, local.ErrInUse) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second one gets %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := local.OpenDirectory(dir, 0)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestFileThatIsNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := local.OpenDirectory(filepath.Join(file, "data"), 0)
	if err == nil || !strings.HasSuffix(err.Error(), "is not a directory") {
		t.Errorf("got %v", err)
	}
}

// The disk's own figure is compared with more than any disk has.
func TestTooLittleSpaceIsALine(t *testing.T) {
	_, err := local.OpenDirectory(filepath.Join(t.TempDir(), "data"), math.MaxUint64)
	if err == nil || !strings.Contains(err.Error(), " MB free on its disk, at least ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestReadOnlyFileSystemIsALine(t *testing.T) {
	dir := testbed.Mount(t, "ro,size=1m")
	for _, path := range []string{dir, filepath.Join(dir, "data")} {
		_, err := local.OpenDirectory(path, 0)
		if err == nil || !strings.Contains(err.Error(), "is on a read-only file system") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// The check at the start is switched off, so that it is PostgreSQL that runs out of space.
func TestFullDiskIsALine(t *testing.T) {
	dir := testbed.Mount(t, "size=8m,mode=755")
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for PostgreSQL's user, if this is root
		t.Fatal(err)
	}
	d := open(t, dir)
	_, err := local.StartPostgres(t.Context(), local.PostgresOptions{Dir: d.Path("postgres")})
	if err == nil || !strings.Contains(err.Error(), "No space left on device") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// A directory that may not be written to is a line. Permissions mean nothing to root, but PostgreSQL of a process that is
// root runs as another user, who has to get there.
func TestForbiddenDirectoryIsALine(t *testing.T) {
	dir := t.TempDir()
	var err error
	want := "cannot be written to (permission denied)"
	if os.Geteuid() == 0 {
		want = "who cannot enter"
		hidden := filepath.Join(dir, "hidden")
		if err := os.Mkdir(hidden, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err = local.StartPostgres(t.Context(), local.PostgresOptions{Dir: filepath.Join(hidden, "postgres")})
	} else {
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		_, err = local.OpenDirectory(dir, 0)
	}
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want %q in it", err, want)
	}
}
