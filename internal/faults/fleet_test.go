package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// install is one installation of weir.
type install struct {
	testbed.Workplace
	t      testing.TB
	stream *exactness.Stream
}

// newInstall writes a configuration, and runs weir migrate and weir rules apply. A source partition that waits for a server is idle: its
// events are not late while that takes less than the margin, a few minutes on a busy machine. History keeps every row, since the judge misses any:
// the long form has more episodes of a rule in a minute than history keeps unless told.
func newInstall(t testing.TB, stream *exactness.Stream, replication int) *install {
	t.Helper()
	in := configure(t, stream, replication, "detect: {idle_margin: 5m}\nhistory: {rows_per_minute: 0}\n")
	in.Weir("migrate")
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", rules), "--reason", "tests")
	return in
}

// configure writes a configuration; more is what it says besides.
func configure(t testing.TB, stream *exactness.Stream, replication int, more string) *install {
	t.Helper()
	in := &install{Workplace: testbed.NewWorkplace(t), t: t, stream: stream}
	in.Write("weir.yaml", fmt.Sprintf(`namespace: %s
kafka:
  brokers: [%s]
  replication: %d
  partitions: {requests: %d, keyed: %d, hits: %d}
postgres:
  url: %q
identity:
  device: {header: X-Device-Id, vouched: true}
http: {listen: "127.0.0.1:0"}
%s`, stream.Namespace, strings.Join(stream.Brokers, ", "), replication, stream.Requests, stream.Keyed, stream.Hits, stream.Postgres, more))
	return in
}

// The first two rules are over with every event but the load's last ones: each event of each source stands in the count of
// some episode, so that one which is lost, or counted twice, shows, whoever sent it.
const rules = `
id: all-by-ip
owner: tests
match: {method: [GET, POST]}
key: [ip]
limit: 0
algorithm: sliding-log
window: 5s
lateness: 5s
---
id: all-by-device
owner: tests
match: {method: [GET, POST]}
key: [device]
limit: 0
algorithm: sliding-log
window: 5s
lateness: 5s
---
id: by-ip
owner: edge
match: {}
key: [ip]
limit: 30
algorithm: sliding-log
window: 5s
lateness: 5s
---
id: by-device
owner: identity
match: {method: POST, path: /v1/tokens}
key: [device]
limit: 20
algorithm: sliding-log
window: 5s
lateness: 5s
---
id: by-user-and-ip
owner: identity
match: {method: POST}
key: [user, ip]
limit: 20
algorithm: sliding-log
window: 5s
lateness: 5s
---` + exactness.ProbeRule

// process runs one stage. Killed, it can be started again, as by whoever supervises it.
type process struct {
	in      *install
	stage   string
	name    string // its instance id; empty: none
	cmd     *exec.Cmd
	running *testbed.Running
}

// start runs a stage in the background.
func (in *install) start(stage string) *process {
	in.t.Helper()
	return in.startAs(stage, "")
}

// startAs runs a stage in the background, as a process with an instance id.
func (in *install) startAs(stage, name string) *process {
	in.t.Helper()
	p := &process{in: in, stage: stage, name: name}
	p.again()
	return p
}

func (p *process) again() {
	p.cmd = p.in.Command(context.Background(), "run", "--stages", p.stage)
	if p.name != "" {
		p.cmd.Env = append(p.cmd.Environ(), "WEIR_KAFKA_INSTANCE_ID="+p.name)
	}
	p.running = testbed.Run(p.in.t, p.cmd)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) {
	p.in.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.in.t.Fatalf("%s of the %s process: %v", s, p.stage, err)
	}
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	p.in.t.Helper()
	p.signal(syscall.SIGKILL)
	_ = p.running.Wait(workTimeout) // it was killed, which is what exec calls an error
	if p.running.Alive() == nil {
		p.in.t.Fatalf("the %s process outlives kill -9", p.stage)
	}
}

// freeze is SIGSTOP: the process keeps its connections and hears nothing. It goes on with the test's end at the latest.
func (p *process) freeze() {
	p.in.t.Helper()
	p.signal(syscall.SIGSTOP)
	frozen := p.cmd.Process
	p.in.t.Cleanup(func() { _ = frozen.Signal(syscall.SIGCONT) }) // fails when it has ended, which is as good
}

func (p *process) revive() { p.signal(syscall.SIGCONT) }

// said is everything that the process has logged.
func (p *process) said() string {
	p.in.t.Helper()
	text, err := os.ReadFile(p.running.Log())
	if err != nil {
		p.in.t.Fatal(err)
	}
	return string(text)
}

// assigned finds, in a line about a generation of a consumer group, the partitions of this member.
var assigned = regexp.MustCompile(`msg="consumer group generation".* partitions="?\[([0-9 ]*)\]`)

// owns says how many partitions the process was given in the newest generation that it has heard of.
func (p *process) owns() int {
	all := assigned.FindAllStringSubmatch(p.said(), -1)
	if len(all) == 0 {
		return 0
	}
	return len(strings.Fields(all[len(all)-1][1]))
}

// awaitShares waits until all partitions are shared out among the processes, and each has some.
func awaitShares(t testing.TB, partitions int, processes []*process) {
	t.Helper()
	testbed.Eventually(t, 2*time.Minute, func() error {
		sum := 0
		for _, p := range processes {
			if err := p.running.Alive(); err != nil {
				return err
			}
			n := p.owns()
			if n == 0 {
				return fmt.Errorf("a %s process has no partition yet", p.stage)
			}
			sum += n
		}
		if sum != partitions {
			return fmt.Errorf("%d of %d partitions of the %s stage are shared out", sum, partitions, processes[0].stage)
		}
		return nil
	})
}
