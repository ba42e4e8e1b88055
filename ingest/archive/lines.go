package archive

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	stretchBytes = 64 << 10 // of lines that Next gives together
	// aheadBytes are read ahead of what unpacks: much less than a stretch, so that plain text is read into its lines at once.
	aheadBytes = 32 << 10
	// maxZstdWindow bounds the memory that a zstd file may ask for.
	maxZstdWindow = 128 << 20
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	// zstdSkipped follows the first byte, 0x50 to 0x5f, of a frame that holds no text. Files that were packed in parallel begin with one.
	zstdSkipped = []byte{0x2a, 0x4d, 0x18}
	utf8BOM     = []byte{0xef, 0xbb, 0xbf}
)

// Reasons for which a file is not read to its end.
const (
	ReasonTruncated  = "truncated"  // what is compressed ends early
	ReasonUnreadable = "unreadable" // reading or unpacking failed
)

// BreakOff is why a file cannot be read on.
type BreakOff struct {
	Reason string // ReasonTruncated or ReasonUnreadable
	Err    error
	Rest   []byte // of a line that was begun, what there was; valid as long as the Lines that it came with
}

func newBreakOff(err error) *BreakOff {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &BreakOff{Reason: ReasonTruncated, Err: err}
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = fmt.Errorf("%w: the file asks for a greater window than %d MiB, which is allowed (zstd --long=27)", err, maxZstdWindow>>20)
	}
	return &BreakOff{Reason: ReasonUnreadable, Err: err}
}

// Lines are lines of a file that follow each other. Their memory is used again by the Next that they are given to.
type Lines struct {
	Text []byte // whole lines; the last one of a file may lack its line feed
	// Oversized is the size in bytes of a line that is longer than allowed, without its ending: Text is the start of that line alone,
	// then. 0: there is none, though a line of Text, too, may be longer than allowed.
	Oversized int
	Last      bool      // no lines follow
	Broken    *BreakOff // why none follow; nil at the end of the file, and before
}

// CutLine takes the first line off text, without its LF or CR LF.
func CutLine(text []byte) (line, rest []byte) {
	at := bytes.IndexByte(text, '\n')
	if at < 0 {
		return text, nil
	}
	return bytes.TrimSuffix(text[:at], []byte{'\r'}), text[at+1:]
}

// LineReader cuts a file into lines. The file is plain, gzip or zstd, of one member or many, known by how it begins; a byte order
// mark at its start is dropped. A line of gigabytes costs no memory, and neither does a small file that unpacks into much. It is
// not safe for concurrent use.
type LineReader struct {
	limit  int
	filled bool
	close  func() error
	in     io.Reader
	done   func() // with what unpacks
	err    error  // why there is no in
	rest   []byte // the start of a line, of the Next before
	marked bool   // a byte order mark was looked for
}

// NewLineReader reads the lines of a file; lines of up to limit bytes are given whole. It closes the file with Close, and when ctx
// ends, so that a Read under way ends, too.
//
// With filled, what Next gives does not depend on how the file is read: it waits for a stretch of 64 KiB or the end. Without, it
// gives the lines that have come.
func NewLineReader(ctx context.Context, file io.ReadCloser, limit int, filled bool) *LineReader {
	closed := sync.OnceValue(file.Close)
	forget := context.AfterFunc(ctx, func() { _ = closed() }) // it was only read
	r := &LineReader{limit: limit, filled: filled, close: func() error { forget(); return closed() }}
	r.in, r.done, r.err = unpacked(bufio.NewReaderSize(&lastingReader{Reader: file}, aheadBytes))
	return r
}

// lastingReader gives an error that it has met again with every further Read: who reads ahead may drop it.
type lastingReader struct {
	io.Reader
	err error
}

func (r *lastingReader) Read(p []byte) (n int, err error) {
	if r.err == nil {
		n, r.err = r.Reader.Read(p)
	}
	return n, r.err
}

// Close closes the file.
func (r *LineReader) Close() error {
	r.done()
	return r.close()
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
	case bytes.Equal(magic, zstdMagic), len(magic) == len(zstdMagic) && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], zstdSkipped):
		// No goroutines of its own: a run that is interrupted leaves none behind.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, func() {}, fmt.Errorf("not readable as zstd: %w", err)
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// Next reads further lines into l; where they are the Last, perhaps none. The error is that of ctx: what is wrong with the file stands
// in l. There is no Next after either.
func (r *LineReader) Next(ctx context.Context, l *Lines) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	*l = Lines{Text: append(l.Text[:0], r.rest...)}
	r.rest = r.rest[:0]
	if r.err != nil {
		l.Last, l.Broken = true, newBreakOff(r.err)
		return nil
	}
	return r.fill(ctx, l)
}

// fill reads until l has what Next gives, and keeps the start of a line that goes on for the next one.
func (r *LineReader) fill(ctx context.Context, l *Lines) error {
	for full := max(stretchBytes, min(2*len(l.Text), r.limit+2)); ; { // the one before may have left more than a stretch
		if !r.filled || len(l.Text) == full {
			if at := bytes.LastIndexByte(l.Text, '\n'); at >= 0 {
				r.rest = append(r.rest[:0], l.Text[at+1:]...)
				l.Text = l.Text[:at+1]
				return nil
			}
			if len(l.Text) > r.limit+1 { // room for a CR
				return r.skip(ctx, l)
			}
		}
		if len(l.Text) == full {
			full = min(2*full, r.limit+2)
		}
		l.Text = grown(l.Text, full)
		n, err := r.in.Read(l.Text[len(l.Text):full])
		l.Text = l.Text[:len(l.Text)+n]
		r.cutMark(l, err != nil)
		if err != nil {
			return r.end(ctx, l, err)
		}
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
func (r *LineReader) cutMark(l *Lines, last bool) {
	if r.marked || !last && len(l.Text) < len(utf8BOM) && bytes.HasPrefix(utf8BOM, l.Text) {
		return
	}
	r.marked = true
	if bytes.HasPrefix(l.Text, utf8BOM) {
		l.Text = append(l.Text[:0], l.Text[len(utf8BOM):]...)
	}
}

// end tells in l why no lines follow, where a Read has met err.
func (r *LineReader) end(ctx context.Context, l *Lines, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.Last = true
	if errors.Is(err, io.EOF) {
		return nil
	}
	l.Broken = newBreakOff(err)
	if l.Oversized == 0 { // which is told as one
		whole := bytes.LastIndexByte(l.Text, '\n') + 1
		l.Text, l.Broken.Rest = l.Text[:whole], l.Text[whole:]
	}
	return nil
}

// skip passes over the rest of a line that is longer than allowed, of which l has the start.
func (r *LineReader) skip(ctx context.Context, l *Lines) error {
	ending := bytes.HasSuffix(l.Text, []byte{'\r'}) // if a line feed follows
	l.Oversized = len(l.Text)
	l.Text = l.Text[:r.limit]
	piece := grown(r.rest[:0], stretchBytes)[:stretchBytes]
	for {
		n, err := r.in.Read(piece)
		of := piece[:n] // the line
		at := bytes.IndexByte(of, '\n')
		if at >= 0 {
			of = of[:at]
		}
		l.Oversized += len(of)
		if len(of) > 0 {
			ending = bytes.HasSuffix(of, []byte{'\r'})
		}
		if at >= 0 {
			if ending {
				l.Oversized--
			}
			r.rest = append(piece[:0], piece[at+1:n]...)
			return nil // an error comes again with the next Read
		}
		if err != nil {
			return r.end(ctx, l, err)
		}
	}
}
