package boardtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.MainWithWeir(m)) }

// reader is the role that Grafana asks PostgreSQL as.
const reader = "weir_read"

// installation is weir dev with its own servers, three gates and a shipper beside it, each a process of its own.
type installation struct {
	t       *testing.T
	dir     string
	dev     *testbed.Running
	metrics map[string]string // addresses, by role
	gateway string            // address of the demo's
	gates   []weirGate
	shipper io.Writer // takes lines for weir ingest
	began   time.Time

	schema          string
	postgres, redis string // URLs, of who may do everything
	brokers         []string
}

// startInstallation starts weir dev, whose demo leaves its rules in shadow, and what stands beside it.
func startInstallation(t *testing.T) *installation {
	t.Helper()
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t)) }
	in := &installation{
		t: t, dir: testbed.Folder(t), began: time.Now(),
		gates:   []weirGate{{"gate", address()}, {"observer", address()}, {"blind", address()}},
		metrics: map[string]string{},
	}
	for _, role := range []string{"run", "gate", "observer", "blind", "shipper"} {
		in.metrics[role] = address()
	}
	// With the usual minute, event time would go on for so long after the last event, and episodes end only then.
	config := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, config, "detect: {idle_margin: 5s}\n")
	in.dev = in.run("run", in.command("dev", "--config", config, "--data-dir", in.dir, "--http-listen", in.metrics["run"],
		"--console-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0", "--demo-seconds", "20", "--no-promote"))
	in.gateway = in.said(`gateway +http://(\S+)`)
	var installed struct {
		Namespace string
		Postgres  struct{ URL string }
		Redis     struct{ URL string }
		Kafka     struct{ Brokers []string }
	}
	text, err := os.ReadFile(in.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &installed); err != nil {
		t.Fatal(err)
	}
	in.schema, in.brokers = installed.Namespace, installed.Kafka.Brokers
	in.postgres, in.redis = installed.Postgres.URL, installed.Redis.URL
	for _, g := range in.gates {
		args := []string{"gate", "--config", in.config(), "--listen", g.address, "--http-listen", in.metrics[g.role]}
		switch g.role {
		case "observer":
			args = append(args, "--observe")
		case "blind": // nobody listens there
			args = append(args, "--redis-url", "redis://"+address()+"/0")
		}
		in.serves(in.run(g.role, in.command(args...)), g.address)
	}
	in.startShipper()
	return in
}

// shippedRule is the rule that counts none of what is shipped.
const shippedRule = "shipped"

// decide puts the rules of a demo that is judged in the place of those that people watch, and promotes them: their
// blocks are over within seconds. It adds rules that do not stand in the demo's way: one stays in shadow, one
// blocks, one counts nothing, and what they find is still so when the load is over. The rule that only people watch
// finds nobody any more.
func (in *installation) decide() {
	in.t.Helper()
	watched := strings.Split(string(demo.WatchedRules()), "\n---\n")
	unasked := strings.Replace(watched[len(watched)-1], "/v1/guest-tokens", "/v1/nobody-asks", 1)
	all := []string{string(demo.Rules()), unasked}
	for _, r := range []struct{ id, path, more string }{
		{"watched-trailers", "/v1/trailers/*", "limit: 2\ncandidate: {limit: 4}\nallow: [office]"},
		{"held-trailers", "/v1/trailers/*", "limit: 3\ncandidate: {limit: 2}"},
		{shippedRule, "/v1/shipped", "limit: 2"},
	} {
		all = append(all, fmt.Sprintf("id: %s\nowner: trailers\nmatch: {method: GET, path: %s}\nkey: [ip]\n"+
			"near: 0.6\nwindow: 10m\nlateness: 3s\nblock: {ttl: 10m}\n%s\n", r.id, r.path, r.more))
	}
	// One of the five who ask for trailers passes, where a rule names the list.
	all = append(all, "kind: allow\nid: office\nowner: trailers\n"+
		"entries: [{cidr: 198.51.100.5/32, reason: they make the trailers}]\n")
	file := filepath.Join(in.t.TempDir(), "rules.yaml")
	write(in.t, file, strings.Join(all, "\n---\n"))
	in.weir("rules", "apply", "-f", file, "--by", "anna", "--reason", "blocks of seconds")
	for _, id := range append(demo.RuleIDs(), "held-trailers") {
		in.weir("rules", "promote", id, "--by", "anna", "--reason", "seen enough", "--yes", "--override", "tests")
	}
}

func (in *installation) config() string { return filepath.Join(in.dir, "weir.yaml") }

func (in *installation) command(args ...string) *exec.Cmd {
	c := exec.Command(testbed.Weir(), args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") { // what a user may have set
			c.Env = append(c.Env, kv)
		}
	}
	return c
}

func (in *installation) run(role string, command *exec.Cmd) *testbed.Running {
	in.t.Helper()
	in.t.Logf("%s: %s", role, strings.Join(command.Args[1:], " "))
	return testbed.Run(in.t, command)
}

// weir runs a command to its end.
func (in *installation) weir(args ...string) {
	in.t.Helper()
	if out, err := in.command(append([]string{"--config", in.config()}, args...)...).CombinedOutput(); err != nil {
		in.t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// serves waits until a gate takes connections.
func (in *installation) serves(gate *testbed.Running, address string) {
	in.t.Helper()
	testbed.Eventually(in.t, time.Minute, func() error {
		if err := gate.Alive(); err != nil {
			in.t.Fatal(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// said waits for what weir dev says, and gives the last group of the pattern.
func (in *installation) said(pattern string) string {
	in.t.Helper()
	wanted := regexp.MustCompile(pattern)
	var found []string
	testbed.Eventually(in.t, time.Minute, func() error {
		if err := in.dev.Alive(); err != nil {
			in.t.Fatal(err)
		}
		text, err := os.ReadFile(in.dev.Log())
		if err != nil {
			return err
		}
		if found = wanted.FindStringSubmatch(string(text)); found == nil {
			return fmt.Errorf("weir dev has not said %s", pattern)
		}
		return nil
	})
	return found[len(found)-1]
}

// connect lets a role log in, and does so.
func (in *installation) connect(role string) *pgx.Conn {
	in.t.Helper()
	ctx := context.WithoutCancel(in.t.Context())
	admin, err := pgx.Connect(ctx, in.postgres)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = admin.Close(ctx) })
	if role == "" {
		return admin
	}
	if _, err := admin.Exec(ctx, "ALTER ROLE "+role+" LOGIN PASSWORD 'look-only'"); err != nil {
		in.t.Fatal(err)
	}
	config := admin.Config().Copy()
	config.User, config.Password = role, "look-only"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = conn.Close(ctx) })
	return conn
}
