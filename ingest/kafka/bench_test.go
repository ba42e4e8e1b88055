package kafka

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/ingest"
)

func BenchmarkFetch(b *testing.B) {
	kit := kitFor(b, benchBrokers(b))
	topic := kit.topic(8)
	all := make(map[int][]string)
	for p := range 8 {
		all[p] = slices.Repeat([]string{strings.Repeat("field=value;", 25)}, 1000)
	}
	const rounds = 20
	for range rounds {
		kit.put(topic, all)
	}
	log := kit.k.Log(topic)
	records := 0
	for b.Loop() {
		got := kit.read(log, positions(0, numbers(8)...), rounds*1000)
		for _, messages := range got {
			records += len(messages)
		}
	}
	if records != b.N*8*rounds*1000 {
		b.Fatalf("%d records read", records)
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkDecodeRecords(b *testing.B) {
	c := testCodecs(b, maxUnpackedBytes)
	values := slices.Repeat([][]byte{[]byte(strings.Repeat("field=value;", 25))}, 1000)
	set, err := new(packer).recordSet(values, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, err := decodeAll(0, set[4:], 0, nil, c); err != nil || len(got.messages) != len(values) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(values)), "ns/record")
}

func BenchmarkRecordSet(b *testing.B) {
	values := slices.Repeat([][]byte{[]byte(strings.Repeat("field=value;", 25))}, 1000)
	c, p := testCodecs(b, maxUnpackedBytes), new(packer)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.recordSet(values, 1); err != nil {
			b.Fatal(err)
		}
	}
	if got, err := decodeAll(0, p.set[4:], 0, nil, c); err != nil || len(got.messages) != len(values) {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(values)), "ns/record")
}

func BenchmarkAppend64Partitions(b *testing.B) {
	kit := kitFor(b, benchBrokers(b))
	topic := kit.topic(64)
	appender := kit.k.Appender(topic)
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
