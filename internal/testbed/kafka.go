package testbed

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Kafka returns the broker addresses of the real cluster in WEIR_TEST_KAFKA, or of an embedded one-broker cluster that
// lives as long as the test.
func Kafka(t testing.TB) []string {
	t.Helper()
	if real := configured(t, KafkaKind); real != "" {
		return list(real)
	}
	return EmbeddedKafka(t).ListenAddrs()
}

// EmbeddedKafka starts a cluster of one broker inside the process, on a loopback port, whatever the environment says:
// for tests that make it fail with Control hooks. It stops with the test.
func EmbeddedKafka(t testing.TB) *kfake.Cluster {
	t.Helper()
	Record(t, KafkaKind, Embedded)
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		// On disk it takes a sixth of the memory, and the folder is removed after the cluster has closed: cleanups
		// run last in, first out.
		kfake.DataDir(t.TempDir()),
		// Retention is swept hourly unless told otherwise; tests that wait for it need it soon.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "200"}),
	)
	if err != nil {
		t.Fatalf("embedded Kafka: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}
