package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

// Data returns the path of a file or folder among the shared logs and hostile inputs: below WEIR_TEST_DATA, or below
// ../shared/data beside the repository. They are not part of the repository; without them the test is skipped and says
// so in the report, and with WEIR_TEST_DATA set it fails, since whoever set it expects it to run.
func Data(t testing.TB, elements ...string) string {
	t.Helper()
	root := os.Getenv("WEIR_TEST_DATA")
	asked := root != ""
	if !asked {
		root = filepath.Join(filepath.Dir(repository(t)), "shared", "data")
	}
	path := filepath.Join(append([]string{root}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		if asked {
			t.Fatalf("WEIR_TEST_DATA: %v", err)
		}
		report(t, "data", "skipped")
		t.Skipf("shared test data: %v; WEIR_TEST_DATA names another folder", err)
	}
	return path
}

// repository returns the root of the module, the folder with go.mod above the test's working directory.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("working directory: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}
