package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindPostgres(t *testing.T) {
	root := t.TempDir()
	install := func(folder string, programs ...string) string {
		path := filepath.Join(root, folder)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range programs {
			if err := os.WriteFile(filepath.Join(path, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	whole := []string{"initdb", "pg_ctl", "postgres"}
	install("lib/14/bin", whole...)
	newest := install("lib/15/bin", whole...)
	install("lib/16/bin", "pg_ctl") // client programs only
	inPath := install("path", whole...)
	linked := install("linked")
	if err := os.Symlink(filepath.Join(newest, "initdb"), filepath.Join(linked, "initdb")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path, places, want string
	}{
		{"in PATH", inPath, "lib/*/bin", inPath},
		{"only initdb linked into PATH", linked, "nowhere", newest},
		{"the newest whole one of a place", root, "lib/*/bin", newest},
		{"half of one is none", root, "lib/16/bin", ""},
		{"nowhere", root, "nowhere", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			got, err := findPostgres([]string{filepath.Join(root, test.places)})
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, error %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestNoPostgresNamesTheWaysOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findPostgres(nil)
	if err == nil {
		t.Fatal("found PostgreSQL in an empty folder")
	}
	for _, want := range []string{"apt-get install postgresql", "WEIR_TEST_POSTGRES=", "make test"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}
