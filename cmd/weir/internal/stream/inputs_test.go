package stream

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Size is known where it can be.
func TestInputs(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		paths []string
		want  int64
	}{{[]string{log, log}, 10}, {[]string{log, "-"}, 0}, {[]string{log, os.DevNull}, 0}} {
		all, err := Inputs(tc.paths, strings.NewReader(""))
		if got := SizeOf(all); err != nil || got != tc.want {
			t.Errorf("%v: got %d, %v; want %d", tc.paths, got, err, tc.want)
		}
	}
	_, err := Inputs([]string{"none", t.TempDir(), "-", "-"}, strings.NewReader(""))
	for _, want := range []string{"none", "is a directory; allowed: files", "- is given twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.WriteFile(closed, []byte("x"), 0o000); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(closed); err == nil {
		_ = f.Close() // whoever runs this may read everything
	} else if _, err := Inputs([]string{log, closed}, nil); err == nil || !strings.Contains(err.Error(), closed) {
		t.Errorf("a file that may not be read: %v", err)
	}
	if pipe, _ := io.Pipe(); closable(pipe) != io.ReadCloser(pipe) {
		t.Error("a read of a pipe cannot be ended")
	}
}
