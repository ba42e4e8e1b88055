package testbed

import (
	"os"
	"testing"
)

// AtNight reports whether this is the long run, `make test-night`. A test with a short and a long form asks which one
// is wanted.
func AtNight() bool { return os.Getenv("WEIR_TEST_NIGHT") != "" }

// Night leaves a test to the long run, and says why a landing does not need it. It is the test's first statement:
// internal/arch tells by it which of the two runs has the test.
func Night(t testing.TB, reason string) {
	t.Helper()
	if !AtNight() {
		t.Skipf("night: %s (WEIR_TEST_NIGHT=1 runs it)", reason)
	}
}
