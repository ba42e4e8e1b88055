package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/compress"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// madeBatch is one record batch for tests.
type madeBatch struct {
	base       int64
	values     []string
	ms         int64
	attributes int16
	maxTime    int64 // 0: ms
	lastDelta  int   // 0: by the values
	producer   int64
	edit       func(raw []byte) // before the checksum
	spoil      func(raw []byte) // after it
}

func (m madeBatch) bytes(t testing.TB) []byte {
	t.Helper()
	values := make([][]byte, len(m.values))
	for i, v := range m.values {
		values[i] = []byte(v)
	}
	set, err := new(packer).recordSet(values, m.ms)
	if err != nil {
		t.Fatal(err)
	}
	raw := set[4:]
	be := binary.BigEndian
	be.PutUint64(raw, uint64(m.base))
	be.PutUint16(raw[21:], be.Uint16(raw[21:])|uint16(m.attributes))
	if m.lastDelta > 0 {
		be.PutUint32(raw[23:], uint32(m.lastDelta))
	}
	if m.maxTime != 0 {
		be.PutUint64(raw[35:], uint64(m.maxTime))
	}
	if m.producer != 0 {
		be.PutUint64(raw[43:], uint64(m.producer))
	}
	if m.edit != nil {
		m.edit(raw)
	}
	be.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	if m.spoil != nil {
		m.spoil(raw)
	}
	return raw
}

// marker is a control batch that ends producer's transaction.
func marker(t testing.TB, base, producer int64, commit bool) []byte {
	t.Helper()
	m := madeBatch{base: base, values: []string{"x"}, attributes: attributeControl | attributeTransactional, producer: producer}
	raw := m.bytes(t)[:batchHeaderBytes]
	kind := byte(0)
	if commit {
		kind = 1
	}
	// A record with a key of version and type, and a value of version and coordinator epoch.
	record := []byte{0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 0, 0}
	raw = binary.AppendVarint(raw, int64(len(record)))
	raw = append(raw, record...)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func shown(messages []traffic.Message) []string {
	out := make([]string, len(messages))
	for i, m := range messages {
		out[i] = fmt.Sprintf("%d:%s", m.Offset, m.Value)
	}
	return out
}

// decodeCase is a record set and what a reader must make of it.
type decodeCase struct {
	name    string
	set     []byte
	asked   int64
	aborts  []abortedTransaction
	want    []string
	next    int64
	control int
	aborted int
}

func (tc decodeCase) check(t *testing.T, c *codecs) {
	got, err := decodeAll(3, tc.set, tc.asked, tc.aborts, c)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(shown(got.messages), tc.want) || got.next != tc.next || got.control != tc.control || got.aborted != tc.aborted {
		t.Errorf("got %v next %d control %d aborted %d, want %v next %d control %d aborted %d", shown(got.messages), got.next,
			got.control, got.aborted, tc.want, tc.next, tc.control, tc.aborted)
	}
	for _, m := range got.messages {
		if m.Partition != 3 {
			t.Errorf("partition %d, want 3", m.Partition)
		}
	}
}

func TestDecodeRecords(t *testing.T) {
	c := testCodecs(t, 1<<20)
	plain := madeBatch{base: 100, values: []string{"a", "b", "c"}, ms: 1000}.bytes(t)
	second := madeBatch{base: 103, values: []string{"d"}, ms: 2000}.bytes(t)
	spoilt := madeBatch{base: 103, values: []string{"d"}, spoil: func(raw []byte) { raw[len(raw)-2] ^= 1 }}.bytes(t)
	for _, tc := range []decodeCase{
		{name: "nothing", asked: 5, next: 5},
		{name: "two batches", set: slices.Concat(plain, second), asked: 100, want: []string{"100:a", "101:b", "102:c", "103:d"}, next: 104},
		{name: "below the asked offset", set: slices.Concat(plain, second), asked: 102, want: []string{"102:c", "103:d"}, next: 104},
		{name: "a batch wholly below", set: plain, asked: 200, next: 200},
		{name: "the last batch is cut", set: slices.Concat(plain, second[:68]), asked: 100, want: []string{"100:a", "101:b", "102:c"}, next: 103},
		{name: "cut within the header", set: slices.Concat(plain, second[:20]), asked: 100, want: []string{"100:a", "101:b", "102:c"}, next: 103},
		{name: "only a cut batch", set: plain[:65], asked: 100, next: 100},
		{name: "compacted away at the end of a batch", set: madeBatch{base: 100, values: []string{"a"}, lastDelta: 9}.bytes(t),
			asked: 100, want: []string{"100:a"}, next: 110},
		{name: "a bad batch after a good one", set: slices.Concat(plain, spoilt), asked: 100, want: []string{"100:a", "101:b", "102:c"}, next: 103},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, c) })
	}
}

