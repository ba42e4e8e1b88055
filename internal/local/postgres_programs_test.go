package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// install makes stand-ins for PostgreSQL's programs that know their version.
func install(t *testing.T, folder, version string, programs ...string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Debian)'\n"
	for _, program := range programs {
		if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestInstalled(t *testing.T) {
	root := t.TempDir()
	whole := []string{"initdb", "pg_ctl", "postgres"}
	old := install(t, filepath.Join(root, "lib/14/bin"), "14.1", whole...)
	newest := install(t, filepath.Join(root, "lib/15/bin"), "15.2", whole...)
	install(t, filepath.Join(root, "lib/16/bin"), "16.0", "pg_ctl") // client programs only
	inPath := install(t, filepath.Join(root, "path"), "13.0", whole...)
	linked := install(t, filepath.Join(root, "linked"), "")
	if err := os.Symlink(filepath.Join(newest, "initdb"), filepath.Join(linked, "initdb")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, path, places string
		want               []string
	}{
		{"in PATH comes first", inPath, "lib/*/bin", []string{inPath, newest, old}},
		{"only initdb linked into PATH", linked, "nowhere", []string{newest}},
		{"each once", linked, "lib/*/bin", []string{newest, old}},
		{"half of one is none", root, "lib/16/bin", nil},
		{"nowhere", root, "nowhere", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			got, err := installed([]string{filepath.Join(root, test.places)})
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, error %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestFittingTakesTheVersionThatMadeTheDatabase(t *testing.T) {
	root := t.TempDir()
	whole := []string{"initdb", "pg_ctl", "postgres"}
	folders := []string{
		install(t, filepath.Join(root, "17"), "17beta2", whole...), install(t, filepath.Join(root, "15"), "15.14", whole...),
	}
	for _, test := range []struct{ made, want, problem string }{
		{"", folders[0], ""},
		{"15\n", folders[1], ""},
		{"17\n", folders[0], ""},
		{"14\n", "", "made by PostgreSQL 14, which is not on this machine (there is 17 in " + folders[0] + ", 15 in "},
	} {
		dir := t.TempDir()
		if test.made != "" {
			if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte(test.made), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := fitting(t.Context(), folders, dir)
		if got != test.want {
			t.Errorf("made by %q: got %q, want %q", test.made, got, test.want)
		}
		if (err == nil) != (test.problem == "") || err != nil && (!strings.Contains(err.Error(), test.problem) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("made by %q: error %v, want %q", test.made, err, test.problem)
		}
	}
}

func TestNoPostgresNamesTheWaysOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartPostgres(t.Context(), PostgresOptions{Programs: Programs{Places: []string{t.TempDir()}}})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"apt-get install postgresql", "--postgres-url", "WEIR_POSTGRES_URL=", "another user than root"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
}

func TestSummary(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "it says nothing"},
		{"one\n\ntwo\n", "two"},
		{"LOG: a\nFATAL:  b\nHINT: c\n", "FATAL:  b"},
		{"could not a\nFATAL: b\nERROR: c\nLOG: d", "FATAL: b; ERROR: c"},
	} {
		if got := summary(test.text); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}
