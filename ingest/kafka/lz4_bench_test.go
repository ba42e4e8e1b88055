package kafka

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// BenchmarkLZ4 holds weir's framing beside the library's own, reader and writer reused as kafka-go reuses them, over batches of
// keyed records' usual sizes.
func BenchmarkLZ4(b *testing.B) {
	for _, records := range []int{10, 100, 3000} {
		var plain []byte
		for i := range records {
			line, err := json.Marshal(map[string]any{"id": fmt.Sprint("r", i*7919), "ip": fmt.Sprintf("192.0.2.%d", i%250), "path": "/v1/account/login",
				"device": fmt.Sprintf("tv-%d", i*31%997), "user": fmt.Sprint("u", i*131%5003), "status": 200 + i%5, "user_agent": "Mozilla/5.0 (X11; Linux x86_64)"})
			if err != nil {
				b.Fatal(err)
			}
			plain = append(plain, line...)
		}
		var c lz4.Compressor
		frame, err := appendLZ4(nil, plain, &c)
		if err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprintf("%dKiB", len(plain)>>10)
		b.Run("write/own/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				if dst, err = appendLZ4(dst[:0], plain, &c); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("write/library/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			w := lz4.NewWriter(nil)
			if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
				b.Fatal(err)
			}
			var dst bytes.Buffer
			for b.Loop() {
				dst.Reset()
				w.Reset(&dst)
				if _, err := w.Write(plain); err != nil {
					b.Fatal(err)
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("read/own/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				if dst, _, err = appendUnLZ4(dst[:0], frame, maxUnpackedBytes); err != nil || len(dst) != len(plain) {
					b.Fatal(err)
				}
			}
		})
		b.Run("read/library/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			r := lz4.NewReader(nil)
			var dst bytes.Buffer
			for b.Loop() {
				dst.Reset()
				r.Reset(bytes.NewReader(frame))
				if _, err := io.Copy(&dst, r); err != nil || dst.Len() != len(plain) {
					b.Fatal(err)
				}
			}
		})
	}
}
