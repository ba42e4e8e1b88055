package testbed

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// VerifyNoLeaks fails the test, unless it has failed already, if goroutines that began after this call are left when the
// clean-ups have run that are registered later.
func VerifyNoLeaks(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := leaked(before); err != nil {
			t.Error(err)
		}
	})
}

// leakPatience is how long goroutines may take to end that have been told to: goleak alone gives them half a second, which
// is less than a busy machine may keep the process waiting.
const leakPatience = 20 * time.Second

// leaked waits until there are no goroutines but those that options leave out; else its error shows them.
func leaked(options ...goleak.Option) error {
	for begun := time.Now(); ; {
		err := goleak.Find(options...) // looks again and again for half a second
		if err == nil || time.Since(begun) > leakPatience {
			return err
		}
	}
}
