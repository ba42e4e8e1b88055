package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Kind is a kind of server. Its values are what the report calls them.
type Kind string

// The kinds of servers that testbed knows.
const (
	KafkaKind        Kind = "kafka"
	RedisKind        Kind = "redis"
	RedisClusterKind Kind = "redis-cluster"
	PostgresKind     Kind = "postgres"
)

// Env names the environment variable that points tests at a real server of this kind.
func (k Kind) Env() string {
	return "WEIR_TEST_" + strings.ToUpper(strings.ReplaceAll(string(k), "-", "_"))
}

// Source says what stood behind a test.
type Source string

// Embedded is a part inside the test process, or a private PostgreSQL that the test binary started; Real is a server
// named by the environment.
const (
	Embedded Source = "embedded"
	Real     Source = "real"
)

// Record appends one line to the file that WEIR_TEST_REPORT names: package, test, kind and source, with tabs between,
// and a second one when the test skips itself later. The functions that hand out servers call it; a test that starts a
// server by itself calls it directly. Without a report file it does nothing.
func Record(t testing.TB, kind Kind, source Source) {
	t.Helper()
	report(t, string(kind), string(source))
	t.Cleanup(func() {
		if t.Skipped() {
			report(t, string(kind), "skipped")
		}
	})
}

func report(t testing.TB, kind, source string) {
	t.Helper()
	path := os.Getenv("WEIR_TEST_REPORT")
	if path == "" {
		return
	}
	// One write of one short line with O_APPEND: test binaries that run at the same time do not mix their lines.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("WEIR_TEST_REPORT: %v", err)
	}
	binary := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	_, err = fmt.Fprintf(file, "%s\t%s\t%s\t%s\n", binary, t.Name(), kind, source)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Fatalf("WEIR_TEST_REPORT: %v", err)
	}
}

// configured returns the environment's server of this kind, recorded, or "" when the test is to use an embedded part.
func configured(t testing.TB, kind Kind) string {
	t.Helper()
	value := os.Getenv(kind.Env())
	if value != "" {
		Record(t, kind, Real)
		return value
	}
	if os.Getenv("WEIR_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("WEIR_TEST_REQUIRE_REAL=1, but %s is not set: no real %s to run against", kind.Env(), kind)
	}
	return ""
}
