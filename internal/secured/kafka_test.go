package secured

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weirhq/weir/internal/testbed"
)

// homeVariable names the folder with Apache Kafka's jars: see scripts/fetch-kafka.sh.
const homeVariable = "WEIR_TEST_KAFKA_HOME"

// brokers is a cluster of Apache Kafka, two brokers of which one is the controller. Its clients come by SASL_SSL, and may do what an ACL says; the brokers themselves
// and the test, as the cluster's operator, by a listener of their own.
type brokers struct {
	t         testing.TB
	trust     *authority
	addresses []string // SASL_SSL
	operator  *kgo.Client
	programs  []*testbed.Running
}

// secret is the password of all users.
const secret = "correct-horse-battery-staple"

// startBrokers starts the cluster. Users of PLAIN are in the brokers' configuration; those of SCRAM are made, see addScram.
func startBrokers(t testing.TB, trust *authority, users []string) *brokers {
	t.Helper()
	home := os.Getenv(homeVariable)
	if home == "" {
		testbed.Missing(t, homeVariable+" is not set: no Apache Kafka to start brokers of")
	}
	testbed.Record(t, testbed.KafkaKind, testbed.Real)
	b := &brokers{t: t, trust: trust}
	var plainUsers strings.Builder
	for _, u := range users {
		fmt.Fprintf(&plainUsers, ` user_%s="%s"`, u, secret)
	}
	java := func(class string, args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{
			"-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(home, "*"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
			"-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=info", class, // which tells of what is refused
		}, args...)...)
	}
	controller, certificate := testbed.FreePort(t), trust.server("kafka")
	var internal []string
	for id := 1; id <= 2; id++ {
		dir, port, inside := t.TempDir(), testbed.FreePort(t), testbed.FreePort(t)
		b.addresses, internal = append(b.addresses, fmt.Sprint("127.0.0.1:", port)), append(internal, fmt.Sprint("127.0.0.1:", inside))
		roles, listeners := "broker", fmt.Sprintf("SECURE://127.0.0.1:%d,INTERNAL://127.0.0.1:%d", port, inside)
		advertised := listeners
		if id == 1 {
			roles, listeners = "broker,controller", fmt.Sprintf("%s,CONTROLLER://127.0.0.1:%d", listeners, controller)
		}
		properties := filepath.Join(dir, "server.properties")
		text := fmt.Sprintf(`process.roles=%[1]s
node.id=%[2]d
controller.quorum.voters=1@127.0.0.1:%[3]d
listeners=%[4]s
advertised.listeners=%[5]s
listener.security.protocol.map=SECURE:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
ssl.keystore.type=PEM
ssl.keystore.location=%[6]s
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required%[7]s;
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs=%[8]s/data
auto.create.topics.enable=false
default.replication.factor=2
min.insync.replicas=1
offsets.topic.replication.factor=2
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=2
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=2
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=500
log.index.size.max.bytes=1048576
`, roles, id, controller, listeners, advertised, certificate.both, &plainUsers, dir)
		if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		const cluster = "d2Vpci1mYXVsdHMtdGVzdA" // any 16 bytes do
		if out, err := java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties).CombinedOutput(); err != nil {
			t.Fatalf("formatting the folder of a broker: %v\n%s", err, out)
		}
		b.programs = append(b.programs, testbed.Run(t, java("kafka.Kafka", properties)))
	}
	for id, p := range b.programs {
		testbed.Eventually(t, 2*time.Minute, func() error {
			if err := p.Alive(); err != nil {
				return err
			}
			if !strings.Contains(p.Said(), "Kafka Server started") {
				return fmt.Errorf("broker %d is starting", id+1)
			}
			return nil
		})
	}
	var err error
	if b.operator, err = kgo.NewClient(kgo.SeedBrokers(internal...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.operator.Close)
	return b
}

// addScram makes a user who may sign in by a SCRAM mechanism.
func (b *brokers) addScram(user string, mechanism int8) {
	b.t.Helper()
	const iterations = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	var salted []byte
	var err error
	if mechanism == 1 {
		salted, err = pbkdf2.Key(sha256.New, secret, salt, iterations, sha256.Size)
	} else {
		salted, err = pbkdf2.Key(sha512.New, secret, salt, iterations, sha512.Size)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, mechanism, iterations, salt, salted
	r := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	r.Upsertions = append(r.Upsertions, u)
	answer, err := r.RequestWith(b.ctx(), b.operator)
	if err != nil || len(answer.Results) != 1 || answer.Results[0].ErrorCode != 0 {
		b.t.Fatalf("user %s: %+v, %v", user, answer, err)
	}
}

// allow grants.
func (b *brokers) allow(rights []kafkaRight) {
	b.t.Helper()
	r := kmsg.NewPtrCreateACLsRequest()
	for _, right := range rights {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = right.kind, right.name, kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:"+right.user, "*", right.operation, kmsg.ACLPermissionTypeAllow
		r.Creations = append(r.Creations, c)
	}
	answer, err := r.RequestWith(b.ctx(), b.operator)
	if err != nil {
		b.t.Fatal(err)
	}
	for i, one := range answer.Results {
		if one.ErrorCode != 0 {
			b.t.Fatalf("%+v: error %d", rights[i], one.ErrorCode)
		}
	}
}

// forbid takes rights back.
func (b *brokers) forbid(right kafkaRight) {
	b.t.Helper()
	f := kmsg.NewDeleteACLsRequestFilter()
	principal := "User:" + right.user
	f.ResourceType, f.ResourceName, f.ResourcePatternType = right.kind, &right.name, kmsg.ACLResourcePatternTypeLiteral
	f.Principal, f.Operation, f.PermissionType = &principal, right.operation, kmsg.ACLPermissionTypeAllow
	r := kmsg.NewPtrDeleteACLsRequest()
	r.Filters = append(r.Filters, f)
	answer, err := r.RequestWith(b.ctx(), b.operator)
	if err != nil || len(answer.Results) != 1 || len(answer.Results[0].MatchingACLs) != 1 {
		b.t.Fatalf("taking back %+v: %+v, %v", right, answer, err)
	}
}

func (b *brokers) ctx() context.Context { return b.t.Context() }

// as is a client of a user's, who signs in by a mechanism.
func (b *brokers) as(user, mechanism string) *kgo.Client {
	b.t.Helper()
	by := plain.Auth{User: user, Pass: secret}.AsMechanism()
	switch mechanism {
	case "scram-sha-256":
		by = scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "scram-sha-512":
		by = scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.addresses...), kgo.DialTLSConfig(b.trust.trust()), kgo.SASL(by), kgo.RetryTimeout(20*time.Second))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}
