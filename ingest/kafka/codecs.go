package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
)

// maxUnpackedBytes bounds what one batch may decompress to. Far above what max.message.bytes lets in with honest data; it
// is there so that a few hostile megabytes cannot take all the memory.
const maxUnpackedBytes = 256 << 20

// maxZstdWindow is the largest window of zstd's own levels (128 MiB, level 22); the format allows terabytes.
const maxZstdWindow = 128 << 20

var errTooBig = errors.New("decompresses to more than the limit")

// codecs decompresses record batches, each to at most limit bytes. It is safe for concurrent use.
type codecs struct {
	limit   int
	zstd    *zstd.Decoder
	scratch sync.Pool // of *[]byte: what a batch is unpacked into before its size is known
}

// newCodecs uses the library behind kafka-go's zstd codec directly, because that codec sets no bound on memory.
func newCodecs(limit int) (*codecs, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(limit)), zstd.WithDecoderMaxWindow(max(zstd.MinWindowSize, min(maxZstdWindow, uint64(limit)))))
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	return &codecs{limit: limit, zstd: decoder}, nil
}

func (c *codecs) close() { c.zstd.Close() }

// decompress returns the records of a batch: src itself, or a new buffer.
func (c *codecs) decompress(codec int16, src []byte) ([]byte, error) {
	switch compress.Compression(codec) {
	case compress.None:
		return src, nil
	case compress.Zstd:
		out, err := c.zstd.DecodeAll(src, nil)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			err = fmt.Errorf("%w of %d bytes (%w)", errTooBig, c.limit, err)
		}
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return out, nil
	case compress.Snappy:
		// The codec allocates what lengths inside the data say, so they are looked at first.
		if err := checkSnappy(src, c.limit); err != nil {
			return nil, fmt.Errorf("snappy: %w", err)
		}
	case compress.Lz4:
		if out, known, err := c.unLZ4(src); known {
			return out, err
		}
	case compress.Gzip:
	default:
		return nil, fmt.Errorf("unknown compression codec %d: want 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd", codec)
	}
	stream := compress.Compression(codec).Codec().NewReader(bytes.NewReader(src))
	out, err := readLimited(stream, len(src), c.limit)
	if closeErr := stream.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", compress.Compression(codec), err)
	}
	return out, nil
}

// unLZ4 unpacks a frame into a buffer of its own that is as large as it must be: records keep it alive.
func (c *codecs) unLZ4(src []byte) (out []byte, known bool, err error) {
	scratch, ok := c.scratch.Get().(*[]byte)
	if !ok {
		scratch = new([]byte)
	}
	*scratch, known, err = appendUnLZ4((*scratch)[:0], src, c.limit)
	if known && err == nil {
		out = bytes.Clone(*scratch)
	}
	if cap(*scratch) <= packerKeeps {
		c.scratch.Put(scratch)
	}
	return out, known, err
}

// readLimited reads all of r, growing as the data comes and not as anything in it says.
func readLimited(r io.Reader, compressed, limit int) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, min(4*compressed+bytes.MinRead, limit)))
	n, err := out.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("%w of %d bytes", errTooBig, limit)
	}
	return out.Bytes(), nil
}

// checkSnappy bounds the lengths inside snappy data, in Kafka's two forms: one bare block, or xerial's framing of many.
func checkSnappy(src []byte, limit int) error {
	const xerialHeader = 16
	if len(src) < xerialHeader || !bytes.HasPrefix(src, []byte("\x82SNAPPY\x00")) {
		_, err := snappyBlock(src, limit)
		return err
	}
	total := 0
	for rest := src[xerialHeader:]; len(rest) > 0; {
		if len(rest) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := int64(binary.BigEndian.Uint32(rest))
		if rest = rest[4:]; size > int64(len(rest)) {
			return io.ErrUnexpectedEOF
		}
		n, err := snappyBlock(rest[:size], limit-total)
		if err != nil {
			return err
		}
		total += n
		rest = rest[size:]
	}
	return nil
}

// snappyBlock returns the length a block says it has when decompressed.
func snappyBlock(block []byte, limit int) (int, error) {
	// The densest element is a copy of 64 bytes in three: a block that promises more is lying.
	const densest = 64
	size, n := binary.Uvarint(block)
	if n <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if size > uint64(limit) || size > densest*uint64(len(block)) {
		return 0, fmt.Errorf("%w: a block of %d bytes says %d", errTooBig, len(block), size)
	}
	return int(size), nil
}

// growBy lengthens b by n bytes, whatever they hold.
func growBy(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		bigger := make([]byte, len(b), max(2*cap(b), len(b)+n))
		copy(bigger, b)
		b = bigger
	}
	return b[:len(b)+n]
}
