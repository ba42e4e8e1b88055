package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md), as far as Kafka uses it. weir frames
// by itself because the library's stream reader copies every block through a buffer of its own and sums up what the batch's
// checksum covers already: reading takes it 1.4 to 2.2 times as long (docs/performance.md, BenchmarkLZ4). Writing is about as
// fast either way; the blocks themselves are the library's work in both.

const (
	lz4Magic      = 0x184D2204
	lz4BlockBytes = 64 << 10 // of a frame that weir writes; as Kafka's own producer, for whose blocks brokers keep buffers

	lz4FlagVersion1        = 0x40
	lz4FlagIndependent     = 0x20
	lz4FlagBlockChecksum   = 0x10
	lz4FlagContentSize     = 0x08
	lz4FlagContentChecksum = 0x04

	lz4Stored = 1 << 31 // in a block's size: its data is not compressed
)

// lz4Header begins every frame that weir writes: magic, independent blocks without checksums, 64 KiB a block, and the
// checksum of these two bytes.
func lz4Header() []byte { return []byte{0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82} }

// appendLZ4 appends src as one frame. dst must not overlap src.
func appendLZ4(dst, src []byte, c *lz4.Compressor) ([]byte, error) {
	dst = append(dst, lz4Header()...)
	for len(src) > 0 {
		block := src[:min(len(src), lz4BlockBytes)]
		src = src[len(block):]
		at := len(dst)
		dst = growBy(dst, 4+lz4.CompressBlockBound(len(block)))
		n, err := c.CompressBlock(block, dst[at+4:])
		if err != nil {
			return nil, fmt.Errorf("lz4: %w", err)
		}
		size := uint32(n)
		if n == 0 || n >= len(block) {
			n = copy(dst[at+4:], block)
			size = uint32(n) | lz4Stored
		}
		binary.LittleEndian.PutUint32(dst[at:], size)
		dst = dst[:at+4+n]
	}
	return binary.LittleEndian.AppendUint32(dst, 0), nil
}

// appendUnLZ4 appends the decompressed bytes of src, exactly one frame, at most limit of them. known is false for a frame of
// a kind that it leaves to the library: blocks that refer to others, a dictionary, an old format, another frame behind.
// Checksums within the frame are passed over: the record batch has its own.
func appendUnLZ4(dst, src []byte, limit int) (out []byte, known bool, err error) {
	f, body, ok := openLZ4(src)
	if !ok {
		return dst, false, nil
	}
	start := len(dst)
	for {
		if len(body) < 4 {
			return dst, true, errors.New("lz4: the frame ends without its mark")
		}
		size := binary.LittleEndian.Uint32(body)
		body = body[4:]
		if size == 0 {
			break
		}
		n := int(size &^ lz4Stored)
		if n > f.block || len(body) < n+f.trailer {
			return dst, true, fmt.Errorf("lz4: a block of %d bytes, with %d left and %d allowed", n, len(body), f.block)
		}
		if dst, err = f.unpack(dst, body[:n], size&lz4Stored != 0); err != nil {
			return dst, true, err
		}
		if len(dst)-start > limit {
			return dst, true, fmt.Errorf("%w of %d bytes", errTooBig, limit)
		}
		body = body[n+f.trailer:]
	}
	return dst, len(body) == f.end, nil
}

// lz4Frame is what a frame's header says.
type lz4Frame struct {
	block   int // most bytes of a block, unpacked
	trailer int // bytes after each block
	end     int // bytes after the end mark
}

func openLZ4(src []byte) (f lz4Frame, body []byte, ok bool) {
	if len(src) < len(lz4Header()) || binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, nil, false
	}
	flags, size := src[4], src[5]>>4&7
	const mustBe, may = lz4FlagVersion1 | lz4FlagIndependent, lz4FlagBlockChecksum | lz4FlagContentSize | lz4FlagContentChecksum
	if flags&^may != mustBe || src[5]&^0x70 != 0 || size < 4 {
		return f, nil, false
	}
	f.block = 1 << (8 + 2*size)
	if flags&lz4FlagBlockChecksum != 0 {
		f.trailer = 4
	}
	if flags&lz4FlagContentChecksum != 0 {
		f.end = 4
	}
	body = src[6:]
	if flags&lz4FlagContentSize != 0 {
		if len(body) < 9 {
			return f, nil, false
		}
		body = body[8:]
	}
	return f, body[1:], true
}

// unpack appends one block.
func (f lz4Frame) unpack(dst, block []byte, stored bool) ([]byte, error) {
	if stored {
		return append(dst, block...), nil
	}
	at := len(dst)
	dst = growBy(dst, f.block)
	n, err := lz4.UncompressBlock(block, dst[at:])
	if err != nil {
		return dst[:at], fmt.Errorf("lz4: %w", err)
	}
	return dst[:at+n], nil
}
