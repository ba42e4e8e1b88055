// Package kafkakit gives tests a Kafka client with topics of their own, and what weir's client does not do.
package kafkakit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// Kit is a Kafka client and topics of its own for one test.
type Kit struct {
	T        testing.TB
	K        *kafka.Client
	Registry *prometheus.Registry
	Ctx      context.Context
	brokers  []string
}

// New connects to the real brokers of the environment, or to an embedded one.
func New(t *testing.T, edit ...func(*kafka.Config)) *Kit {
	t.Helper()
	testbed.CheckLeaks(t)
	return kitFor(t, testbed.Kafka(t), edit...)
}

// NewFaulty connects to an embedded cluster that the test can make fail.
func NewFaulty(t *testing.T, brokers int, opts ...kfake.Opt) (*Kit, *kfake.Cluster) {
	t.Helper()
	testbed.CheckLeaks(t)
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kitFor(t, cluster.ListenAddrs()), cluster
}

// Bench connects to the real brokers of the environment: a benchmark of an embedded one, in the same process, measures that.
func Bench(b *testing.B) *Kit {
	b.Helper()
	if os.Getenv(testbed.KafkaKind.Env()) == "" {
		b.Skip("needs " + testbed.KafkaKind.Env())
	}
	return kitFor(b, testbed.Kafka(b))
}

// patience is when a test is given up whose broker or machine is busy: what promises a time measures it.
const patience = 5 * time.Minute

// GroupOptions are those of a member that hears of a rebalance at once, and that its group keeps though the machine, or the
// broker, stands still for a while: a member that falls out gives its partitions away, which few tests mean to show.
func GroupOptions() kafka.GroupOptions {
	return kafka.GroupOptions{Heartbeat: 100 * time.Millisecond, SessionTimeout: 30 * time.Second}
}

func kitFor(t testing.TB, brokers []string, edit ...func(*kafka.Config)) *Kit {
	t.Helper()
	kit := &Kit{T: t, brokers: brokers, Registry: prometheus.NewRegistry()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	kit.Ctx = ctx
	kit.K = kit.Client(edit...)
	return kit
}

// Client makes another client of the same cluster.
func (kit *Kit) Client(edit ...func(*kafka.Config)) *kafka.Client {
	kit.T.Helper()
	cfg := kafka.Config{Brokers: kit.brokers, MetadataTTL: 200 * time.Millisecond, RequestTimeout: 30 * time.Second, Logger: Logger(kit.T), Registerer: kit.Registry}
	for _, e := range edit {
		e(&cfg)
	}
	k, err := kafka.New(cfg)
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

// Logger writes into the test's output.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Topic creates a topic of its own for the test.
func (kit *Kit) Topic(partitions int, edit ...func(*ingest.TopicSpec)) string {
	kit.T.Helper()
	spec := ingest.TopicSpec{Name: testbed.Namespace(kit.T) + ".requests", Partitions: partitions, MaxMessageBytes: 32 << 20}
	for _, e := range edit {
		e(&spec)
	}
	testbed.Eventually(kit.T, patience, func() error {
		_, err := kit.K.EnsureTopics(kit.Ctx, []ingest.TopicSpec{spec})
		return err
	})
	return spec.Name
}

// Put appends one batch per partition.
func (kit *Kit) Put(topic string, byPartition map[int][]string) {
	kit.T.Helper()
	left := Batches(byPartition)
	testbed.Eventually(kit.T, patience, func() error {
		err := kit.K.Appender(topic).Append(kit.Ctx, left)
		var partly *ingest.AppendError
		if !errors.As(err, &partly) {
			return err
		}
		left = slices.DeleteFunc(left, func(b ingest.Batch) bool { return partly.Failed[b.Partition] == nil })
		for _, b := range left {
			if !unsent(partly.Failed[b.Partition]) {
				kit.T.Fatal(err) // a second attempt may write it twice
			}
		}
		return err
	})
}

// unsent says that what failed so is certainly not in the log.
func unsent(err error) bool {
	var network *net.OpError
	return errors.As(err, new(*ingest.UnwrittenError)) || errors.As(err, &network) && network.Op == "dial"
}

// Batches makes one batch per partition.
func Batches(byPartition map[int][]string) []ingest.Batch {
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

// Read fetches from log until each of the positions' partitions has given the wanted number of messages.
func (kit *Kit) Read(log ingest.Log, positions []ingest.Position, want int) map[int][]traffic.Message {
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
			i := slices.IndexFunc(next, func(p ingest.Position) bool { return p.Partition == f.Partition })
			if f.Next < next[i].Offset {
				kit.T.Fatalf("partition %d: next is %d, asked %d", f.Partition, f.Next, next[i].Offset)
			}
			next[i].Offset = f.Next
			got[f.Partition] = append(got[f.Partition], f.Messages...)
		}
	}
}

// Positions are those of one offset in several partitions.
func Positions(offset int64, partitions ...int) []ingest.Position {
	var out []ingest.Position
	for _, p := range partitions {
		out = append(out, ingest.Position{Partition: p, Offset: offset})
	}
	return out
}

// Incompressible returns n random bytes.
func Incompressible(t testing.TB, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Numbered returns prefix0, prefix1, … up to n of them.
func Numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

// Counter gives the one series of a counter that the test has moved.
func (kit *Kit) Counter(t testing.TB, name string) prometheus.Collector {
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
func (kit *Kit) Grow(topic string, n int) {
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

// Transact appends values to partition 0 in a transaction, and commits or aborts it.
func (kit *Kit) Transact(topic string, commit bool, values ...string) {
	kit.T.Helper()
	kit.Begin(topic, values...)(commit)
}

// Begin appends values to partition 0 in a transaction that stays open until end commits or aborts it.
func (kit *Kit) Begin(topic string, values ...string) (end func(commit bool)) {
	kit.T.Helper()
	client := kit.producer(kgo.TransactionalID(topic+".transactions"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Value: []byte(v)}
	}
	err := client.BeginTransaction()
	if err == nil {
		err = client.ProduceSync(kit.Ctx, records...).FirstErr()
	}
	if err != nil {
		client.Close()
		kit.T.Fatal(err)
	}
	return func(commit bool) {
		kit.T.Helper()
		defer client.Close()
		if err := client.EndTransaction(kit.Ctx, kgo.TransactionEndTry(commit)); err != nil {
			kit.T.Fatal(err)
		}
	}
}

// PutPacked appends values to a partition as ONE batch, compressed with zstd as a gateway's producer would.
func (kit *Kit) PutPacked(topic string, partition int, values [][]byte) {
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
func (kit *Kit) producer(opts ...kgo.Opt) *kgo.Client {
	kit.T.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(kit.brokers...))...)
	if err != nil {
		kit.T.Fatal(err)
	}
	return client
}
