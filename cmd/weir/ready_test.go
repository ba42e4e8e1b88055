package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

func TestReadyAsksTheProcessOnThisMachine(t *testing.T) {
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	door := b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`metrics=(\S+)`)
	testbed.Eventually(t, 10*time.Second, func() error {
		o := b.weir("ready", "--http-listen", address)
		if o.code != exitOK {
			return errReady(o)
		}
		if o.stdout != "ready\n" {
			t.Fatalf("says %q", o.stdout)
		}
		return nil
	})
	door.end()
	if o := b.weir("ready", "--http-listen", address); o.code != exitError || !strings.Contains(o.stderr, "nobody answers") {
		t.Errorf("of a process that has ended: exit code %d, %s", o.code, o.stderr)
	}
}

type errReady outcome

func (e errReady) Error() string { return e.stderr }

// A gate whose Redis is away has no blocklist yet: it runs, and is not ready.
func TestReadySaysWhatIsMissing(t *testing.T) {
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://127.0.0.1:1/0"})
	door := b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`metrics=(\S+)`)
	testbed.Eventually(t, 10*time.Second, func() error { // four seconds are little on a busy machine: then nobody answers
		o := b.weir("ready", "--http-listen", address)
		if o.code != exitError {
			t.Fatalf("exit code %d, says %q", o.code, o.stdout)
		}
		if !strings.Contains(o.stderr, "not ready: blocklist") {
			return errReady(o)
		}
		return nil
	})
	door.end()
}

func TestReachable(t *testing.T) {
	for listens, want := range map[string]string{
		"127.0.0.1:9464": "127.0.0.1:9464", "0.0.0.0:9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464",
		"[::]:9464": "[::1]:9464", "192.0.2.1:1": "192.0.2.1:1", "localhost:1": "localhost:1",
	} {
		if got, err := reachable(listens); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", listens, got, err, want)
		}
	}
}
