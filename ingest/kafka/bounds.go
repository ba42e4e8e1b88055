package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// boundsRequest is a ListOffsets of several partitions of one leader. kafka-go's own type splits itself into a request,
// and so a connection, per partition; this one has the same fields without that method.
type boundsRequest listoffsets.Request

var (
	_ protocol.Message       = (*boundsRequest)(nil)
	_ protocol.BrokerMessage = (*boundsRequest)(nil)
)

// ApiKey is ListOffsets'.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (*boundsRequest) ApiKey() protocol.ApiKey { return protocol.ListOffsets }

// Broker is the leader of the first partition; the caller has sorted them by leader, and a partition whose leader has
// moved since answers with an error.
func (r *boundsRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	topic, partition := r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition
	broker, ok := cluster.Brokers[cluster.Topics[topic].Partitions[partition].Leader]
	if !ok {
		return protocol.Broker{}, fmt.Errorf("topic %s partition %d: %w", topic, partition, kafka.LeaderNotAvailable)
	}
	return broker, nil
}

// boundsTimeout is how long bounds tries before it gives an error.
const boundsTimeout = 20 * time.Second

// bounds asks the leaders for the first and the end offset of partitions, and tries again while leaders are away.
func (k *Client) bounds(ctx context.Context, topic string, partitions []int) (map[int]ingest.Bounds, error) {
	return askAll(ctx, k, "bounds of topic "+topic, partitions, func(open []int, found map[int]ingest.Bounds) error {
		return k.boundsOnce(ctx, topic, open, found)
	})
}

// offsetsAt asks for the first offsets of records that were appended at an instant or later.
func (k *Client) offsetsAt(ctx context.Context, topic string, partitions []int, at traffic.Time) (map[int]int64, error) {
	ms := int64(at) / 1000
	if at > 0 && at%1000 != 0 {
		ms++ // Kafka counts in milliseconds
	}
	ms = max(ms, 0) // less asks for something else
	return askAll(ctx, k, "offsets of topic "+topic, partitions, func(open []int, found map[int]int64) error {
		byLeader, failed := k.byLeader(ctx, topic, open)
		for _, of := range byLeader {
			got, err := k.listOffsets(ctx, topic, of, ms)
			maps.Copy(found, got)
			if err != nil {
				failed = err
			}
		}
		return failed
	})
}

// askAll asks for something of partitions until all are found, as long as what fails passes. what is for errors.
func askAll[T any](ctx context.Context, k *Client, what string, partitions []int, once func(open []int, found map[int]T) error) (map[int]T, error) {
	found := make(map[int]T, len(partitions))
	open := slices.Clone(partitions)
	wait := retry.NewBackoff(100*time.Millisecond, time.Second)
	started := time.Now()
	var last error
	for {
		err := once(open, found)
		open = slices.DeleteFunc(open, func(p int) bool { _, ok := found[p]; return ok })
		if len(open) == 0 {
			return found, nil
		}
		if last != nil && ctx.Err() != nil {
			err = last // that the time is over says less
		}
		last = err
		err = fmt.Errorf("%s partitions %v: %w", what, open, err)
		if ctx.Err() != nil || k.life.Err() != nil || !passing(err) || time.Since(started) > boundsTimeout {
			return nil, err
		}
		if wait.Wait(ctx) != nil {
			return nil, err
		}
	}
}

// byLeader gives the partitions of each leader. The error is that of the partitions that have none now, or that there are none.
func (k *Client) byLeader(ctx context.Context, topic string, partitions []int) (map[int32][]int, error) {
	leaders, err := k.leaders(ctx, topic)
	if err != nil {
		return nil, err
	}
	byLeader := make(map[int32][]int)
	for _, p := range partitions {
		switch {
		case p < 0 || p >= len(leaders):
			return nil, fmt.Errorf("partition %d of %d: %w", p, len(leaders), kafka.UnknownTopicOrPartition)
		case leaders[p] < 0:
			err = fmt.Errorf("partition %d: %w", p, kafka.LeaderNotAvailable)
		default:
			byLeader[leaders[p]] = append(byLeader[leaders[p]], p)
		}
	}
	return byLeader, err
}

// boundsOnce asks once and adds to found what was answered. The error is nil only if everything was.
func (k *Client) boundsOnce(ctx context.Context, topic string, partitions []int, found map[int]ingest.Bounds) error {
	byLeader, failed := k.byLeader(ctx, topic, partitions)
	var (
		mu         sync.Mutex
		wg         sync.WaitGroup
		start, end = make(map[int]int64), make(map[int]int64)
	)
	ask := func(partitions []int, time int64, into map[int]int64) {
		got, err := k.listOffsets(ctx, topic, partitions, time)
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(into, got)
		if err != nil {
			failed = err
		}
	}
	for _, partitions := range byLeader {
		wg.Go(func() { ask(partitions, kafka.FirstOffset, start) })
		wg.Go(func() { ask(partitions, kafka.LastOffset, end) })
	}
	wg.Wait()
	for _, p := range partitions {
		first, ok := start[p]
		last, both := end[p]
		if ok && both {
			found[p] = ingest.Bounds{Start: first, End: max(first, last)} // retention may pass between the two requests
		}
	}
	return failed
}

// listOffsets asks one leader, with kafka.FirstOffset, kafka.LastOffset or milliseconds since 1970 as time. It answers -1 where
// nothing is that new.
func (k *Client) listOffsets(ctx context.Context, topic string, partitions []int, at int64) (map[int]int64, error) {
	asked := make([]listoffsets.RequestPartition, len(partitions))
	for i, p := range partitions {
		asked[i] = listoffsets.RequestPartition{Partition: int32(p), CurrentLeaderEpoch: -1, Timestamp: at}
	}
	answer, err := k.roundTrip(ctx, k.cfg.RequestTimeout, &boundsRequest{
		ReplicaID: -1, Topics: []listoffsets.RequestTopic{{Topic: topic, Partitions: asked}},
	})
	if err != nil {
		return nil, err
	}
	response, ok := answer.(*listoffsets.Response)
	if !ok {
		return nil, fmt.Errorf("unexpected answer %T", answer)
	}
	got := make(map[int]int64, len(partitions))
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				err = fmt.Errorf("partition %d: %w", p.Partition, kafka.Error(p.ErrorCode))
				continue
			}
			got[int(p.Partition)] = p.Offset
		}
	}
	if err == nil && len(got) < len(partitions) {
		err = errNoAnswer
	}
	return got, err
}
