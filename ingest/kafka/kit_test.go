package kafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// kit is a Kafka client and topics of its own for one test.
type kit struct {
	t        testing.TB
	k        *Client
	brokers  []string
	registry *prometheus.Registry
	ctx      context.Context
}

// newKit connects to the real brokers of the environment, or to an embedded one.
func newKit(t *testing.T, edit ...func(*Config)) *kit {
	t.Helper()
	checkLeaks(t)
	return kitFor(t, testbed.Kafka(t), edit...)
}

// newFaultyKit connects to an embedded cluster that the test can make fail.
func newFaultyKit(t *testing.T, brokers int, opts ...kfake.Opt) (*kit, *kfake.Cluster) {
	t.Helper()
	checkLeaks(t)
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kitFor(t, cluster.ListenAddrs()), cluster
}

// checkLeaks fails the test if goroutines are left over when all its clean-ups have run.
func checkLeaks(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, before)
		}
	})
}

func kitFor(t testing.TB, brokers []string, edit ...func(*Config)) *kit {
	t.Helper()
	kit := &kit{t: t, brokers: brokers, registry: prometheus.NewRegistry()}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	kit.ctx = ctx
	kit.k = kit.client(edit...)
	return kit
}

// client makes another client of the same cluster.
func (kit *kit) client(edit ...func(*Config)) *Client {
	kit.t.Helper()
	cfg := Config{Brokers: kit.brokers, MetadataTTL: 200 * time.Millisecond, Logger: testLogger(kit.t), Registerer: kit.registry}
	for _, e := range edit {
		e(&cfg)
	}
	k, err := New(cfg)
	if err != nil {
		kit.t.Fatal(err)
	}
	kit.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			kit.t.Error(err)
		}
	})
	return k
}

func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// topic creates a topic of its own for the test.
func (kit *kit) topic(partitions int, edit ...func(*ingest.TopicSpec)) string {
	kit.t.Helper()
	spec := ingest.TopicSpec{Name: testbed.Namespace(kit.t) + ".requests", Partitions: partitions, MaxMessageBytes: 32 << 20}
	for _, e := range edit {
		e(&spec)
	}
	if _, err := kit.k.EnsureTopics(kit.ctx, []ingest.TopicSpec{spec}); err != nil {
		kit.t.Fatal(err)
	}
	return spec.Name
}

// put appends one batch per partition.
func (kit *kit) put(topic string, byPartition map[int][]string) {
	kit.t.Helper()
	if err := kit.k.Appender(topic).Append(kit.ctx, batches(byPartition)); err != nil {
		kit.t.Fatal(err)
	}
}

func batches(byPartition map[int][]string) []ingest.Batch {
	var out []ingest.Batch
	for p, values := range byPartition {
		b := ingest.Batch{Partition: p}
		for _, v := range values {
			b.Values = append(b.Values, []byte(v))
		}
		out = append(out, b)
	}
	return out
}

// read fetches from log until each of the positions' partitions has given the wanted number of messages.
func (kit *kit) read(log ingest.Log, positions []ingest.Position, want int) map[int][]traffic.Message {
	kit.t.Helper()
	got, next := make(map[int][]traffic.Message), slices.Clone(positions)
	for {
		left := 0
		for _, p := range positions {
			left += max(0, want-len(got[p.Partition]))
		}
		if left == 0 {
			return got
		}
		answers, err := log.Fetch(kit.ctx, next, 500*time.Millisecond)
		if err != nil {
			kit.t.Fatalf("%v with %d messages left", err, left)
		}
		for _, f := range answers {
			if f.Err != nil {
				kit.t.Fatal(f.Err)
			}
			i := slices.IndexFunc(next, func(p ingest.Position) bool { return p.Partition == f.Partition })
			if f.Next < next[i].Offset {
				kit.t.Fatalf("partition %d: next is %d, asked %d", f.Partition, f.Next, next[i].Offset)
			}
			next[i].Offset = f.Next
			got[f.Partition] = append(got[f.Partition], f.Messages...)
		}
	}
}

func positions(offset int64, partitions ...int) []ingest.Position {
	var out []ingest.Position
	for _, p := range partitions {
		out = append(out, ingest.Position{Partition: p, Offset: offset})
	}
	return out
}

// incompressible returns n random bytes.
func incompressible(t testing.TB, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func values(messages []traffic.Message) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = string(m.Value)
	}
	return out
}

// benchBrokers are those of the environment: a benchmark against an embedded broker in the same process measures that.
func benchBrokers(b *testing.B) []string {
	if !onRealKafka() {
		b.Skip("needs WEIR_TEST_KAFKA")
	}
	return testbed.Kafka(b)
}

func onRealKafka() bool { return os.Getenv(testbed.KafkaKind.Env()) != "" }
