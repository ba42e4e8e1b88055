package loadgen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Create makes a file that is not there yet: what an earlier load has left may still be needed. flag is the command
// line's, for errors.
func Create(flag, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %s exists; allowed: a new file", flag, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return file, nil
}

// CreateTruth begins a truth in a new file, which the function that is returned closes; without a path the truth goes
// nowhere.
func CreateTruth(path string, h Header) (*TruthWriter, func() error, error) {
	if path == "" {
		w, err := NewTruthWriter(io.Discard, h)
		return w, func() error { return nil }, err
	}
	file, err := Create("--truth", path)
	if err != nil {
		return nil, nil, err
	}
	w, err := NewTruthWriter(file, h)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return w, file.Close, nil
}

// OpenTruth reads the truth in a file.
func OpenTruth(path string) (*Truth, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--truth: %w", err)
	}
	defer func() { _ = file.Close() }()
	return ReadTruth(path, file)
}

// LineSink writes events as lines.
type LineSink struct{ to *bufio.Writer }

var _ Sink = (*LineSink)(nil)

// NewLineSink writes to a file or a pipe.
func NewLineSink(to io.Writer) *LineSink { return &LineSink{bufio.NewWriterSize(to, 1<<20)} }

// Send writes all events. Of a chunk that could not be written whole, none is certain.
func (s *LineSink) Send(_ context.Context, events []Outgoing) (int, error) {
	for _, e := range events {
		_, _ = s.to.Write(e.Value) // Flush gives the first error
		_ = s.to.WriteByte('\n')
	}
	if err := s.to.Flush(); err != nil {
		return 0, fmt.Errorf("writing events: %w", err)
	}
	return len(events), nil
}
