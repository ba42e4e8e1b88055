// Package faults kills, freezes and restarts real processes of weir, and the servers that they work with, under load, and
// has the judges of internal/exactness say whether any event was lost, counted twice, or made up.
//
// TestFaults has three forms, each a bounded time:
//
//	full      WEIR_TEST_FAULTS=full, make test-faults: half a million events a fault, one fault after the other
//	short     against real servers, as in make test: fewer events and instants, faults side by side
//	embedded  with nothing running: the same on the embedded Kafka, where it can do what the fault needs
//
// docs/faults.md says what is done, and holds the table of a full run.
package faults

import (
	"os"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }
