package backtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirhq/weir/traffic"
)

const (
	blockBytes = 64 << 10 // of lines that are decoded together
	// aheadBytes are read ahead of what unpacks: much less than a block, so that plain text is read into its block at once.
	aheadBytes = 32 << 10
	// maxZstdWindow bounds the memory that a zstd file may ask for.
	maxZstdWindow = 128 << 20
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	utf8BOM   = []byte{0xef, 0xbb, 0xbf}
)

// block is a stretch of whole lines of one file, and what became of them. Its memory is used again.
type block struct {
	file  int
	first bool   // of its file
	text  []byte // whole lines, the last perhaps without its line feed
	// oversized is the size of a line that is longer than allowed: text is the start of that line alone, then.
	oversized int
	broken    error // why the file ends behind this block; nil at its end, and between blocks
	// messages are the block, instead of text, where a live topic is read: of all partitions, in the order of their coming.
	messages []traffic.Message

	decoded chan struct{} // holds a token once the decoder is done
	decoding
}

// blockReader cuts files into blocks.
type blockReader struct {
	free  <-chan *block
	limit int // bytes of a line
	read  *atomic.Int64
	give  func(*block) error // in order
}

// file reads one file to its end. The error is ctx's, that of give, or that of opening the file; a file that breaks off
// ends with its last block.
func (r *blockReader) file(ctx context.Context, index int, f *File) (err error) {
	from, err := f.Open()
	if err != nil {
		return err
	}
	closing := sync.OnceValue(from.Close)
	defer func() { _ = closing() }() // it was only read
	defer context.AfterFunc(ctx, func() { _ = closing() })()
	in := bufio.NewReaderSize(&countedReader{from, r.read}, aheadBytes)
	plain, done, err := unpacked(in)
	defer done()
	cut := cutter{blockReader: r, ctx: ctx, file: index, first: true, in: plain, broken: err}
	return cut.all()
}

// unpacked tells by the first bytes whether in is compressed.
func unpacked(in *bufio.Reader) (plain io.Reader, done func(), err error) {
	magic, _ := in.Peek(len(zstdMagic)) // an error comes again with the first Read
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, func() {}, fmt.Errorf("not readable as gzip: %w", err)
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.Equal(magic, zstdMagic):
		// No goroutines of its own: a run that is interrupted leaves none behind.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, func() {}, fmt.Errorf("not readable as zstd: %w", err)
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// cutter cuts one file.
type cutter struct {
	*blockReader
	ctx    context.Context // of the run; a cutter lives as long as one call
	file   int
	first  bool
	in     io.Reader
	broken error
	rest   []byte // the start of a line, of the block before
	marked bool   // a byte order mark was looked for
}

func (c *cutter) all() error {
	for ended := false; !ended; {
		b, err := c.block()
		if err != nil {
			return err
		}
		b.text = append(b.text[:0], c.rest...)
		c.rest = c.rest[:0]
		if c.broken == nil {
			ended, err = c.fill(b)
		}
		if ended || c.broken != nil {
			ended, b.broken = true, c.broken
			if c.broken != nil { // what stands behind the last line feed was cut off
				b.text = b.text[:bytes.LastIndexByte(b.text, '\n')+1]
			}
		}
		if err == nil {
			err = c.give(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// block takes a free one.
func (c *cutter) block() (*block, error) {
	select {
	case b := <-c.free:
		b.file, b.first, b.oversized, b.broken = c.file, c.first, 0, nil
		c.first = false
		return b, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

// fill reads until the block is full or the file ends, and keeps the start of a line that goes on for the next block.
func (c *cutter) fill(b *block) (ended bool, err error) {
	for full := max(blockBytes, min(2*len(b.text), c.limit+2)); ; { // the block before may have left more than a block
		b.text = grown(b.text, full)
		n, err := c.in.Read(b.text[len(b.text):full])
		b.text = b.text[:len(b.text)+n]
		c.cutMark(b, err != nil)
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case c.ctx.Err() != nil:
			return true, c.ctx.Err()
		case err != nil:
			c.broken = err
			return true, nil
		case len(b.text) < full: // so blocks do not depend on how the file is read
			continue
		}
		if at := bytes.LastIndexByte(b.text, '\n'); at >= 0 {
			c.rest = append(c.rest[:0], b.text[at+1:]...)
			b.text = b.text[:at+1]
			return false, nil
		}
		if len(b.text) > c.limit+1 { // room for a CR
			return c.skip(b)
		}
		full = min(2*full, c.limit+2)
	}
}

// grown is b with room for n bytes in all.
func grown(b []byte, n int) []byte {
	if cap(b) >= n {
		return b
	}
	return append(make([]byte, 0, max(n, 2*len(b))), b...)
}

// cutMark drops a byte order mark at the start of the file.
func (c *cutter) cutMark(b *block, last bool) {
	if c.marked || len(b.text) < len(utf8BOM) && !last {
		return
	}
	c.marked = true
	if bytes.HasPrefix(b.text, utf8BOM) {
		b.text = append(b.text[:0], b.text[len(utf8BOM):]...)
	}
}

// skip passes over the rest of a line that is longer than allowed, of which b has the start. A line of gigabytes costs no
// memory.
func (c *cutter) skip(b *block) (ended bool, err error) {
	b.oversized = len(b.text)
	b.text = b.text[:c.limit]
	piece := grown(c.rest[:0], blockBytes)[:blockBytes]
	for {
		n, err := c.in.Read(piece)
		if at := bytes.IndexByte(piece[:n], '\n'); at >= 0 {
			b.oversized += at
			c.rest = append(piece[:0], piece[at+1:n]...)
			if err == nil || errors.Is(err, io.EOF) {
				return false, nil // an end comes again with the next Read
			}
			n = 0
		}
		b.oversized += n
		switch {
		case errors.Is(err, io.EOF):
			c.rest = piece[:0]
			return true, nil
		case c.ctx.Err() != nil:
			return true, c.ctx.Err()
		case err != nil:
			c.rest, c.broken = piece[:0], err
			return true, nil
		}
	}
}

// countedReader counts the bytes of a file before they are unpacked: they are what its size says.
type countedReader struct {
	io.Reader
	read *atomic.Int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read.Add(int64(n))
	return n, err
}
