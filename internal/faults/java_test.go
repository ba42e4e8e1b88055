package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// java are brokers of Apache Kafka.
type java struct {
	t        testing.TB
	home     string // folder with the jars
	dirs     []string
	ports    []int
	process  []*os.Process
	programs []*testbed.Running
}

var _ brokers = (*java)(nil)

func (j *java) addresses() []string {
	var all []string
	for _, port := range j.ports {
		all = append(all, fmt.Sprint("127.0.0.1:", port))
	}
	return all
}

// startJava starts a cluster of n brokers, each of which is a controller too: three keep their quorum when one is killed.
func startJava(t testing.TB, n int) *java {
	t.Helper()
	testbed.Record(t, testbed.KafkaKind, testbed.Real)
	j := &java{t: t, home: os.Getenv(homeVariable), process: make([]*os.Process, n), programs: make([]*testbed.Running, n)}
	var controllers, voters []string
	for id := range n {
		j.dirs, j.ports = append(j.dirs, t.TempDir()), append(j.ports, testbed.FreePort(t))
		controllers = append(controllers, fmt.Sprint("127.0.0.1:", testbed.FreePort(t)))
		voters = append(voters, fmt.Sprintf("%d@%s", id, controllers[id]))
	}
	const cluster = "d2Vpci1mYXVsdHMtdGVzdA" // any 16 bytes do
	for id := range n {
		j.configure(id, controllers[id], strings.Join(voters, ","))
		if out, err := j.command("kafka.tools.StorageTool", "format", "-t", cluster, "-c", j.properties(id)).CombinedOutput(); err != nil {
			t.Fatalf("formatting the folder of a broker: %v\n%s", err, out)
		}
	}
	for id := range n {
		j.launch(id)
	}
	for id := range n {
		j.ready(id)
	}
	return j
}

func (j *java) properties(id int) string { return filepath.Join(j.dirs[id], "server.properties") }

// configure writes what scripts/servers.sh writes for its one broker, with as many replicas as there are brokers.
func (j *java) configure(id int, controller, voters string) {
	j.t.Helper()
	n := len(j.programs)
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=%[1]d
controller.quorum.voters=%[2]s
listeners=PLAINTEXT://127.0.0.1:%[3]d,CONTROLLER://%[4]s
advertised.listeners=PLAINTEXT://127.0.0.1:%[3]d
controller.listener.names=CONTROLLER
log.dirs=%[5]s/data
auto.create.topics.enable=false
default.replication.factor=%[6]d
min.insync.replicas=%[7]d
offsets.topic.replication.factor=%[6]d
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=%[6]d
transaction.state.log.min.isr=%[7]d
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=%[6]d
share.coordinator.state.topic.min.isr=%[7]d
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=500
log.index.size.max.bytes=1048576
`, id, voters, j.ports[id], controller, j.dirs[id], n, min(n, 2))
	if err := os.WriteFile(j.properties(id), []byte(text), 0o644); err != nil {
		j.t.Fatal(err)
	}
}

func (j *java) command(class string, args ...string) *exec.Cmd {
	all := []string{
		"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(j.home, "*"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.log.kafka.server=info", class,
	}
	return exec.Command("java", append(all, args...)...)
}

func (j *java) launch(id int) {
	j.t.Helper()
	cmd := j.command("kafka.Kafka", j.properties(id))
	j.programs[id] = testbed.Run(j.t, cmd)
	j.process[id] = cmd.Process
}

func (j *java) ready(id int) {
	j.t.Helper()
	testbed.Eventually(j.t, 2*time.Minute, func() error {
		if err := j.programs[id].Alive(); err != nil {
			return err
		}
		text, err := os.ReadFile(j.programs[id].Log())
		if err == nil && !strings.Contains(string(text), "Kafka Server started") {
			err = fmt.Errorf("broker %d is starting", id)
		}
		return err
	})
}

func (j *java) start(id int) {
	j.t.Helper()
	j.launch(id)
	j.ready(id)
}

func (j *java) stop(id int, kill bool) {
	j.t.Helper()
	if kill {
		if err := j.process[id].Signal(syscall.SIGKILL); err != nil {
			j.t.Fatalf("kill -9 of broker %d: %v", id, err)
		}
	}
	j.programs[id].End()
}
