package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
)

// sweep removes what a test left under its namespace on real servers. It tries its best: a server that a test broke on
// purpose may be away, which is no failure of the test, so what cannot be removed is only logged.
func sweep(t testing.TB, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if brokers := list(os.Getenv(KafkaKind.Env())); len(brokers) > 0 {
		if err := sweepKafka(ctx, brokers, namespace); err != nil {
			t.Logf("topics of namespace %s stay on Kafka: %v", namespace, err)
		}
	}
	if url := os.Getenv(RedisKind.Env()); url != "" {
		if err := sweepRedis(ctx, url, namespace); err != nil {
			t.Logf("keys of namespace %s stay in Redis: %v", namespace, err)
		}
	}
	if nodes := list(os.Getenv(RedisClusterKind.Env())); len(nodes) > 0 {
		if err := sweepCluster(ctx, nodes, namespace); err != nil {
			t.Logf("keys of namespace %s stay in the Redis Cluster: %v", namespace, err)
		}
	}
}

func sweepKafka(ctx context.Context, brokers []string, namespace string) error {
	// The transport has connections of its own, so that they can be closed here: the default one keeps them for the
	// life of the process and would look like a leak of the test.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	var topics []string
	for _, topic := range metadata.Topics {
		if strings.HasPrefix(topic.Name, namespace+".") {
			topics = append(topics, topic.Name)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: topics})
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	var errs []error
	for topic, err := range answer.Errors {
		if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", topic, err))
		}
	}
	return errors.Join(errs...)
}

func sweepRedis(ctx context.Context, url, namespace string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	return errors.Join(sweepNode(ctx, client, namespace), client.Close())
}

func sweepCluster(ctx context.Context, nodes []string, namespace string) error {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes})
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return sweepNode(ctx, node, namespace)
	})
	return errors.Join(err, client.Close())
}

func sweepNode(ctx context.Context, node *redis.Client, namespace string) error {
	for at := uint64(0); ; {
		keys, next, err := node.Scan(ctx, at, namespace+":*", 1000).Result()
		if err != nil {
			return err
		}
		pipe := node.Pipeline()
		for _, key := range keys { // each by itself: they lie in slots of their own
			pipe.Unlink(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("remove keys like %q: %w", keys[0], err)
		}
		if at = next; at == 0 {
			return nil
		}
	}
}
