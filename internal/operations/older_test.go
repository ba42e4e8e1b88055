package operations

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// A dump that is older than a change of rules comes back while Kafka has records and commits of that change: the stages
// go on by themselves, tell of what no rule counts, and count and block what comes by the rules of the dump, until they
// are applied again. What was found meanwhile is in history again.
func TestRestoreFromADumpThatIsOlderThanAnEdit(t *testing.T) {
	testbed.Program(t, "pg_dump")
	testbed.Program(t, "pg_restore")
	save, restore := testbed.Documented(t, "operations.md", "Backup"), testbed.Documented(t, "operations.md", "Restore")
	c := newClerk(t)
	c.Weir("migrate")
	c.Weir("rules", "apply", "-f", c.Write("tokens.yaml", backupRules), "--reason", "first rules")
	c.Weir("rules", "promote", "tokens", "--reason", "tests", "--override", "tests", "--yes")
	stages := c.run()
	c.abuse("tv-1", 6)
	c.awaitBlocked("tv-1")
	stages.End()
	c.shell(save[0])

	slow := strings.NewReplacer("id: tokens", "id: slow", "limit: 3", "limit: 2").Replace(backupRules)
	edited := c.Write("slow.yaml", slow)
	c.Weir("rules", "apply", "-f", edited, "--reason", "since the dump")
	stages = c.run()
	c.abuse("tv-2", 5) // by both rules, of a routing version that will be lost
	c.awaitHits(3)
	stages.End()

	c.disaster()
	c.abuse("tv-3", 5)
	c.shell(restore[0])
	c.run()
	c.abuse("tv-4", 5)
	c.awaitBlocked("tv-1", "tv-2", "tv-3", "tv-4") // tv-2 for as long as its block says
	testbed.Eventually(t, time.Minute, func() error {
		if said := c.Weir("partitions", "list", "--stopped"); strings.Contains(said, "halted") ||
			strings.Contains(said, "refused") {
			return fmt.Errorf("stopped: %s", said)
		}
		if n, lost := c.lost(), "the rule store has lost routing version"; n == 0 {
			return fmt.Errorf("no loss says %q", lost)
		}
		return nil
	})
	slowHits := func() (n int) {
		for _, h := range c.hits() {
			if h.Rule == "slow" {
				n++
			}
		}
		return n
	}
	// RECORD stores again what it had stored; nobody else is found by a rule that the store has lost
	if n := slowHits(); n != 1 {
		t.Errorf("%d hits of a rule that the store has lost, want that of tv-2, which was found before", n)
	}
	c.Weir("rules", "apply", "-f", edited, "--reason", "once more")
	testbed.Eventually(t, time.Minute, func() error {
		c.abuse("tv-5", 3)
		if slowHits() > 1 {
			return nil
		}
		return fmt.Errorf("no hit of the rule that was applied again")
	})
}

// lost counts the losses that tell of a lost routing version.
func (c *clerk) lost() (n int) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	statement := fmt.Sprintf("SELECT count(*) FROM %q.losses_v WHERE reason LIKE 'the rule store has lost routing "+
		"version%%'",
		c.namespace)
	if err := conn.QueryRow(c.t.Context(), statement).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}
