package faults

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// brokers are a Kafka cluster that a test may harm.
type brokers interface {
	addresses() []string
	// stop ends a broker, by number from 0: with kill -9, or in good order.
	stop(n int, kill bool)
	// start starts a broker again, on what it has stored.
	start(n int)
}

// homeVariable names the folder with Apache Kafka's jars: see scripts/fetch-kafka.sh.
const homeVariable = "WEIR_TEST_KAFKA_HOME"

// ownBroker prepares a broker that the fault may stop: Apache Kafka, or the embedded one in the embedded form.
func (s *scene) ownBroker() {
	if s.real() {
		s.brokers = startJava(s, 1)
	} else {
		s.brokers = startEmbedded(s)
	}
	s.stream.Brokers = s.brokers.addresses()
}

// ownCluster prepares three brokers.
func (s *scene) ownCluster() {
	if s.real() {
		s.brokers = startJava(s, 3)
		s.replication = 3
	} else {
		s.brokers = startNodes(s, s.stream, 3)
	}
	s.stream.Brokers = s.brokers.addresses()
}

// real reports whether there is an Apache Kafka to start brokers of. Where real servers are required there must be.
func (s *scene) real() bool {
	if os.Getenv(homeVariable) != "" {
		return true
	}
	if os.Getenv("WEIR_TEST_REQUIRE_REAL") == "1" {
		s.Fatalf("WEIR_TEST_REQUIRE_REAL=1, but %s is not set: no Apache Kafka to start brokers of", homeVariable)
	}
	return false
}

// restartBroker ends the only broker and brings it back, with kill -9 and, where there is time, in good order.
func (s *scene) restartBroker() {
	for _, kill := range []bool{true, false}[:s.form.restarts] {
		s.pause(2 * time.Second)
		at := s.harmed()
		s.brokers.stop(0, kill)
		s.away(2 * time.Second)
		s.brokers.start(0)
		s.works(at)
		s.awaitShares(s.routers)
		s.awaitShares(s.detectors)
	}
}

// away lets some time pass, of a random length, in which nothing can be sent.
func (s *scene) away(most time.Duration) {
	<-time.After(time.Duration(s.rnd.Int64N(int64(most))))
}

// killLeaders kills the broker that leads a random keyed partition. The others must take over; then it comes back, and the
// next one waits until it has caught up.
func (s *scene) killLeaders() {
	for range s.form.leaders {
		s.pause(2 * time.Second)
		leader := s.leaderOf(s.stream.Topic("keyed"), int32(s.rnd.IntN(s.stream.Keyed)))
		at := s.harmed()
		s.brokers.stop(leader, true)
		s.works(at) // without it
		s.brokers.start(leader)
		s.inSync()
		s.works(s.harmed()) // with it
	}
}

// ownPostgres prepares a PostgreSQL that the fault may stop: one of this test's own, from the programs of this machine.
func (s *scene) ownPostgres() {
	s.Helper()
	// Not s.TempDir: PostgreSQL runs as another user where this is root, who must be able to enter.
	dir, err := os.MkdirTemp("", "weir-faults-postgres-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	s.restart = local.PostgresOptions{Dir: filepath.Join(dir, "server"), Port: testbed.FreePort(s)}
	testbed.Record(s, testbed.PostgresKind, testbed.Embedded)
	s.startPostgres()
	s.Cleanup(func() {
		if s.postgres != nil {
			_ = s.postgres.Close() // the verdict is spoken
		}
	})
	s.stream.Postgres = s.postgres.URL()
}

func (s *scene) startPostgres() {
	s.Helper()
	var err error
	if s.postgres, err = local.StartPostgres(context.Background(), s.restart); err != nil {
		s.Fatal(err)
	}
}

// stopPostgres takes PostgreSQL away for a while. Detection must go on meanwhile; history gets it all later.
func (s *scene) stopPostgres() {
	s.pause(2 * time.Second)
	at := s.harmed()
	stopped := s.postgres
	s.postgres = nil
	if err := stopped.Close(); err != nil {
		s.Fatal(err)
	}
	s.sends(s.form.down / 2)
	s.works(time.Now()) // no store is asked for each event
	s.sends(s.form.down - time.Since(at))
	s.startPostgres()
	s.works(time.Now())
}

// embedded is the Kafka of this process, restarted on the same directory.
type embedded struct {
	t       testing.TB
	options local.KafkaOptions
	kafka   *local.Kafka
}

var _ brokers = (*embedded)(nil)

func startEmbedded(t testing.TB) *embedded {
	t.Helper()
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	e := &embedded{t: t, options: local.KafkaOptions{Dir: t.TempDir(), Port: testbed.FreePort(t), Logger: slog.New(slog.DiscardHandler)}}
	e.start(0)
	t.Cleanup(func() { e.stop(0, false) })
	return e
}

func (e *embedded) addresses() []string { return e.kafka.Addresses() }

func (e *embedded) start(int) {
	e.t.Helper()
	var err error
	if e.kafka, err = local.StartKafka(context.Background(), e.options); err != nil {
		e.t.Fatal(err)
	}
}

// stop knows one way to end a broker inside this process.
func (e *embedded) stop(int, bool) {
	e.t.Helper()
	if err := e.kafka.Close(); err != nil {
		e.t.Error(err)
	}
}
