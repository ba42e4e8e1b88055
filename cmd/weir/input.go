package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// input is one archive to read.
type input struct {
	name string
	size int64 // bytes; 0: not known
	open func(ctx context.Context) (io.ReadCloser, error)
}

// inputs looks at all files before anything is sent, so that a mistyped name is found at once. idle is called when
// standard input has shown nothing for a while.
func (a *app) inputs(paths []string, idle func() error) ([]input, error) {
	var all []input
	var problems []error
	stdin := 0
	for _, path := range paths {
		if path == "-" {
			stdin++
			all = append(all, input{name: "stdin", open: func(ctx context.Context) (io.ReadCloser, error) {
				return newPatientReader(ctx, a.stdin, idle), nil
			}})
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			problems = append(problems, err)
			continue
		case info.IsDir():
			problems = append(problems, fmt.Errorf("%s is a directory; allowed: files, or - for standard input", path))
			continue
		}
		all = append(all, input{name: path, size: info.Size(), open: func(context.Context) (io.ReadCloser, error) { return os.Open(path) }})
	}
	if stdin > 1 {
		problems = append(problems, errors.New("- is given twice; standard input can be read once"))
	}
	return all, errors.Join(problems...)
}

// Total is the size of all inputs, 0 if one is not known.
func Total(all []input) int64 {
	var sum int64
	for _, in := range all {
		if in.size == 0 {
			return 0
		}
		sum += in.size
	}
	return sum
}

// idleAfter is how long an input may show nothing before what was read of it is sent.
const idleAfter = 200 * time.Millisecond

// patientReader reads from something that may block for ever, a terminal or a pipe: it ends with its context, and
// calls idle when nothing has come for a while.
type patientReader struct {
	ctx    context.Context // Read has no other way to be told
	pieces chan piece
	rest   []byte
	err    error
	idle   func() error
	done   chan struct{}
}

type piece struct {
	data []byte
	err  error
}

func newPatientReader(ctx context.Context, from io.Reader, idle func() error) *patientReader {
	r := &patientReader{ctx: ctx, pieces: make(chan piece), idle: idle, done: make(chan struct{})}
	go r.pump(from)
	return r
}

// pump reads ahead by one piece. It ends with the input, or at the first piece after Close; a Read that never returns
// keeps it until the process ends, which nothing in Go can change.
func (r *patientReader) pump(from io.Reader) {
	for {
		buf := make([]byte, 64<<10)
		n, err := from.Read(buf)
		select {
		case r.pieces <- piece{buf[:n], err}:
		case <-r.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read gives what has come, waiting for the first of it.
func (r *patientReader) Read(p []byte) (int, error) {
	quiet := time.NewTimer(idleAfter)
	defer quiet.Stop()
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		select {
		case got := <-r.pieces:
			r.rest, r.err = got.data, got.err
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case <-quiet.C:
			if err := r.idle(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close lets the reading goroutine go.
func (r *patientReader) Close() error {
	close(r.done)
	return nil
}

// countingReader adds what is read to a progress.
type countingReader struct {
	io.Reader
	progress *terminal.Progress
}

// Read counts the bytes before they are decompressed: they are what the size of the file says.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.progress.Bytes.Add(int64(n))
	return n, err
}
