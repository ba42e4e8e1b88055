package secured

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// The users, and how each signs in to Kafka.
func mechanisms() map[string]string {
	return map[string]string{
		"migrate": "plain", "ingest": "scram-sha-256", "route": "scram-sha-512", "detect": "scram-sha-256", "record": "plain", "enforce": "scram-sha-512",
		"gate": "plain", "console": "scram-sha-512", "operator": "plain",
	}
}

// installation is weir on servers that let in only whom they know.
type installation struct {
	testbed.Workplace
	t        *testing.T
	trust    *authority
	brokers  *brokers
	redis    *redisServer
	postgres *postgres
}

func newInstallation(t *testing.T, d *document) *installation {
	t.Helper()
	in := &installation{Workplace: testbed.NewWorkplace(t), t: t, trust: newAuthority(t)}
	var plain []string
	scram := map[string]int8{}
	for role, mechanism := range mechanisms() {
		switch mechanism {
		case "plain":
			plain = append(plain, "weir-"+role)
		case "scram-sha-256":
			scram["weir-"+role] = 1
		default:
			scram["weir-"+role] = 2
		}
	}
	in.brokers = startBrokers(t, in.trust, plain)
	for user, mechanism := range scram {
		in.brokers.addScram(user, mechanism)
	}
	in.brokers.allow(d.kafka)
	in.redis = startRedis(t, in.trust, d.redis)
	in.postgres = startPostgres(t, in.trust)
	for role := range mechanisms() {
		in.postgres.do(in.postgres.admin, fmt.Sprintf(`CREATE ROLE weir_%s LOGIN PASSWORD '%s'`, role, secret))
	}
	in.postgres.do(in.postgres.admin, `CREATE DATABASE weir OWNER weir_migrate`)
	in.Write("weir.yaml", fmt.Sprintf(`namespace: weir
kafka:
  brokers: [%s]
  replication: 2
  partitions: {requests: 2, keyed: 4, hits: 2}
  tls: {enabled: true, ca_file: %q}
redis:
  tls: {enabled: true, ca_file: %q}
identity: {device: {header: X-Device-Id, vouched: true}}
console:
  tokens: [{name: test, role: admin, sha256: %x, expires: 2099-01-31}]
http: {listen: "127.0.0.1:0"}
`, strings.Join(in.brokers.addresses, ", "), in.trust.file, in.trust.file, sha256.Sum256([]byte(secret))))
	return in
}

// as is a command of weir's, run by a process that is who its role is; more are variables that go before.
func (in *installation) as(ctx context.Context, role string, more []string, args ...string) *exec.Cmd {
	owner := role
	if role == "record" { // which makes and drops tables
		owner = "migrate"
	}
	c := in.Command(ctx, args...)
	c.Env = append(c.Environ(), "WEIR_KAFKA_SASL_MECHANISM="+mechanisms()[role], "WEIR_KAFKA_SASL_USERNAME=weir-"+role, "WEIR_KAFKA_SASL_PASSWORD="+secret,
		fmt.Sprintf("WEIR_REDIS_URL=redis://weir-%s:%s@%s/0", role, secret, in.redis.address), "WEIR_POSTGRES_URL="+in.postgres.of("weir_"+owner, "weir"))
	c.Env = append(c.Env, more...)
	return c
}

// run runs a process in the background.
func (in *installation) run(role string, args ...string) *testbed.Running {
	in.t.Helper()
	return testbed.Run(in.t, in.as(context.Background(), role, nil, args...))
}

// do runs a command to its end and gives what it prints.
func (in *installation) do(role string, args ...string) string {
	in.t.Helper()
	said, err := in.try(role, nil, args...)
	if err != nil {
		in.t.Fatalf("weir %s as %s: %v\n%s", strings.Join(args, " "), role, err, said)
	}
	return said
}

