// Package exactness sends a seeded load through a stream of weir and judges from outside what came of it:
//
//	requests ──▶ an independent routing ──┐ event by event
//	keyed    ──▶ the oracle's fence ──────┴──▶ Routing ──▶ the oracle's windows ──┐ episode by episode
//	Postgres ──▶ hits ────────────────────────────────────────────────────────────┴──▶ Hits
//
// It reads the logs with a Kafka client that weir does not use, knows formats and schema from their documentation, and
// shares no code with what it judges. Nothing outside of tests may import it.
package exactness

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Stream is the live stream of one installation, as an outsider sees it. All fields are required.
type Stream struct {
	Brokers   []string // host:port
	Postgres  string   // URL of the database
	Namespace string
	Requests  int // partitions of the requests topic
	Keyed     int // partitions of the keyed topic
	Hits      int // partitions of the hits topic

	remembered map[int64]string // documents of routing versions, by number, that the store may have lost since
}

// Remember keeps the routing versions that the store has now, for a later ReadLogs: by then it may have lost them.
func (s *Stream) Remember(ctx context.Context) error {
	documents, err := s.documents(ctx)
	if err != nil {
		return err
	}
	if s.remembered == nil {
		s.remembered = map[int64]string{}
	}
	for number, document := range documents {
		if before, ok := s.remembered[number]; ok && before != document {
			return fmt.Errorf("routing version %d was given twice: it was %s and is %s", number, before, document)
		}
		s.remembered[number] = document
	}
	return nil
}

// documents are those of the live stream's routing versions, by number.
func (s *Stream) documents(ctx context.Context) (map[int64]string, error) {
	out := map[int64]string{}
	err := s.Query(ctx, `SELECT number, document FROM {ns}.routing_versions WHERE stream = 'live'`,
		func(rows pgx.Rows) error {
			var number int64
			var document string
			err := rows.Scan(&number, &document)
			out[number] = document
			return err
		})
	return out, err
}

// Topic is the full name of one of the stream's topics: requests, keyed, hits, blocks or dead.
func (s *Stream) Topic(name string) string { return s.Namespace + "." + name }

// Query runs a statement, in which {ns} stands for the installation's schema, and gives each row to scan.
func (s *Stream) Query(ctx context.Context, sql string, scan func(rows pgx.Rows) error) error {
	conn, err := pgx.Connect(ctx, s.Postgres)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, strings.ReplaceAll(sql, "{ns}", s.Namespace))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Routed counts the requests that weir says it has routed. It is told every two seconds.
func (s *Stream) Routed(ctx context.Context) (int64, error) {
	var sum int64
	err := s.Query(ctx, `SELECT coalesce(sum(log_offset), 0)::bigint FROM {ns}.partition_states WHERE stream = 'live' AND side = 'requests'`,
		func(rows pgx.Rows) error { return rows.Scan(&sum) })
	return sum, err
}

// EachRecord reads a topic from its start to the end that it has when the call begins, and gives each record to see, those
// of one partition in order.
func (s *Stream) EachRecord(ctx context.Context, topic string, partitions int, see func(*kgo.Record) error) error {
	ends, err := s.ends(ctx, topic, partitions)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for p, end := range ends {
		if end == 0 {
			delete(ends, p)
		}
	}
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("reading %s: %w", topic, ctx.Err())
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			end, open := ends[r.Partition]
			if !open || failed != nil {
				return
			}
			failed = see(r)
			if r.Offset >= end-1 {
				delete(ends, r.Partition)
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// ends asks for the end of every partition of a topic.
func (s *Stream) ends(ctx context.Context, topic string, partitions int) (map[int32]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
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
			return nil, shard.Err
		}
		response, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if !ok {
			return nil, fmt.Errorf("ends of %s: got a %T", topic, shard.Resp)
		}
		for _, answered := range response.Topics {
			for _, p := range answered.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("end of %s/%d: %w", topic, p.Partition, err)
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	if len(ends) != partitions {
		return nil, fmt.Errorf("ends of %s: %d of %d partitions answered", topic, len(ends), partitions)
	}
	return ends, nil
}
