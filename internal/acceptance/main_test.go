// Package acceptance judges weir from outside: it builds the program, runs it as a user would against Kafka, Redis and
// Postgres, kills it, and compares what history holds with oracles that share no code with it.
package acceptance

import (
	"os"
	"testing"

	"github.com/weirhq/weir/console/signin/signintest"
)

func TestMain(m *testing.M) {
	if console := os.Getenv(loadClientsEnv); console != "" {
		os.Exit(loadConsole(console))
	}
	os.Exit(signintest.MainWithWeir(m))
}
