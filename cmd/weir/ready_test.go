package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

func TestReadyAsksTheProcessOnThisMachine(t *testing.T) {
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	stages := b.start("run") // it writes the epoch, before any block
	door := b.start("gate", "--listen", "127.0.0.1:0")
	address := door.awaitLog(`metrics=(\S+)`)
	testbed.Eventually(t, 30*time.Second, func() error {
		o := b.weir("ready", "--http-listen", address)
		if o.code != exitOK {
			return errReady(o)
		}
		if o.stdout != "ready\n" {
			t.Fatalf("says %q", o.stdout)
		}
		return nil
	})
	stages.end()
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

// A gate whose namespace is misspelt finds a Redis that answers and holds nobody. It lets pass, as every gate without a
// blocklist does, and says what it is until somebody looks.
func TestReadySaysThatTheNamespaceHasNoBlocks(t *testing.T) {
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	stages := b.start("run")
	misspelt := &bed{t: t, flags: append(slices.Clone(b.flags), "--namespace", "wier")}
	door := misspelt.start("gate", "--listen", "127.0.0.1:0")
	address, metrics := door.awaitLog(`forward-auth checks" address=(\S+)`), door.awaitLog(`metrics=(\S+)`)
	door.awaitLog(`level=ERROR msg="(not ready: nothing shows that this Redis has the blocks)"`)
	testbed.Eventually(t, 30*time.Second, func() error {
		o := b.weir("ready", "--http-listen", metrics)
		for _, part := range []string{
			"not ready: blocklist", "never had blocks of the namespace", "database ", "namespace wier", "wier:v1:epoch",
		} {
			if o.code != exitError || !strings.Contains(o.stderr, part) {
				return errReady(o)
			}
		}
		return nil
	})
	if got := check(t, address, "198.51.100.7").status; got != http.StatusOK {
		t.Errorf("a gate that knows nothing answers %d", got)
	}
	_, page := fetchPage(t, metrics, "/metrics")
	for _, series := range []string{
		`(?m)^weir_blocklist_ready\{[^}]*\} 0$`, `decision="fail_open",[^}]*protocol="forward_auth"[^}]*\} 1`,
	} {
		if !regexp.MustCompile(series).MatchString(page) {
			t.Errorf("no %s in\n%s", series, page)
		}
	}
	stages.end()
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
