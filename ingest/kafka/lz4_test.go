package kafka

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"pgregory.net/rapid"
)

// framed is data as the library's stream writer frames it.
func framed(t interface{ Fatal(...any) }, data []byte, options ...lz4.Option) []byte {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	if err := w.Apply(options...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// lumpy draws data of some blocks, parts of which compress well and parts not at all.
func lumpy(t *rapid.T) []byte {
	var out []byte
	for range rapid.IntRange(0, 4).Draw(t, "pieces") {
		n := rapid.SampledFrom([]int{1, 20, 1000, lz4BlockBytes - 1, lz4BlockBytes, 150_000}).Draw(t, "length")
		if piece := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "piece"); rapid.Bool().Draw(t, "repeats") {
			out = append(out, bytes.Repeat(piece, 1+n/len(piece))...)
		} else {
			seed := uint32(piece[0]) + 1
			for range n {
				seed = seed*1664525 + 1013904223
				out = append(out, byte(seed>>24))
			}
		}
	}
	return out
}

func TestLZ4Frames(t *testing.T) {
	var c lz4.Compressor
	rapid.Check(t, func(t *rapid.T) {
		data := lumpy(t)
		frame, err := appendLZ4([]byte("before"), data, &c)
		if err != nil || string(frame[:6]) != "before" {
			t.Fatalf("%v, %q", err, frame[:6])
		}
		frame = frame[6:]
		if got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(frame))); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("the library reads %d of %d bytes, %v", len(got), len(data), err)
		}
		other := framed(t, data,
			lz4.BlockSizeOption(rapid.SampledFrom([]lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb}).Draw(t, "block")),
			lz4.ChecksumOption(rapid.Bool().Draw(t, "checksum")), lz4.BlockChecksumOption(rapid.Bool().Draw(t, "block checksum")),
			lz4.SizeOption(uint64(rapid.SampledFrom([]int{0, len(data)}).Draw(t, "size"))))
		for _, f := range [][]byte{frame, other} {
			got, known, err := appendUnLZ4([]byte("before"), f, len(data))
			if err != nil || !known || string(got[:6]) != "before" || !bytes.Equal(got[6:], data) {
				t.Fatalf("%d of %d bytes, known: %v, %v", len(got)-6, len(data), known, err)
			}
			if len(data) > 0 {
				if _, _, err := appendUnLZ4(nil, f, len(data)-1); !errors.Is(err, errTooBig) {
					t.Fatalf("a byte too much: %v", err)
				}
			}
			cut := f[:len(f)-rapid.IntRange(1, len(f)-1).Draw(t, "cut")]
			if _, known, err := appendUnLZ4(nil, cut, len(data)); known && err == nil {
				t.Fatal("half a frame was taken for a whole one")
			}
		}
	})
}

// What the frame reader does not know goes to the library.
func TestLZ4Unknown(t *testing.T) {
	data := []byte(strings.Repeat("event", 1000))
	frame := framed(t, data)
	for name, f := range map[string][]byte{
		"two frames": bytes.Repeat(frame, 2), "legacy": framed(t, data, lz4.LegacyOption(true)), "short": frame[:6], "nothing": nil,
	} {
		if _, known, err := appendUnLZ4(nil, f, 1<<20); known || err != nil {
			t.Errorf("%s: known: %v, %v", name, known, err)
		}
	}
	if got, err := testCodecs(t, 1<<20).decompress(3, bytes.Repeat(frame, 2)); err != nil || len(got) < len(data) {
		t.Errorf("two frames: %d bytes, %v", len(got), err)
	}
}

func FuzzUnLZ4(f *testing.F) {
	data := []byte(strings.Repeat("0123456789", 20_000))
	f.Add(framed(f, data))
	f.Add(framed(f, data[:100], lz4.ChecksumOption(false), lz4.BlockChecksumOption(true)))
	frame, err := appendLZ4(nil, data, new(lz4.Compressor))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, frame []byte) {
		const limit = 1 << 20
		got, known, err := appendUnLZ4(nil, frame, limit)
		if !known || err != nil {
			return
		}
		if len(got) > limit {
			t.Fatalf("%d bytes, allowed %d", len(got), limit)
		}
		// The library also checks what the record batch's own checksum covers; where it is content, so are we.
		if want, err := io.ReadAll(io.LimitReader(lz4.NewReader(bytes.NewReader(frame)), limit+1)); err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, the library reads %d", len(got), len(want))
		}
	})
}
