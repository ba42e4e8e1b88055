package kafka

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
)

// TopicExists says whether the cluster knows topic. The answer may be as old as KafkaConfig.MetadataTTL, so a caller that
// waits for a deletion asks until it is false.
func (k *Client) TopicExists(ctx context.Context, topic string) (bool, error) {
	_, err := k.Partitions(ctx, topic)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		return false, nil
	}
	return err == nil, err
}
