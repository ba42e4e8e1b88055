package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/testbed"
)

const backupRules = `id: tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [device]
limit: 3
window: 60s
block: {ttl: 30m}
`

// clerk runs weir, and the commands of the document, for one installation.
type clerk struct {
	testbed.Workplace
	t                     *testing.T
	namespace, url, redis string
	brokers               []string
	folder                string
}

func newClerk(t *testing.T) *clerk {
	c := &clerk{t: t, Workplace: testbed.NewWorkplace(t), namespace: testbed.Namespace(t), url: testbed.Postgres(t), redis: testbed.Redis(t), brokers: testbed.Kafka(t), folder: t.TempDir()}
	c.Write("weir.yaml", fmt.Sprintf("namespace: %s\nkafka:\n  brokers: [%q]\n  replication: 1\n  partitions: {requests: 2, keyed: 4, hits: 2}\nidentity: {device: {vouched: true}}\nredis:\n  url: %q\npostgres:\n  url: %q\n",
		c.namespace, strings.Join(c.brokers, `", "`), c.redis, c.url))
	return c
}

// shell runs a block of the document as somebody would who has set WEIR_POSTGRES_URL; the schema is that of the test.
func (c *clerk) shell(block string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if strings.Count(block, "weir.dump") == 0 && !strings.Contains(block, "weir migrate") {
		c.t.Fatalf("this is no command of a backup:\n%s", block)
	}
	command := c.Command(ctx)
	bash := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(block, "--schema=weir", "--schema="+c.namespace))
	bash.Dir = c.folder
	bash.Env = append(command.Env, "WEIR_POSTGRES_URL="+c.url, "PATH="+filepath.Dir(c.program())+":"+os.Getenv("PATH"))
	if said, err := bash.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s\n%s", err, block, said)
	}
}

// program is a link to the program under test, under the name by which people call it.
func (c *clerk) program() string {
	c.t.Helper()
	path := filepath.Join(c.folder, "bin", "weir")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		if err := os.Symlink(testbed.Weir(), path); err != nil {
			c.t.Fatal(err)
		}
	}
	return path
}

// run starts all stages; the returned function ends them in good order.
func (c *clerk) run() *testbed.Running {
	c.t.Helper()
	return testbed.Run(c.t, c.Command(context.Background(), "run", "--http-listen", fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(c.t))))
}

