package ingest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// Kit2 is a Kafka client and topics of its own for one test.
type Kit2 struct {
	T        testing.TB
	K        *Kafka
	Registry *prometheus.Registry
	Ctx      context.Context
	brokers  []string
}

// NewKit2 connects to the real brokers of the environment, or to an embedded one.
func NewKit2(t *testing.T, edit ...func(*KafkaConfig)) *Kit2 {
	t.Helper()
	leaks2(t)
	return kitFor2(t, testbed.Kafka(t), edit...)
}

// NewFaultyKit2 connects to an embedded cluster that the test can make fail.
func NewFaultyKit2(t *testing.T, brokers int, opts ...kfake.Opt) (*Kit2, *kfake.Cluster) {
	t.Helper()
	leaks2(t)
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kitFor2(t, cluster.ListenAddrs()), cluster
}

// leaks2 fails the test if goroutines are left over when all its clean-ups have run.
func leaks2(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, before)
		}
	})
}

func kitFor2(t testing.TB, brokers []string, edit ...func(*KafkaConfig)) *Kit2 {
	t.Helper()
	kit := &Kit2{T: t, brokers: brokers, Registry: prometheus.NewRegistry()}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	kit.Ctx = ctx
	kit.K = kit.Client(edit...)
	return kit
}

// Client makes another client of the same cluster.
func (kit *Kit2) Client(edit ...func(*KafkaConfig)) *Kafka {
	kit.T.Helper()
	cfg := KafkaConfig{Brokers: kit.brokers, MetadataTTL: 200 * time.Millisecond, Logger: Logger2(kit.T), Registerer: kit.Registry}
	for _, e := range edit {
		e(&cfg)
	}
	k, err := NewKafka(cfg)
	if err != nil {
		kit.T.Fatal(err)
	}
	kit.T.Cleanup(func() {
		if err := k.Close(); err != nil {
			kit.T.Error(err)
		}
	})
	return k
}

func Logger2(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Topic creates a topic of its own for the test.
func (kit *Kit2) Topic(partitions int, edit ...func(*TopicSpec)) string {
	kit.T.Helper()
	spec := TopicSpec{Name: testbed.Namespace(kit.T) + ".requests", Partitions: partitions, MaxMessageBytes: 32 << 20}
	for _, e := range edit {
		e(&spec)
	}
	if _, err := kit.K.EnsureTopics(kit.Ctx, []TopicSpec{spec}); err != nil {
		kit.T.Fatal(err)
	}
	return spec.Name
}

// Put appends one batch per partition.
func (kit *Kit2) Put(topic string, byPartition map[int][]string) {
	kit.T.Helper()
	if err := kit.K.Appender(topic).Append(kit.Ctx, Batches2(byPartition)); err != nil {
		kit.T.Fatal(err)
	}
}

func Batches2(byPartition map[int][]string) []Batch {
	var out []Batch
	for p, values := range byPartition {
		b := Batch{Partition: p}
		for _, v := range values {
			b.Values = append(b.Values, []byte(v))
		}
		out = append(out, b)
	}
	return out
}

// Read fetches from log until each of the positions' partitions has given the wanted number of messages.
func (kit *Kit2) Read(log Log, positions []Position, want int) map[int][]traffic.Message {
	kit.T.Helper()
	got, next := make(map[int][]traffic.Message), slices.Clone(positions)
	for {
		left := 0
		for _, p := range positions {
			left += max(0, want-len(got[p.Partition]))
		}
		if left == 0 {
			return got
		}
		answers, err := log.Fetch(kit.Ctx, next, 500*time.Millisecond)
		if err != nil {
			kit.T.Fatalf("%v with %d messages left", err, left)
		}
		for _, f := range answers {
			if f.Err != nil {
				kit.T.Fatal(f.Err)
			}
			i := slices.IndexFunc(next, func(p Position) bool { return p.Partition == f.Partition })
			if f.Next < next[i].Offset {
				kit.T.Fatalf("partition %d: next is %d, asked %d", f.Partition, f.Next, next[i].Offset)
			}
			next[i].Offset = f.Next
			got[f.Partition] = append(got[f.Partition], f.Messages...)
		}
	}
}

func Positions2(offset int64, partitions ...int) []Position {
	var out []Position
	for _, p := range partitions {
		out = append(out, Position{Partition: p, Offset: offset})
	}
	return out
}

// Incompressible2 returns n random bytes.
func Incompressible2(t testing.TB, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func Numbered2(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// Counter gives the one series of a counter that the test has moved.
func (kit *Kit2) Counter(t testing.TB, name string) prometheus.Collector {
	t.Helper()
	families, err := kit.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := prometheus.NewCounter(prometheus.CounterOpts{Name: "found"})
	for _, family := range families {
		if family.GetName() == name {
			if n := len(family.GetMetric()); n != 1 {
				t.Fatalf("%s has %d series, want 1", name, n)
			}
			found.Add(family.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return found
}

// Grow adds partitions to a topic, up to n.
func (kit *Kit2) Grow(topic string, n int) {
	kit.T.Helper()
	one := kmsg.NewCreatePartitionsRequestTopic()
	one.Topic, one.Count = topic, int32(n)
	request := kmsg.NewPtrCreatePartitionsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, one), 10_000
	client := kit.producer()
	defer client.Close()
	answer, err := request.RequestWith(kit.Ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		kit.T.Fatal(err)
	}
}

// PutAborted appends values to partition 0 in a transaction that is then aborted.
func (kit *Kit2) PutAborted(topic string, values ...string) {
	kit.T.Helper()
	client := kit.producer(kgo.TransactionalID(topic+".aborted"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	err := client.BeginTransaction()
	for _, v := range values {
		if err == nil {
			err = client.ProduceSync(kit.Ctx, &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr()
		}
	}
	if err == nil {
		err = client.EndTransaction(kit.Ctx, kgo.TryAbort)
	}
	if err != nil {
		kit.T.Fatal(err)
	}
}

// PutPacked appends values to a partition as ONE batch, compressed with zstd as a gateway's producer would.
func (kit *Kit2) PutPacked(topic string, partition int, values [][]byte) {
	kit.T.Helper()
	client := kit.producer(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ProducerBatchMaxBytes(64<<20), kgo.BrokerMaxWriteBytes(96<<20), kgo.MaxBufferedRecords(len(values)), kgo.ProducerLinger(time.Second))
	defer client.Close()
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: int32(partition), Value: v}
	}
	if err := client.ProduceSync(kit.Ctx, records...).FirstErr(); err != nil {
		kit.T.Fatal(err)
	}
}

// producer is another client's, for what weir's does not do.
func (kit *Kit2) producer(opts ...kgo.Opt) *kgo.Client {
	kit.T.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(kit.brokers...))...)
	if err != nil {
		kit.T.Fatal(err)
	}
	return client
}
