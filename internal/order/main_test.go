package order

import (
	"flag"
	"os"
	"testing"
)

// TestMain tries fewer cases under the race detector, which has nothing to find here: what is tested starts no goroutine.
func TestMain(m *testing.M) {
	flag.Parse()
	checks := flag.Lookup("rapid.checks")
	if raceDetector && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("15"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