// abuse writes so many requests of a device into Kafka, a moment apart, as of now: as a gateway does, whatever is away.
func (c *clerk) abuse(device string, n int) {
	c.t.Helper()
	gateway, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.DefaultProduceTopic(c.namespace+".requests"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer gateway.Close()
	for i := range n {
		event := fmt.Sprintf(`{"v":1,"time":%q,"ip":"198.51.100.7","device":%q,"method":"POST","path":"/v1/guest-tokens","status":200}`,
			time.Now().Add(time.Duration(i-n)*time.Millisecond).UTC().Format(time.RFC3339Nano), device)
		if err := gateway.ProduceSync(c.t.Context(), kgo.StringRecord(event)).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
}

type episode struct {
	ID     string `json:"id"`
	Rule   string `json:"rule"`
	Events int64  `json:"events"`
}

// hits are the episodes in history.
func (c *clerk) hits() []episode {
	c.t.Helper()
	var all []episode
	out := c.Weir("history", "hits", "--output", "json", "--since", "1h")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return all
}

// awaitBlocked waits until Redis holds a block of each device, and no other.
func (c *clerk) awaitBlocked(devices ...string) {
	c.t.Helper()
	testbed.Eventually(c.t, time.Minute, func() error {
		out := c.Weir("blocks", "list", "--output", "json")
		for _, d := range devices {
			if strings.Count(out, `"`+d+`"`)+strings.Count(out, "device="+d+`"`) == 0 {
				return fmt.Errorf("%s is not blocked: %s", d, out)
			}
		}
		var all []any
		if err := json.Unmarshal([]byte(out), &all); err == nil && len(all) != len(devices) {
			return fmt.Errorf("%d blocks: %s", len(all), out)
		}
		return nil
	})
}

func (c *clerk) awaitHits(n int) []episode {
	c.t.Helper()
	var got []episode
	testbed.Eventually(c.t, time.Minute, func() error {
		if got = c.hits(); len(got) != n {
			return fmt.Errorf("%d hits in history, want %d", len(got), n)
		}
		return nil
	})
	return got
}

// kept is what history, rules and decisions are, to be compared.
func (c *clerk) kept() string {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var all []string
	for _, what := range []string{"hits_v", "block_decisions_v", "rules_v", "rule_versions_v", "audit_v", "secrets", "routing_versions"} {
		var n int
		var digest string
		err := conn.QueryRow(c.t.Context(), fmt.Sprintf("SELECT count(*), coalesce(md5(string_agg(r::text, ' ' ORDER BY r::text)), '') FROM %q.%s r", c.namespace, what)).Scan(&n, &digest)
		if err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
		if n == 0 {
			c.t.Errorf("%s is empty, so that nothing is shown of it", what)
		}
		all = append(all, fmt.Sprintf("%s: %d rows, %s", what, n, digest))
	}
	return strings.Join(all, "\n")
}

// disaster takes the schema away.
func (c *clerk) disaster() {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(c.t.Context(), fmt.Sprintf("DROP SCHEMA %q CASCADE", c.namespace)); err != nil {
		c.t.Fatal(err)
	}
}

// The commands of docs/operations.md save what PostgreSQL has, and bring it back: afterwards history is the same row by row, the stages go on where they
// were, who was blocked is, and what came after the backup, stored or not, is found once.
func TestBackupAndRestore(t *testing.T) {
	testbed.Program(t, "pg_dump")
	testbed.Program(t, "pg_restore")
	save, restore := testbed.Documented(t, "operations.md", "Backup"), testbed.Documented(t, "operations.md", "Restore")
	if len(save) != 1 || len(restore) != 1 {
		t.Fatalf("docs/operations.md shows %d blocks that save and %d that restore; want one of each", len(save), len(restore))
	}
	c := newClerk(t)
	c.Weir("migrate")
	c.Weir("rules", "apply", "-f", c.Write("tokens.yaml", backupRules), "--reason", "first rules")
	c.Weir("rules", "promote", "tokens", "--reason", "tests", "--override", "tests", "--yes")
	stages := c.run()
	c.abuse("tv-1", 6)
	c.awaitHits(1)
	c.awaitBlocked("tv-1")
	testbed.Eventually(t, time.Minute, func() error { // until the episode is written to its end
		if h := c.hits(); h[0].Events != 3 {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	stages.End()
	c.shell(save[0]) // of an installation at rest, so that every row can be compared
	if said, err := exec.Command("pg_restore", "--list", filepath.Join(c.folder, "weir.dump")).CombinedOutput(); err != nil || !strings.Contains(string(said), "hits_by_day") {
		t.Fatalf("what was saved: %v\n%s", err, said)
	}
	before := c.kept()
	stages = c.run()
	c.abuse("tv-2", 5) // after the backup
	c.awaitHits(2)
	c.awaitBlocked("tv-1", "tv-2")
	stages.End()

	c.disaster()
	c.abuse("tv-3", 5) // Kafka takes what comes meanwhile
	c.shell(restore[0])
	// What is restored goes on with numbers above all that were given since: migrate says so by one entry of the
	// audit trail and one routing version, and leaves all else as it was.
	numbered := func(kept string) string {
		return regexp.MustCompile(`(?m)^(audit_v|routing_versions): .*$`).ReplaceAllString(kept, "$1: another one")
	}
	if after := c.kept(); after == before || numbered(after) != numbered(before) {
		t.Errorf("restored is\n%s\nwant, but for audit_v and routing_versions,\n%s", after, before)
	}
	c.run()
	c.awaitHits(3)
	c.awaitBlocked("tv-1", "tv-2", "tv-3")
	c.abuse("tv-4", 4)
	hits := c.awaitHits(4)
	c.awaitBlocked("tv-1", "tv-2", "tv-3", "tv-4")
	ids, sum := map[string]bool{}, int64(0)
	testbed.Eventually(t, time.Minute, func() error {
		hits = c.hits()
		ids, sum = map[string]bool{}, 0
		for _, h := range hits {
			ids[h.ID], sum = true, sum+h.Events
		}
		if len(hits) != 4 || len(ids) != 4 || sum != 3+2+2+1 {
			return fmt.Errorf("%+v", hits)
		}
		return nil
	})
	testbed.Eventually(t, time.Minute, func() error { // each block has its decision, that of after the backup, too
		if n := c.blocked(); n != 4 {
			return fmt.Errorf("%d sources have a block in history, want 4", n)
		}
		return nil
	})
}

// blocked counts the sources of which history says that they are blocked.
func (c *clerk) blocked() (n int) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := conn.QueryRow(c.t.Context(), fmt.Sprintf("SELECT count(*) FROM %q.blocks_v", c.namespace)).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}
