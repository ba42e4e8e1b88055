package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/internal/exactness"
	"github.com/weirhq/weir/internal/testbed"
)

// nodes are the brokers of an embedded cluster. It has no replicas and no broker in it can die: one that is stopped loses the
// leadership of all that it led, and the clients must find that out, in the middle of what they do.
type nodes struct {
	t       testing.TB
	stream  *exactness.Stream
	cluster *kfake.Cluster
	n       int
}

var _ brokers = (*nodes)(nil)

func startNodes(t testing.TB, stream *exactness.Stream, n int) *nodes {
	t.Helper()
	testbed.Record(t, testbed.KafkaKind, testbed.Embedded)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(n), kfake.DataDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return &nodes{t: t, stream: stream, cluster: cluster, n: n}
}

func (n *nodes) addresses() []string { return n.cluster.ListenAddrs() }

func (n *nodes) stop(id int, _ bool) { n.lead(id, (id+1)%n.n) }

// start gives the broker, after stop, what it had and what the one has that stood in for it.
func (n *nodes) start(id int) { n.lead((id+1)%n.n, id) }

// lead makes a broker lead what another one leads.
func (n *nodes) lead(from, to int) {
	n.t.Helper()
	for name, partitions := range map[string]int{"requests": n.stream.Requests, "keyed": n.stream.Keyed, "hits": n.stream.Hits} {
		for p := range partitions {
			topic := n.stream.Topic(name)
			if n.cluster.LeaderFor(topic, int32(p)) != int32(from) {
				continue
			}
			if err := n.cluster.MoveTopicPartition(topic, int32(p), int32(to)); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// metadata asks for the layout of the cluster.
func (s *scene) metadata(ctx context.Context) (*kmsg.MetadataResponse, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.stream.Brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
}

// leaderOf is the number of the broker that leads a partition.
func (s *scene) leaderOf(topic string, partition int32) (leader int) {
	s.Helper()
	testbed.Eventually(s, workTimeout, func() error {
		layout, err := s.metadata(s.Context())
		if err != nil {
			return err
		}
		for _, t := range layout.Topics {
			for _, p := range t.Partitions {
				if t.Topic != nil && *t.Topic == topic && p.Partition == partition && p.Leader >= 0 {
					leader = int(p.Leader)
					return nil
				}
			}
		}
		return fmt.Errorf("%s/%d has no leader", topic, partition)
	})
	return leader
}

// inSync waits until every replica of every partition has what its leader has, and as many brokers are there as were
// started.
func (s *scene) inSync() {
	s.Helper()
	testbed.Eventually(s, workTimeout, func() error {
		layout, err := s.metadata(s.Context())
		if err != nil {
			return err
		}
		if len(layout.Brokers) != len(s.stream.Brokers) || len(layout.Topics) == 0 {
			return errors.New("a broker is not back yet")
		}
		for _, t := range layout.Topics {
			for _, p := range t.Partitions {
				if len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("partition %d of a topic has %d of %d replicas in sync", p.Partition, len(p.ISR), len(p.Replicas))
				}
			}
		}
		return nil
	})
}