// Room is made for what stands there whole, whatever the head of a batch that is cut off says.
func TestAnnouncedRecords(t *testing.T) {
	whole := madeBatch{base: 100, values: []string{"aaaaaaaa", "bbbbbbbb", "cccccccc"}, ms: 1000}.bytes(t)
	many := madeBatch{base: 103, values: []string{strings.Repeat("d", 1000)}, edit: func(raw []byte) { binary.BigEndian.PutUint32(raw[57:], math.MaxInt32) }}.bytes(t)
	none := madeBatch{base: 103, values: []string{"e"}, edit: func(raw []byte) { binary.BigEndian.PutUint32(raw[57:], math.MaxUint32) }}.bytes(t)
	for _, tc := range []struct {
		name string
		set  []byte
		want int
	}{
		{"nothing", nil, 0},
		{"two", slices.Concat(whole, whole), 6},
		{"a cut one", slices.Concat(whole, many[:len(many)-1]), 3},
		{"more than there is room for", many, len(many) / leastRecordBytes},
		{"fewer than none", slices.Concat(none, whole), 3},
		{"a length that leads back", append(slices.Clone(whole[:8]), make([]byte, 100)...), 0},
	} {
		if got := recordHint(tc.set); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestDecodeRecordsOfTransactions(t *testing.T) {
	c := testCodecs(t, 1<<20)
	of := func(base, producer int64, values ...string) []byte {
		return madeBatch{base: base, values: values, attributes: attributeTransactional, producer: producer}.bytes(t)
	}
	for _, tc := range []decodeCase{
		{name: "commit marker", set: slices.Concat(of(102, 8, "k"), marker(t, 103, 8, true)), asked: 102,
			want: []string{"102:k"}, next: 104, control: 1},
		{name: "only a marker", set: marker(t, 103, 8, true), asked: 103, next: 104, control: 1},
		{name: "aborted, then the producer's next transaction", set: slices.Concat(of(100, 7, "x", "y"), of(102, 8, "k"),
			marker(t, 103, 7, false), marker(t, 104, 8, true), of(105, 7, "z")), asked: 100,
			aborts: []abortedTransaction{{producer: 7, first: 100}}, want: []string{"102:k", "105:z"}, next: 106, control: 2, aborted: 2},
		{name: "aborted from before the asked offset, told out of order", set: slices.Concat(of(102, 8, "k"), of(103, 7, "x")), asked: 102,
			aborts: []abortedTransaction{{producer: 9, first: 500}, {producer: 7, first: 50}}, want: []string{"102:k"}, next: 104, aborted: 1},
		{name: "records of a producer outside a transaction are not touched by its id",
			set: madeBatch{base: 100, values: []string{"a"}, producer: 7}.bytes(t), asked: 100,
			aborts: []abortedTransaction{{producer: 7, first: 100}}, want: []string{"100:a"}, next: 101},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, c) })
	}
}

func TestDecodeRecordsTimes(t *testing.T) {
	c := testCodecs(t, 1<<20)
	for _, tc := range []struct {
		name  string
		batch madeBatch
		want  traffic.Time
	}{
		{"the producer's", madeBatch{values: []string{"a"}, ms: 1234, maxTime: 9999}, 1_234_000},
		{"the broker's", madeBatch{values: []string{"a"}, ms: 1234, maxTime: 9999, attributes: attributeLogAppendTime}, 9_999_000},
		{"too late for microseconds", madeBatch{values: []string{"a"}, ms: math.MaxInt64}, math.MaxInt64 / 1000 * 1000},
		{"too early for microseconds", madeBatch{values: []string{"a"}, ms: math.MinInt64}, -(math.MaxInt64 / 1000 * 1000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeAll(0, tc.batch.bytes(t), 0, nil, c)
			if err != nil || len(got.messages) != 1 || got.messages[0].Appended != tc.want {
				t.Errorf("got %v, %v, want one message of %d", got.messages, err, tc.want)
			}
		})
	}
}

