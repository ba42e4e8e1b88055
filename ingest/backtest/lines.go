package backtest

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/traffic"
)

// block is a stretch of lines of one file, and what became of them. Its memory is used again.
type block struct {
	file  int
	first bool // of its file
	text  archive.Lines
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
func (r *blockReader) file(ctx context.Context, index int, f *File) error {
	from, err := f.Open()
	if err != nil {
		return err
	}
	in := archive.NewLineReader(ctx, &countedReader{from, r.read}, r.limit, true)
	defer func() { _ = in.Close() }() // it was only read
	for first, last := true, false; !last; first = false {
		b, err := r.block(ctx)
		if err != nil {
			return err
		}
		if err := in.Next(ctx, &b.text); err != nil {
			return err
		}
		b.file, b.first, last = index, first, b.text.Last // once it is given, it is not this goroutine's
		if err := r.give(b); err != nil {
			return err
		}
	}
	return nil
}

// block takes a free one.
func (r *blockReader) block(ctx context.Context) (*block, error) {
	select {
	case b := <-r.free:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// countedReader counts the bytes of a file before they are unpacked: they are what its size says.
type countedReader struct {
	io.ReadCloser
	read *atomic.Int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.read.Add(int64(n))
	return n, err
}
