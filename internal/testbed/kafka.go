package testbed

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weirhq/weir/internal/local"
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
	// On disk it takes a sixth of the memory, and the folder is removed after the cluster has closed: cleanups run last in,
	// first out.
	kafka, err := local.StartKafka(t.Context(), local.KafkaOptions{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("embedded Kafka: %v", err)
	}
	t.Cleanup(func() {
		if err := kafka.Close(); err != nil {
			t.Errorf("embedded Kafka: %v", err)
		}
	})
	return kafka.Cluster()
}
