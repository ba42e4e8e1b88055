package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// install is one installation of weir: a namespace on the servers, a configuration file, a database.
type install struct {
	testbed.Workplace
	t        testing.TB
	ns       string
	kafka    []string
	postgres string
	gate     string // host:port
}

// newInstall writes a configuration and runs weir migrate. redis is what the configuration's redis section says,
// proxies how many of them append to X-Forwarded-For, more are further lines of the configuration.
func newInstall(t testing.TB, partitions [3]int, redis string, proxies int, more ...string) *install {
	t.Helper()
	ns := testbed.Namespace(t)
	in := &install{
		Workplace: testbed.NewWorkplace(t), t: t, ns: ns, kafka: testbed.Kafka(t), postgres: historytest.Migrated(t, ns), gate: fmt.Sprint("127.0.0.1:", testbed.FreePort(t)),
	}
	in.Write("weir.yaml", fmt.Sprintf(`namespace: %s
kafka:
  brokers: [%s]
  partitions: {requests: %d, keyed: %d, hits: %d}
redis: %s
postgres:
  url: %q
identity:
  ip: {trusted_proxies: %d}
  device: {header: X-Device-Id, vouched: true}
http: {listen: "127.0.0.1:0"}
gate: {listen: %q}
%s
`, in.ns, strings.Join(in.kafka, ", "), partitions[0], partitions[1], partitions[2], redis, in.postgres, proxies, in.gate, strings.Join(more, "\n")))
	in.Weir("migrate")
	return in
}

// stream is the installation as its judges see it.
func (in *install) stream(partitions [3]int) *exactness.Stream {
	return &exactness.Stream{
		Brokers: in.kafka, Postgres: in.postgres, Namespace: in.ns,
		Requests: partitions[0], Keyed: partitions[1], Hits: partitions[2],
	}
}

// json runs one command with --output json and decodes what it prints.
func (in *install) json(to any, args ...string) {
	in.t.Helper()
	out := in.Weir(append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), to); err != nil {
		in.t.Fatalf("weir %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}

// process is weir at work.
type process struct {
	*testbed.Running
	t   testing.TB
	cmd *exec.Cmd
}

// start runs a command in the background, until the test ends at the latest.
func (in *install) start(args ...string) *process {
	in.t.Helper()
	command := in.Command(context.Background(), args...)
	return &process{testbed.Run(in.t, command), in.t, command}
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails when it has ended already, which is as good
	_ = p.Wait(time.Minute)                   // it was killed, which is what exec calls an error
	if p.Alive() == nil {
		p.t.Error("a process outlives kill -9")
	}
}

// stop is Ctrl-C: weir must drain and end by itself, with exit code 0.
func (p *process) stop() {
	p.t.Helper()
	watch, told := testbed.StartStopwatch(), time.Now()
	defer watch.Stop()
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	if err := p.Wait(time.Minute); err != nil && !watch.Excuses(told, p.Said()) {
		p.t.Errorf("after an interrupt: %v\n%s", err, p.Said())
	}
}

// query gives every row of a statement to scan.
func (in *install) query(sql string, scan func(rows pgx.Rows) error) {
	in.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, in.postgres)
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, strings.ReplaceAll(sql, "{ns}", in.ns))
	if err != nil {
		in.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			in.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		in.t.Fatal(err)
	}
}
