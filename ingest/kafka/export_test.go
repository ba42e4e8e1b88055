package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// What follows is for the tests that stand outside of the package, as internal/kafkakit imports it.

// MostRequestBytes bounds what one request appends.
const MostRequestBytes = mostRequestBytes

// Hear takes in when a record was appended that was read.
func (k *Client) Hear(appended traffic.Time) { hear(&k.heard, appended) }

// LimitFetch bounds a fetch answer of one broker, and the share of one partition in it.
func (c *Config) LimitFetch(answer, partition int) {
	c.fetchBytes, c.partitionFetchBytes = answer, partition
}

// LimitUnpacked bounds what a batch may decompress to.
func (k *Client) LimitUnpacked(limit int) error {
	smaller, err := newCodecs(limit)
	if err != nil {
		return err
	}
	k.codecs.close()
	k.codecs = smaller
	return nil
}

// Raw is the library's client, for requests that weir never sends.
func (k *Client) Raw() *kafka.Client { return k.client }

// Leaders are the brokers that lead a topic's partitions, as the client has them in mind.
func (k *Client) Leaders(ctx context.Context, topic string) ([]int32, error) {
	return k.leaders(ctx, topic)
}

// TopicSettings are all settings of a topic, as the broker has them.
func (k *Client) TopicSettings(ctx context.Context, topic string) (map[string]string, error) {
	return k.admin().topicSettings(ctx, topic)
}

// StoredBatch is a record batch as it lies in the log.
type StoredBatch struct {
	Records    int32
	Compressed bool
}

// StoredBatches are those of one partition from its beginning, as far as one answer holds them.
func (k *Client) StoredBatches(ctx context.Context, topic string, partition int) ([]StoredBatch, error) {
	leaders, err := k.leaders(ctx, topic)
	if err != nil {
		return nil, err
	}
	answer, err := k.roundTrip(ctx, 10*time.Second, &fetchRequest{
		broker: leaders[partition], topic: topic, positions: []ingest.Position{{Partition: partition}}, bytes: 32 << 20, partitionBytes: 32 << 20,
	})
	if err != nil {
		return nil, err
	}
	var stored []StoredBatch
	for set := answer.(*fetchResponse).partitions[0].records; len(set) > 0; {
		batch, rest, whole, err := nextBatch(set)
		if err != nil || !whole {
			return nil, errors.Join(err, errors.New("the answer does not end with a whole batch"))
		}
		stored, set = append(stored, StoredBatch{Records: batch.count, Compressed: batch.attributes&attributeCodec != 0}), rest
	}
	return stored, nil
}
