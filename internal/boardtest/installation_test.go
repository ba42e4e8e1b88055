package boardtest

import (
	"context"
	"encoding/json"
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

// installation is weir dev with its own servers, and a weir gate beside it, each a process of its own.
type installation struct {
	t         *testing.T
	dir       string
	processes map[string]*process
	dev       *testbed.Running
	metrics   map[string]string // addresses, by role
	gateway   string            // address of the demo's
	gates     []weirGate
	shipper   io.Writer // takes lines for weir ingest
	redis     string    // URL
	brokers   []string
	began     time.Time
	schema    string
	postgres  string // URL, of who may do everything
	version   string // of the program
}

// startInstallation starts weir dev, whose demo leaves its rules in shadow, and what stands beside it.
func startInstallation(t *testing.T) *installation {
	t.Helper()
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", testbed.FreePort(t)) }
	in := &installation{
		t: t, dir: testbed.Folder(t), began: time.Now(), processes: map[string]*process{},
		gates:   []weirGate{{role: "gate", address: address()}, {role: "observer", address: address()}, {role: "blind", address: address()}},
		metrics: map[string]string{"run": address(), "gate": address(), "observer": address(), "blind": address(), "shipper": address()},
	}
	// With the usual minute, event time would go on for so long after the last event, and episodes end only then.
	config := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, config, fmt.Sprintf("detect: {idle_margin: %ds}\n", idleMargin))
	in.dev = in.start("run", "dev", "--config", config, "--data-dir", in.dir, "--console-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
		"--http-listen", in.metrics["run"], "--demo-seconds", "20", "--no-promote")
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
	in.schema, in.postgres, in.redis, in.brokers = installed.Namespace, installed.Postgres.URL, installed.Redis.URL, installed.Kafka.Brokers
	for _, g := range in.gates {
		args := []string{"gate", "--config", in.config(), "--listen", g.address, "--http-listen", in.metrics[g.role]}
		switch g.role {
		case "observer":
			args = append(args, "--observe")
		case "blind": // nobody listens there
			args = append(args, "--redis-url", "redis://"+address()+"/0")
		}
		in.start(g.role, args...)
	}
	in.version = in.built()
	for _, g := range in.gates {
		in.serves(g)
	}
	in.startShipper()
	return in
}

// decide puts the rules of a demo that is judged in the place of those that people watch, and promotes them: their blocks are over when the
// stream stands still, and what is counted then does not change while it is compared. The rule that only people watch finds nobody any more. It adds two rules that do not stand in the demo's way:
// one stays in shadow, one blocks, and what they find is still so when the load is over.
func (in *installation) decide() {
	in.t.Helper()
	judged := filepath.Join(in.t.TempDir(), "judged.yaml")
	watched := strings.Split(string(demo.WatchedRules()), "\n---\n")
	write(in.t, judged, string(demo.Rules())+"\n---\n"+strings.Replace(watched[len(watched)-1], "/v1/guest-tokens", "/v1/nobody-asks", 1))
	in.weir("rules", "apply", "-f", judged, "--by", "anna", "--reason", "blocks of seconds")
	for _, id := range demo.RuleIDs() {
		in.weir("rules", "promote", id, "--by", "anna", "--reason", "seen enough", "--yes", "--override", "tests")
	}
	rules := filepath.Join(in.t.TempDir(), "trailers.yaml")
	write(in.t, rules, fmt.Sprintf(trailers, "watched", 2, 4)+"allow: ["+officeList+"]\n---\n"+fmt.Sprintf(trailers, "held", 3, 2)+"---\n"+office)
	in.weir("rules", "apply", "-f", rules, "--by", "anna", "--reason", "nobody wants that many trailers")
	in.weir("rules", "promote", "held-trailers", "--by", "anna", "--reason", "seen enough", "--yes", "--override", "tests")
}

const trailers = `id: %s-trailers
owner: trailers
match:
  method: GET
  path: /v1/trailers/*
key: [ip]
limit: %d
near: 0.6
candidate:
  limit: %d
window: 10m
lateness: 3s
block:
  ttl: 10m
`

// office lets one of the five who ask for trailers pass, where a rule names the list.
const (
	officeList    = "office"
	officeAddress = "198.51.100.5"
	office        = `kind: allow
id: ` + officeList + `
owner: trailers
entries:
  - cidr: ` + officeAddress + `/32
    reason: they make the trailers
`
)

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

func (in *installation) start(role string, args ...string) *testbed.Running {
	in.t.Helper()
	return in.run(role, in.command(args...))
}

func (in *installation) run(role string, command *exec.Cmd) *testbed.Running {
	in.t.Helper()
	p := &process{after: time.Now()}
	p.Running = testbed.Run(in.t, command)
	p.before = time.Now()
	in.processes[role] = p
	return p.Running
}

// weir runs a command to its end.
func (in *installation) weir(args ...string) {
	in.t.Helper()
	if out, err := in.command(append([]string{"--config", in.config()}, args...)...).CombinedOutput(); err != nil {
		in.t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// built is the version that the program says it is.
func (in *installation) built() string {
	in.t.Helper()
	out, err := in.command("version", "--output", "json").Output()
	if err != nil {
		in.t.Fatal(err)
	}
	var said struct{ Version string }
	if err := json.Unmarshal(out, &said); err != nil || said.Version == "" {
		in.t.Fatalf("weir version says %s (%v)", out, err)
	}
	return said.Version
}

// serves waits until a gate takes connections.
func (in *installation) serves(g weirGate) {
	in.t.Helper()
	p := in.processes[g.role]
	testbed.Eventually(in.t, time.Minute, func() error {
		if err := p.Alive(); err != nil {
			in.t.Fatal(err)
		}
		conn, err := net.Dial("tcp", g.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	p.serves = time.Now()
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
