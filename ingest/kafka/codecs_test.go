package kafka

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/weirhq/weir/traffic"
)

// kafkaGoBatch is a batch by kafka-go's encoder: what other producers write, keys and headers included.
func kafkaGoBatch(t testing.TB, codec compress.Compression, values ...string) []byte {
	t.Helper()
	records := make([]protocol.Record, len(values))
	for i, v := range values {
		records[i] = protocol.Record{
			Time: time.UnixMilli(int64(1000 + i)), Key: protocol.NewBytes([]byte("key")), Value: protocol.NewBytes([]byte(v)),
			Headers: []protocol.Header{{Key: "h", Value: []byte("v")}},
		}
	}
	set := protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(codec), Records: protocol.NewRecordReader(records...)}
	var out bytes.Buffer
	if _, err := set.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()[4:]
}

func TestDecodeAllCodecs(t *testing.T) {
	c := testCodecs(t, 16<<20)
	long := strings.Repeat("0123456789", 50_000)
	for _, codec := range []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			got, err := decodeAll(0, kafkaGoBatch(t, codec, "a", long, ""), 0, nil, c)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.messages) != 3 || string(got.messages[0].Value) != "a" || string(got.messages[1].Value) != long || len(got.messages[2].Value) != 0 {
				t.Errorf("got %d messages, not the three that were written", len(got.messages))
			}
			for i, m := range got.messages {
				if m.Offset != int64(i) || m.Appended != traffic.Time(1_000_000+1000*i) {
					t.Errorf("message %d has offset %d and time %d", i, m.Offset, m.Appended)
				}
			}
		})
	}
}

// A batch that decompresses to more than the limit is refused without taking the memory.
func TestDecompressLimit(t *testing.T) {
	const limit = 16 << 20
	c := testCodecs(t, limit)
	bomb := strings.Repeat("0", 2*limit)
	for _, codec := range []compress.Compression{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			if _, err := decodeAll(0, kafkaGoBatch(t, codec, bomb), 0, nil, c); !errors.Is(err, errCorrupt) {
				t.Errorf("error %v, want the batch refused", err)
			}
		})
	}
	if _, err := c.decompress(int16(compress.Snappy), binary.AppendUvarint(nil, 1<<31)); !errors.Is(err, errTooBig) {
		t.Errorf("bare snappy block of 2 GiB in five bytes: %v, want it refused for its size", err)
	}
}

// kafka-go reads what weir writes.
func TestRecordSetIsReadByOthers(t *testing.T) {
	p := new(packer)
	for _, values := range [][]string{{"a"}, {"", "b", "c"}, {strings.Repeat("z", 5000), "y"}, slices.Repeat([]string{"event"}, 1000), {incompressible(5000)},
		{incompressible(70_000), strings.Repeat("0123", 50_000)}} {
		raw := make([][]byte, len(values))
		for i, v := range values {
			raw[i] = []byte(v)
		}
		set, err := p.recordSet(raw, 5000)
		if err != nil {
			t.Fatal(err)
		}
		var read protocol.RecordSet
		if _, err := read.ReadFrom(bytes.NewReader(set)); err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			record, err := read.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				if i != len(values) {
					t.Errorf("%d records, want %d", i, len(values))
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			value, err := protocol.ReadAll(record.Value)
			if err != nil || string(value) != values[i] || record.Offset != int64(i) || record.Time.UnixMilli() != 5000 {
				t.Errorf("record %d: offset %d, time %v, value of %d bytes, %v", i, record.Offset, record.Time, len(value), err)
			}
		}
	}
	if _, err := p.recordSet(nil, 0); err == nil {
		t.Error("an empty batch was encoded; Kafka closes the connection on those")
	}
}

func testCodecs(t testing.TB, limit int) *codecs {
	t.Helper()
	c, err := newCodecs(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// incompressible returns n random bytes.
func incompressible(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}
