package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Folder is the path of a directory that does not exist yet, in one that a server reaches which runs as another user than
// root. It goes with the test.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

// Mount is a small file system of its own, with the options of a tmpfs, where this user may mount one: as root on Linux.
// Elsewhere the test is skipped.
func Mount(t testing.TB, options string) string {
	t.Helper()
	dir := Folder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("unprivileged: no file system can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() {
		Eventually(t, 30*time.Second, func() error { // a server that was ended may have processes that are about to
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				return fmt.Errorf("umount: %w %s", err, out)
			}
			return nil
		})
	})
	return dir
}
