package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
)

func BenchmarkFetch(b *testing.B) {
	kit := kafkakit.Bench(b)
	topic := kit.Topic(8)
	all := make(map[int][]string)
	for p := range 8 {
		all[p] = slices.Repeat([]string{strings.Repeat("field=value;", 25)}, 1000)
	}
	const rounds = 20
	for range rounds {
		kit.Put(topic, all)
	}
	log := kit.K.Log(topic)
	records := 0
	for b.Loop() {
		got := kit.Read(log, kafkakit.Positions(0, ingest.AllPartitions(8)...), rounds*1000)
		for _, messages := range got {
			records += len(messages)
		}
	}
	if records != b.N*8*rounds*1000 {
		b.Fatalf("%d records read", records)
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkAppend64Partitions(b *testing.B) {
	kit := kafkakit.Bench(b)
	topic := kit.Topic(64)
	appender := kit.K.Appender(topic)
	var chunk []ingest.Batch
	for p := range 64 {
		chunk = append(chunk, ingest.Batch{Partition: p, Values: slices.Repeat([][]byte{[]byte(strings.Repeat("field=value;", 25))}, 32)})
	}
	for b.Loop() {
		if err := appender.Append(context.Background(), chunk); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*64*32)/b.Elapsed().Seconds(), "records/s")
}