func (in *installation) try(role string, more []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(in.t.Context(), time.Minute)
	defer cancel()
	out, err := in.as(ctx, role, more, args...).CombinedOutput()
	return string(out), err
}

const rule = `id: flood
owner: tests
match: {method: POST, path: /v1/tokens}
key: [ip]
limit: 20
window: 10s
cooldown: 1s
lateness: 2s
block: {ttl: 10m}
`

// From an empty set of servers to a block, its evidence, its release and the rule's demotion: each process by TLS, as a user of its own, with the rights that
// docs/security.md gives it. Nothing that any of them asks for is refused.
func TestEachProcessHasTheRightsThatItNeeds(t *testing.T) {
	testbed.Night(t, "two brokers with TLS and ACLs, and nine users")
	d := readDocument(t)
	in := newInstallation(t, d)
	in.do("migrate", "migrate")
	in.postgres.do(strings.TrimSuffix(in.postgres.admin, "/postgres")+"/weir", d.sql)
	in.do("operator", "rules", "apply", "-f", in.Write("rules.yaml", rule), "--reason", "tests")
	in.do("operator", "rules", "promote", "flood", "--reason", "tests", "--yes", "--override", "tests")
	stages := map[string]*testbed.Running{}
	for _, stage := range []string{"route", "detect", "record", "enforce"} {
		stages[stage] = in.run(stage, "run", "--stages", stage)
	}
	gate, console := fmt.Sprint("127.0.0.1:", testbed.FreePort(t)), fmt.Sprint("127.0.0.1:", testbed.FreePort(t))
	in.run("gate", "gate", "--listen", gate)
	in.run("console", "console", "--console-listen", console)

	in.flood("192.0.2.1")
	testbed.Eventually(t, time.Minute, func() error { return in.answers(gate, "192.0.2.1", http.StatusTooManyRequests) })
	if err := in.answers(gate, "192.0.2.2", http.StatusOK); err != nil {
		t.Error(err)
	}
	server := func(args ...string) string {
		t.Helper()
		said, err := in.try("gate", []string{"WEIR_TOKEN=" + secret}, append(args, "--server", "http://"+console)...)
		if err != nil {
			t.Errorf("weir %s --server: %v\n%s", strings.Join(args, " "), err, said)
		}
		return said
	}
	testbed.Eventually(t, time.Minute, func() error {
		if said, err := in.try("operator", nil, "history", "hits", "--output", "json"); err != nil || !strings.Contains(said, `"flood"`) {
			return fmt.Errorf("history has no hit yet: %v\n%s", err, said)
		}
		return nil
	})
	for _, args := range [][]string{
		{"rules", "list"}, {"rules", "evidence", "flood"}, {"history", "hits"}, {"history", "dead"}, {"why", "ip=192.0.2.1"}, {"blocks", "list"},
		{"blocks", "release", "flood", "ip=192.0.2.1", "--reason", "tests"},
	} {
		server(args...)
	}
	testbed.Eventually(t, time.Minute, func() error { return in.answers(gate, "192.0.2.1", http.StatusOK) })
	in.do("operator", "counters", "reset", "flood", "ip=192.0.2.1", "--reason", "tests")
	in.do("operator", "blocks", "list")
	in.do("migrate", "migrate") // again, beside all of them
	in.examines(stages, func() error { return in.answers(gate, "192.0.2.3", http.StatusTooManyRequests) })
	server("rules", "demote", "flood", "--reason", "tests")
	in.nothingRefused()
	t.Run("and no others", func(t *testing.T) { in.noOtherRights(t, d) })
	t.Run("what is wrong is said", in.saysWhatIsWrong)
}

