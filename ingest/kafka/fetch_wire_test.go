package kafka

import (
	"encoding/binary"
	"slices"
	"testing"
)

func FuzzDecodeFetchResponse(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, int16(11))
	f.Add(fetchAnswer(11, fetchedPartition{partition: 3, highWatermark: 9, logStart: 1, records: []byte("xyz"),
		aborted: []abortedTransaction{{producer: 1, first: 2}}}), int16(11))
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		response, err := decodeFetchResponse(body, version)
		if err != nil {
			return
		}
		total := 0
		for _, p := range response.partitions {
			total += len(p.records) + 30
		}
		if total > len(body) {
			t.Errorf("%d bytes of answer out of %d", total, len(body))
		}
	})
}

// fetchAnswer encodes a Fetch answer for one topic, without size and correlation id.
func fetchAnswer(version int16, partitions ...fetchedPartition) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(nil, 0)
	if version >= 7 {
		b = append(b, 0, 0, 0, 0, 0, 0)
	}
	b = be.AppendUint32(b, 1)
	b = appendKafkaString(b, "topic")
	b = be.AppendUint32(b, uint32(len(partitions)))
	for _, p := range partitions {
		b = be.AppendUint32(b, uint32(p.partition))
		b = be.AppendUint16(b, uint16(p.code))
		b = be.AppendUint64(b, uint64(p.highWatermark))
		b = be.AppendUint64(b, uint64(p.highWatermark))
		b = be.AppendUint64(b, uint64(p.logStart))
		b = be.AppendUint32(b, uint32(len(p.aborted)))
		for _, a := range p.aborted {
			b = be.AppendUint64(b, uint64(a.producer))
			b = be.AppendUint64(b, uint64(a.first))
		}
		if version >= 11 {
			b = be.AppendUint32(b, ^uint32(0))
		}
		b = be.AppendUint32(b, uint32(len(p.records)))
		b = append(b, p.records...)
	}
	return b
}

func TestDecodeFetchResponse(t *testing.T) {
	for version := int16(leastFetchVersion); version <= mostFetchVersion; version++ {
		body := fetchAnswer(version,
			fetchedPartition{partition: 1, code: 6, highWatermark: -1, logStart: -1},
			fetchedPartition{partition: 2, highWatermark: 90, logStart: 10, records: []byte("records"), aborted: []abortedTransaction{{producer: 5, first: 20}}},
		)
		got, err := decodeFetchResponse(body, version)
		if err != nil || len(got.partitions) != 2 {
			t.Fatalf("version %d: %v, %v", version, got, err)
		}
		p := got.partitions[1]
		if got.partitions[0].code != 6 || p.partition != 2 || p.highWatermark != 90 || p.logStart != 10 || string(p.records) != "records" ||
			!slices.Equal(p.aborted, []abortedTransaction{{producer: 5, first: 20}}) {
			t.Errorf("version %d: %+v", version, got.partitions)
		}
		for n := range body {
			if _, err := decodeFetchResponse(body[:n], version); err == nil {
				t.Errorf("version %d: %d of %d bytes were enough", version, n, len(body))
			}
		}
	}
}
