package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicEnds asks for the end of every partition of a topic.
func topicEnds(t testing.TB, in *install, topic string, partitions int) map[int32]int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	for p := range partitions {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp = int32(p), -1
		of.Partitions = append(of.Partitions, q)
	}
	request.Topics = append(request.Topics, of)
	ends := map[int32]int64{}
	for _, shard := range client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		for _, answered := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range answered.Partitions {
				if p.ErrorCode != 0 {
					t.Fatalf("%s/%d: error code %d", topic, p.Partition, p.ErrorCode)
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	if len(ends) != partitions {
		t.Fatalf("%s: %d of %d partitions answered", topic, len(ends), partitions)
	}
	return ends
}