// examines has weir doctor look at an installation whose stages are ended one after the other, so that each of them leaves a record undone, which doctor then
// reads: it finds no fault. After it nothing runs but gates and consoles.
func (in *installation) examines(stages map[string]*testbed.Running, blocked func() error) {
	in.t.Helper()
	stages["record"].End()
	in.flood("192.0.2.3")
	testbed.Eventually(in.t, time.Minute, blocked)
	stages["enforce"].End()
	in.flood("192.0.2.4")
	testbed.Eventually(in.t, time.Minute, func() error { return in.undone("enforce") })
	stages["detect"].End()
	in.flood("192.0.2.5")
	testbed.Eventually(in.t, time.Minute, func() error { return in.undone("detect") })
	stages["route"].End()
	in.flood("192.0.2.6")
	if err := in.undone("route", "detect", "record", "record-blocks", "enforce"); err != nil {
		in.t.Error(err)
	}
}

// undone runs weir doctor, which finds no fault, and says which of the stages has no record left to do.
func (in *installation) undone(stages ...string) error {
	in.t.Helper()
	var findings []struct{ Check, Status, Found string }
	said, err := in.try("operator", []string{"WEIR_POSTGRES_URL=" + in.postgres.of("weir_migrate", "weir")}, "doctor", "--output", "json")
	if unread := json.Unmarshal([]byte(said), &findings); unread != nil {
		in.t.Fatalf("weir doctor: %v, %v\n%s", err, unread, said)
	}
	found := map[string]string{}
	for _, f := range findings {
		found[f.Check] = f.Found
		if f.Status == "fail" {
			in.t.Errorf("weir doctor: %s: %s", f.Check, f.Found)
		}
	}
	for _, s := range stages {
		if !strings.Contains(found["stage "+s], ", the oldest of") {
			return fmt.Errorf("doctor has seen no record that stage %s has not done: %q", s, found["stage "+s])
		}
	}
	return nil
}

// flood sends what is over the rule's limit.
func (in *installation) flood(ip string) {
	in.t.Helper()
	var lines bytes.Buffer
	now := time.Now()
	for i := range 30 {
		fmt.Fprintf(&lines, `{"v":1,"time":%q,"ip":%q,"device":"tv-7","method":"POST","path":"/v1/tokens","status":200}`+"\n",
			now.Add(time.Duration(i-30)*time.Millisecond).UTC().Format(time.RFC3339Nano), ip)
	}
	lines.WriteString("this is no event\n")
	in.do("ingest", "ingest", "--live", "--format", "weir", in.Write("events.jsonl", lines.String()))
}

// answers asks a gate about a request of an address.
func (in *installation) answers(gate, ip string, want int) error {
	r, err := http.NewRequestWithContext(in.t.Context(), http.MethodGet, "http://"+gate+"/v1/forward-auth", nil)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"X-Forwarded-For": ip, "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/tokens", "X-Device-Id": "tv-7"} {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != want {
		return fmt.Errorf("the gate answers %s for %s, want %d", answer.Status, ip, want)
	}
	return nil
}

// refusal finds in a broker's log what a user of weir's was refused.
var refusal = regexp.MustCompile(`Principal = User:(weir-\S+) is Denied operation = (\S+) from host = \S+ on resource = (\w+:LITERAL:\S+) for request = (\S+)`)

// nothingRefused holds that no server has refused any process anything.
func (in *installation) nothingRefused() {
	in.t.Helper()
	for _, p := range in.brokers.programs {
		for _, m := range refusal.FindAllStringSubmatch(p.Said(), -1) {
			in.t.Errorf("Kafka refused %s %s of %s (%s)", m[1], m[2], m[3], m[4])
		}
	}
	entries, err := in.redis.operator.Do(in.t.Context(), "ACL", "LOG").Slice()
	if err != nil {
		in.t.Fatal(err)
	}
	for _, e := range entries {
		in.t.Errorf("Redis refused: %v", e)
	}
	for line := range strings.Lines(read(in.t, in.postgres.log)) {
		if strings.Contains(line, "permission denied") || strings.Contains(line, "must be owner") {
			in.t.Errorf("PostgreSQL refused: %s", line)
		}
	}
}
