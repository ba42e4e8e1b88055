package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Input is one log file to read.
type Input struct {
	Name string
	Size int64 // bytes; -1: not known, as of a pipe, whose reads may wait for ever
	Open func() (io.ReadCloser, error)
}

// Inputs looks for all files before the first is read, so that a mistyped name, and a file that may not be read, is found at once. - is
// stdin. The error joins what is wrong with each.
func Inputs(paths []string, stdin io.Reader) ([]Input, error) {
	var all []Input
	var problems []error
	given := 0
	for _, path := range paths {
		if path == "-" {
			given++
			all = append(all, Input{Name: "stdin", Size: -1, Open: func() (io.ReadCloser, error) { return closable(stdin), nil }})
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
		in := Input{Name: path, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}
		if !info.Mode().IsRegular() {
			in.Size = -1
		} else if err := readable(path); err != nil {
			problems = append(problems, err)
			continue
		}
		all = append(all, in)
	}
	if given > 1 {
		problems = append(problems, errors.New("- is given twice; standard input can be read once"))
	}
	return all, errors.Join(problems...)
}

func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// SizeOf is the size of all inputs in bytes, 0 if one is not known.
func SizeOf(all []Input) int64 {
	var sum int64
	for i := range all {
		if all[i].Size < 0 {
			return 0
		}
		sum += all[i].Size
	}
	return sum
}

// closable lets whoever gives up on standard input end a read that waits for it.
func closable(r io.Reader) io.ReadCloser {
	if c, ok := r.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(r)
}
