package kafka

import (
	"slices"
	"strings"
	"testing"
)

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
