package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestKafkaKeepsWhatIsProduced(t *testing.T) {
	brokers := testbed.Kafka(t)
	topic := testbed.Namespace(t) + ".requests"
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
	created, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}},
	})
	if err = errors.Join(err, created.Errors[topic]); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		answer, err := client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: topic, Partition: 1, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("event"))}),
		})
		if err != nil {
			return err
		}
		return answer.Error
	})
	ends, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(1)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ends.Topics[topic][0].LastOffset; got != 1 {
		t.Errorf("end of partition 1 is %d, want 1", got)
	}
}

func TestEachRedisKeepsAndExpiresKeys(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		client := server.Client(t)
		namespace := testbed.Namespace(t)
		kept, passing := namespace+":kept", namespace+":passing"
		if err := client.Set(t.Context(), kept, "1", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), passing, "1", 300*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			if err := client.Get(t.Context(), passing).Err(); !errors.Is(err, redis.Nil) {
				return fmt.Errorf("the key with a TTL is still there: %w", err)
			}
			return nil
		})
		if left := client.TTL(t.Context(), kept).Val(); left < 59*time.Minute || left > time.Hour {
			t.Errorf("the other key has %v left, want about an hour", left)
		}
	})
}

func TestPostgresGivesEachTestItsOwnDatabase(t *testing.T) {
	first, second := testbed.Postgres(t), testbed.Postgres(t)
	if first == second {
		t.Fatalf("two calls gave the same database")
	}
	for _, url := range []string{first, second} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var encoding string
		err = conn.QueryRow(t.Context(), "SHOW server_encoding").Scan(&encoding)
		if err != nil || encoding != "UTF8" {
			t.Errorf("encoding %q, error %v; want UTF8", encoding, err)
		}
		// The same name again: a shared database would refuse it.
		if _, err := conn.Exec(t.Context(), "CREATE TABLE hits (id int)"); err != nil {
			t.Error(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestPostgresDropsTheDatabase(t *testing.T) {
	var url string
	t.Run("inner", func(t *testing.T) { url = testbed.Postgres(t) })
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		err = conn.Close(context.WithoutCancel(t.Context()))
		t.Fatalf("the database of a test that has ended still takes connections (close: %v)", err)
	}
	if !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v, want: database does not exist", err)
	}
}

func TestNamespaceIsAValidAndFreshName(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		name := testbed.Namespace(t)
		if !valid.MatchString(name) || seen[name] {
			t.Fatalf("name %q: malformed or seen before", name)
		}
		seen[name] = true
	}
}

// A goroutine that ends a moment after what it belongs to is none that leaks; one that stays is.
func TestCheckLeaksWaitsForWhatEnds(t *testing.T) {
	end := make(chan struct{})
	got := judge(t, func(t testing.TB) {
		testbed.CheckLeaks(t)
		go func() { <-end }()
		t.Cleanup(func() { time.AfterFunc(2*time.Second, func() { close(end) }) })
	})
	if got.fatal != "" {
		t.Errorf("one that ended 2 s later: %s", got.fatal)
	}
}
