package archive

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

// textLine is one line of an archive. Text is valid until the next line is read.
type textLine struct {
	Number int64  // from 1
	Text   []byte // without the line ending; cut at the reader's bound
	Size   int    // bytes of the whole line
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	utf8BOM   = []byte{0xef, 0xbb, 0xbf}
)

// bufferBytes is the read buffer of one archive, in bytes.
const bufferBytes = 256 << 10

// eachLine calls fn for each line of r, which is plain text or gzip, known by its first two bytes. A line longer than
// limit bytes is given cut to limit; Size tells. The last line needs no line ending, a CR before it is dropped, and so
// is a byte order mark at the start. It ends with fn's error, ctx's, or the reader's.
func eachLine(ctx context.Context, r io.Reader, limit int, fn func(textLine) error) error {
	in := bufio.NewReaderSize(r, bufferBytes)
	if magic, _ := in.Peek(len(gzipMagic)); bytes.Equal(magic, gzipMagic) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("not readable as gzip: %w", err)
		}
		in = bufio.NewReaderSize(unzipped, bufferBytes)
	}
	if mark, _ := in.Peek(len(utf8BOM)); bytes.Equal(mark, utf8BOM) {
		if _, err := in.Discard(len(utf8BOM)); err != nil {
			return err
		}
	}
	var buf []byte
	for number := int64(1); ; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, size, err := readLine(in, buf[:0], limit)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", number, err)
		}
		buf = line
		if size == 0 && err != nil {
			return nil // the end, right after a line ending
		}
		text, n := trimEnding(line, size, limit)
		if ferr := fn(textLine{Number: number, Text: text, Size: n}); ferr != nil {
			return ferr
		}
		if err != nil {
			return nil
		}
	}
}

// readLine reads up to and including the next line feed. It keeps limit bytes and room for CR LF, and counts them all;
// what lies beyond is skipped piece by piece, so a line of gigabytes costs no memory. size counts the line feed only of
// a line that was kept whole.
func readLine(in *bufio.Reader, buf []byte, limit int) (line []byte, size int, err error) {
	for {
		piece, err := in.ReadSlice('\n')
		size += len(piece)
		if room := limit + 2 - len(buf); room > 0 {
			buf = append(buf, piece[:min(room, len(piece))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil && len(buf) < size {
			size--
		}
		return buf, size, err
	}
}

// trimEnding drops the LF or CR LF of a line that was kept whole, and cuts a longer line to limit.
func trimEnding(line []byte, size, limit int) (text []byte, n int) {
	if len(line) < size {
		return line[:limit], size // without the LF, see readLine
	}
	if trimmed, ok := bytes.CutSuffix(line, []byte{'\n'}); ok {
		line = bytes.TrimSuffix(trimmed, []byte{'\r'})
	}
	return line[:min(len(line), limit)], len(line)
}
