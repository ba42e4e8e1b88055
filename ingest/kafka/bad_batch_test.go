package kafka

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/ingest"
)

// rotted are damages of a batch's bytes.
func rotted(kind string) func(raw []byte) {
	be := binary.BigEndian
	return map[string]func(raw []byte){
		"record":     func(raw []byte) { raw[len(raw)-1]++ },
		"base":       func(raw []byte) { be.PutUint64(raw, be.Uint64(raw)+1000); raw[70]++ },
		"last delta": func(raw []byte) { be.PutUint32(raw[23:], 1<<20) },
		"format":     func(raw []byte) { raw[16] = 1 },
		"future":     func(raw []byte) { raw[16] = 3 },
	}[kind]
}

// TestBehindBadBatch: where the log goes on behind what does not decode.
func TestBehindBadBatch(t *testing.T) {
	be := binary.BigEndian
	good := madeBatch{base: 20, values: []string{"x"}}
	cut := func(b []byte, n int) []byte { return b[:n] }
	bad := func(spoil func([]byte)) []byte {
		return madeBatch{base: 10, values: []string{"a", "b", "c"}, spoil: spoil}.bytes(t)
	}
	for _, tc := range []struct {
		name  string
		set   []byte
		asked int64
		want  int64
	}{
		{"a record, and a neighbour", slices.Concat(bad(rotted("record")), good.bytes(t)), 10, 20},
		{"a record, alone", bad(rotted("record")), 10, 13},
		{"asked for in its middle", bad(rotted("record")), 12, 13},
		{"its own last offset, and a neighbour", slices.Concat(bad(rotted("last delta")), good.bytes(t)), 10, 20},
		{"its own last offset, alone: it says more than the log holds", bad(rotted("last delta")), 10, ingest.NoOffset},
		{"its base offset, and a neighbour", slices.Concat(bad(rotted("base")), good.bytes(t)), 10, 20},
		{"of a newer format", slices.Concat(bad(rotted("future")), good.bytes(t)), 10, 20},
		{"two of them are one gap", slices.Concat(bad(rotted("record")), madeBatch{base: 13, values: []string{"d"}, spoil: rotted("record")}.bytes(t), good.bytes(t)), 10, 20},
		{"a neighbour that is cut", slices.Concat(bad(rotted("record")), cut(good.bytes(t), 30)), 10, 13},
		{"a length beyond the answer", bad(func(raw []byte) { be.PutUint32(raw[8:], 1<<20) }), 10, ingest.NoOffset},
		{"a length of nothing", bad(func(raw []byte) { be.PutUint32(raw[8:], 0) }), 10, ingest.NoOffset},
		{"its records only: its header is right", madeBatch{base: 10, values: []string{"a", "b", "c"}, attributes: 7}.bytes(t), 10, 13},
		{"its records only, and a neighbour", slices.Concat(madeBatch{base: 10, values: []string{"a"}, attributes: 7, lastDelta: 4}.bytes(t), good.bytes(t)), 10, 15},
		{"nothing", nil, 10, ingest.NoOffset},
	} {
		if got := behindBad(tc.set, tc.asked, 100); got != tc.want {
			t.Errorf("%s: it goes on at %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestReadingGoesOnBehindBadBatches: with each gap accepted as it is reported, a reader gets everything that does decode,
// once, whatever is damaged, and however the broker cuts its answers.
func TestReadingGoesOnBehindBadBatches(t *testing.T) {
	c := testCodecs(t, 1<<20)
	rapid.Check(t, func(rt *rapid.T) {
		var batches [][]byte
		var last, truly []int64 // the offset that a batch ends with, as it says and as it is
		want, high := []int64{}, int64(0)
		for i, n := 0, rapid.IntRange(1, 8).Draw(rt, "batches"); i < n; i++ {
			values := make([]string, rapid.IntRange(1, 3).Draw(rt, "records"))
			b := madeBatch{base: high, values: values}
			kind := rapid.SampledFrom([]string{"", "", "record", "last delta", "format", "future"}).Draw(rt, "damage")
			if kind != "" {
				b.spoil = rotted(kind)
			}
			if kind == "format" { // an old message is one record
				values = values[:1]
				b.values = values
			}
			raw := b.bytes(t)
			end, _, _ := cutEntry(raw)
			for range values {
				if kind == "" {
					want = append(want, high)
				}
				high++
			}
			batches, last, truly = append(batches, raw), append(last, end), append(truly, high-1)
		}
		// answer is what a broker sends: from the first batch on that says it ends at asked or later, far enough for asked.
		answer := func(asked int64) []byte {
			holds := slices.IndexFunc(truly, func(end int64) bool { return end >= asked })
			from := slices.IndexFunc(last, func(end int64) bool { return end >= asked })
			if from < 0 {
				return nil
			}
			return slices.Concat(batches[from:min(len(batches), max(from, holds)+rapid.IntRange(2, 8).Draw(rt, "sent"))]...)
		}
		got := []int64{}
		asked := int64(0)
		for step := 0; asked < high && step < 100; step++ {
			set := answer(asked)
			r, err := decodeAll(0, set, asked, nil, c)
			for _, m := range r.messages {
				got = append(got, m.Offset)
			}
			if err == nil {
				if r.next == asked {
					rt.Fatalf("nothing to read at %d of %d, and no error", asked, high)
				}
				asked = r.next
				continue
			}
			next := behindBad(set, asked, high)
			if next == ingest.NoOffset {
				return // the end of the log, or of the answer: nobody can tell where it goes on
			}
			if next <= asked || next > high {
				rt.Fatalf("behind %d it goes on at %d, the log ends at %d", asked, next, high)
			}
			asked = next
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("read %v, want %v", got, want)
		}
	})
}
