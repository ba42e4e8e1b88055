// Package testbed gives tests the servers that weir works with: Kafka, Redis, a Redis Cluster and PostgreSQL.
//
// With nothing configured each test gets embedded parts, which need nothing installed but PostgreSQL's programs. Where an
// environment variable names a real server, the same test runs against that one:
//
//	WEIR_TEST_KAFKA          host:port[,host:port…]
//	WEIR_TEST_REDIS          redis://host:port/0
//	WEIR_TEST_REDIS_CLUSTER  host:port[,host:port…]
//	WEIR_TEST_POSTGRES       postgres://user:password@host:port/postgres, of a role that may create databases
//	WEIR_TEST_REQUIRE_REAL   1: a test that would fall back to an embedded part fails instead
//	WEIR_TEST_REPORT         file to which each use of a server is appended, for the count at the end of `make test`
//
// Real servers are shared by all tests of a run: a test works under a Namespace of its own and never flushes a server.
//
// The package keeps one piece of process-wide state, the private PostgreSQL of the test binary (postgres.go): starting
// one for each test would cost most of the time of the suite.
package testbed

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, stops the server they shared, and fails the run when goroutines are left over:
//
//	func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }
//
// A package without it loses only the leak check: the shared server also ends, and its files go, with the process.
func Main(m *testing.M) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed: stopping the private PostgreSQL:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // what leaks after a failure is most often the failure's own
	}
	if err := leftOver(leakPatience); err != nil {
		fmt.Fprintln(os.Stderr, "testbed: goroutines are still running after the last test:", err)
		return 1
	}
	return 0
}

// leakPatience is how long goroutines may take to end after what they belong to was closed: on a busy machine the other end of a connection
// may be slow to hang up. One that leaks never ends.
const leakPatience = 20 * time.Second

// leftOver names goroutines that run when patience is over, other than those of options.
func leftOver(patience time.Duration, options ...goleak.Option) error {
	for start := time.Now(); ; {
		if err := goleak.Find(options...); err == nil || time.Since(start) > patience { // Find itself looks for some tenths of a second
			return err
		}
	}
}

// CheckLeaks fails a test if goroutines that were not there at the call are left over when all its later clean-ups have run. The test must
// not run beside others.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if t.Failed() {
			return // what leaks after a failure is most often the failure's own
		}
		if err := leftOver(leakPatience, before); err != nil {
			t.Error(err)
		}
	})
}

// Namespace returns a name that nobody else uses, valid as prefix of topics, groups and keys and as a schema name:
// a letter and 12 hexadecimal digits. What a test leaves under it on real servers is removed when the test ends.
func Namespace(t testing.TB) string {
	t.Helper()
	name := "t" + random(t, 6)
	t.Cleanup(func() { sweep(t, name) })
	return name
}

// patience is the least time in which Eventually gives up where it was given seconds: they are what an idle machine needs at the most.
const patience = time.Minute

// roundCounts bounds how much of a round of Eventually is held against what is waited for: a machine that stands still
// does nothing.
const roundCounts = 2 * time.Second

// Eventually calls check until it returns nil, and fails the test with its last error when timeout has passed, a minute
// at the least: that says that a test hangs, which a busy machine is not to say. Of each call and the pause after it,
// no more than roundCounts is counted. What promises a time is judged elsewhere: in synctest, by counts, by benchmarks.
// At least one call is made. Between two calls is a twentieth of the time that has passed, no less than the last one
// took and than 1 ms, no more than 25 ms unless a call takes longer, 100 ms at the most: what is waited for needs the
// processor more than who waits.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	if timeout >= time.Second {
		timeout = max(timeout, patience)
	}
	const least, most, mostOfAll = time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond
	passed := time.Duration(0)
	for {
		called := time.Now()
		err := check()
		if err == nil {
			return
		}
		took := time.Since(called)
		if passed+min(took, roundCounts) >= timeout {
			t.Fatalf("after %v still: %v", timeout, err)
		}
		pause := time.NewTimer(min(max(min(passed/20, most), took, least), mostOfAll))
		<-pause.C
		passed += min(time.Since(called), roundCounts)
	}
}

func random(t testing.TB, bytes int) string {
	t.Helper()
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		t.Fatalf("random name: %v", err)
	}
	return hex.EncodeToString(b)
}

func list(commaSeparated string) []string {
	var out []string
	for item := range strings.SplitSeq(commaSeparated, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
