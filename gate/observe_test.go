package gate

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/traffic"
)

// gateThatHolds is a gate with a block, what it says, and its metrics.
func gateThatHolds(t *testing.T, observe bool) (*Gate, *prometheus.Registry, *strings.Builder) {
	t.Helper()
	log, registry := &strings.Builder{}, prometheus.NewRegistry()
	g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) {
		o.Observe, o.Logger, o.Registerer = observe, slog.New(slog.NewTextHandler(log, nil)), registry
	})
	return g, registry, log
}

// wantObserving asks the gate for a request that its block holds, and its gauge for what it does.
func wantObserving(t *testing.T, g *Gate, registry *prometheus.Registry, want bool) {
	t.Helper()
	a := g.Check(&Request{Method: "POST", Path: "/v1/guest-tokens", From: traffic.Carrier{Peer: "192.0.2.1:4711", Header: http.Header{}}})
	if a.Blocked == want || a.WouldBlock != want || a.Rule != "guest-token-flood" {
		t.Errorf("answer %+v, want observing %v", a, want)
	}
	gauge := "0"
	if want {
		gauge = "1"
	}
	text := "# HELP weir_gate_observing 1 while the gate observes, which refuses nobody; 0 while it holds what is blocked.\n" +
		"# TYPE weir_gate_observing gauge\nweir_gate_observing " + gauge + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "weir_gate_observing"); err != nil {
		t.Error(err)
	}
}

func wantSaid(t *testing.T, log *strings.Builder, what string, want int) {
	t.Helper()
	if got := strings.Count(log.String(), what); got != want {
		t.Errorf("%q was said %d times, want %d:\n%s", what, got, want, log)
	}
}

func newObserveFile(t *testing.T, g *Gate, path string) *ObserveFile {
	t.Helper()
	f, err := NewObserveFile(g, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSetObserveTakesEffectWithTheNextCheck(t *testing.T) {
	g, registry, _ := gateThatHolds(t, true)
	wantObserving(t, g, registry, true)
	g.SetObserve(false)
	wantObserving(t, g, registry, false)
	g.SetObserve(true)
	wantObserving(t, g, registry, true)
}

// Within a second of the file's coming the gate refuses nobody, and within a second of its going it holds again.
func TestFileMakesTheGateObserve(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run") // not there yet, as after a boot
	path := filepath.Join(folder, "observe")
	g, registry, log := gateThatHolds(t, false)
	file := newObserveFile(t, g, path)
	do := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- file.Run(ctx) }()
		time.Sleep(time.Second)
		wantObserving(t, g, registry, false)
		do(os.Mkdir(folder, 0o700))
		do(os.WriteFile(path, nil, 0o600))
		time.Sleep(time.Second)
		wantObserving(t, g, registry, true)
		g.SetObserve(false) // the file outweighs it
		wantObserving(t, g, registry, true)
		do(os.Remove(path))
		time.Sleep(time.Second)
		wantObserving(t, g, registry, false)
		g.SetObserve(true)
		time.Sleep(time.Second)
		wantObserving(t, g, registry, true) // there is no file, and it was told to all the same
		stop()
		do(<-done)
	})
	wantSaid(t, log, "the gate observes and refuses nobody", 1)
	wantSaid(t, log, "the file that made the gate observe is gone", 1)
}

func TestFileIsKnownBeforeTheFirstCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "observe")
	if err := os.WriteFile(path, nil, 0o000); err != nil { // nobody has to read it
		t.Fatal(err)
	}
	g, registry, _ := gateThatHolds(t, false)
	newObserveFile(t, g, path)
	wantObserving(t, g, registry, true)
}

// A path that may not be looked at neither lets anybody in nor holds anybody: the gate goes on as it did, and says so once.
func TestFileThatCannotBeLookedForChangesNothing(t *testing.T) {
	for _, before := range []bool{false, true} {
		g, registry, log := gateThatHolds(t, false)
		path := filepath.Join(t.TempDir(), "observe")
		if before {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		file := newObserveFile(t, g, path)
		file.stat = func(path string) error { return &fs.PathError{Op: "stat", Path: path, Err: fs.ErrPermission} }
		for range 3 {
			file.look()
			wantObserving(t, g, registry, before)
		}
		wantSaid(t, log, "it cannot be told whether the file", 1)
		if n := testutil.ToFloat64(file.failures); n != 3 {
			t.Errorf("%v failures counted, want 3", n)
		}
		file.stat = func(string) error { return fs.ErrNotExist }
		file.look()
		wantObserving(t, g, registry, false)
		wantSaid(t, log, "can be looked for again", 1)
	}
}

func TestObserveFileNeedsAPath(t *testing.T) {
	g, _, _ := gateThatHolds(t, false)
	if _, err := NewObserveFile(g, ""); err == nil {
		t.Error("an empty path was taken")
	}
}