func TestDecodeRecordsCorrupt(t *testing.T) {
	c := testCodecs(t, 1<<20)
	be := binary.BigEndian
	for _, tc := range []struct {
		name  string
		batch madeBatch
		want  string
	}{
		{"old format", madeBatch{spoil: func(raw []byte) { raw[16] = 1 }}, "message format 1"},
		{"checksum", madeBatch{spoil: func(raw []byte) { raw[70]++ }}, "CRC-32C"},
		{"length shorter than a header", madeBatch{spoil: func(raw []byte) { be.PutUint32(raw[8:], 48) }}, "less than a header"},
		{"negative length", madeBatch{spoil: func(raw []byte) { be.PutUint32(raw[8:], 1<<31) }}, "less than a header"},
		{"negative offset", madeBatch{base: -1}, "at offset -1"},
		{"offsets that overflow", madeBatch{base: math.MaxInt64 - 1, lastDelta: 5}, "last delta 5"},
		{"more records than there are", madeBatch{edit: func(raw []byte) { be.PutUint32(raw[57:], 1<<30) }}, "is cut"},
		{"fewer records than there are", madeBatch{edit: func(raw []byte) { be.PutUint32(raw[57:], 1) }}, "after the last record"},
		{"negative count", madeBatch{edit: func(raw []byte) { be.PutUint32(raw[57:], 1<<31) }}, "-2147483648 records"},
		{"delta beyond the last", madeBatch{edit: func(raw []byte) { be.PutUint32(raw[23:], 0) }}, "the last is 0"},
		{"delta repeated", madeBatch{edit: func(raw []byte) { raw[61+10+3] = 0 }}, "offset delta 0 after 0"},
		{"record length beyond the end", madeBatch{edit: func(raw []byte) { raw[61] = 0x7e }}, "is cut"},
		{"record length that never ends", madeBatch{edit: func(raw []byte) { copy(raw[61:], bytes.Repeat([]byte{0xff}, 11)) }}, "is cut"},
		{"value length below -1", madeBatch{edit: func(raw []byte) { raw[61+5] = 3 }}, "is cut"},
		{"unknown codec", madeBatch{attributes: 7}, "unknown compression codec 7"},
		{"not what the codec says", madeBatch{attributes: int16(compress.Lz4)}, "lz4"},
		{"control batch without a key", madeBatch{attributes: attributeControl}, "control key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.batch.values = []string{"aaa", "bbb"}
			got, err := decodeAll(0, tc.batch.bytes(t), 0, nil, c)
			if !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want a corrupt batch with %q", err, tc.want)
			}
			if len(got.messages) != 0 || got.next != 0 {
				t.Errorf("got %v and next %d beside the error", got.messages, got.next)
			}
		})
	}
}

func FuzzDecodeRecords(f *testing.F) {
	for _, codec := range []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		f.Add(kafkaGoBatch(f, codec, "a", strings.Repeat("b", 100), ""), int64(1), int64(0))
	}
	f.Add(slices.Concat(madeBatch{base: 9, values: []string{"x"}, attributes: attributeTransactional, producer: 7}.bytes(f), marker(f, 10, 7, false)), int64(9), int64(9))
	const limit = 1 << 20
	c := testCodecs(f, limit)
	f.Fuzz(func(t *testing.T, set []byte, asked, aborted int64) {
		// The checksum would keep the fuzzer out of everything behind it.
		if len(set) > batchHeaderBytes {
			if n := int64(binary.BigEndian.Uint32(set[8:])) + 12; n >= batchHeaderBytes && n <= int64(len(set)) {
				set = slices.Clone(set)
				binary.BigEndian.PutUint32(set[17:], crc32.Checksum(set[21:n], crc32.MakeTable(crc32.Castagnoli)))
			}
		}
		got, err := decodeAll(0, set, asked, []abortedTransaction{{producer: 7, first: aborted}}, c)
		if err != nil && (len(got.messages) > 0 || got.next != asked) {
			t.Errorf("answers beside the error %v", err)
		}
		if got.next < asked {
			t.Errorf("next %d is before the asked offset %d", got.next, asked)
		}
		before := asked - 1
		for _, m := range got.messages {
			if m.Offset <= before && asked != math.MinInt64 || m.Offset >= got.next {
				t.Errorf("offset %d after %d, next %d", m.Offset, before, got.next)
			}
			before = m.Offset
		}
	})
}

// decodeAll is decodeRecords without a bound.
func decodeAll(partition int, set []byte, asked int64, aborts []abortedTransaction, c *codecs) (recordSet, error) {
	return decodeRecords(nil, ingest.Position{Partition: partition, Offset: asked}, set, aborts, c)
}
