package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lockFile is in every directory of this package: one process at a time works there, and only such directories are ever
// erased.
const lockFile = "weir.lock"

// ErrInUse says that another process works in a directory.
var ErrInUse = errors.New("in use")

// Directory is a data directory that this process alone works in, until Close or the end of the process.
type Directory struct {
	path string
	lock *os.File
}

// OpenDirectory takes a directory, which is made if it is missing. It is refused when another process has it (ErrInUse),
// when it holds files of somebody else, when it cannot be written to, and when less than need bytes are free.
func OpenDirectory(path string, need uint64) (*Directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", path, err)
	}
	// Others may look in, not read: a server that runs as another user than root has to reach its own folder.
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fileError(path, err)
	}
	if err := ours(path); err != nil {
		return nil, err
	}
	lock, err := lockDirectory(path)
	if err != nil {
		return nil, err
	}
	d := &Directory{path: path, lock: lock}
	free, err := d.Free()
	if err == nil && free < need {
		err = fmt.Errorf("directory %s: %s free on its disk, at least %s are needed", path, megabytes(free), megabytes(need))
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ours refuses a directory with files in it that nobody of this package made.
func ours(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fileError(path, err)
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			return nil
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("directory %s holds files of somebody else (%s): choose an empty or a new one", path, entries[0].Name())
	}
	return nil
}

// lockDirectory locks a directory for this process; the kernel gives the lock back when the last process that has the
// file open ends, however it ends.
func lockDirectory(path string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fileError(path, err)
	}
	if err := lockNow(file); err != nil {
		holder := holderOf(file)
		_ = file.Close() // nothing was written
		if errors.Is(err, ErrInUse) {
			return nil, fmt.Errorf("directory %s is %w by another process%s", path, ErrInUse, holder)
		}
		return nil, fileError(path, err)
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		return nil, errors.Join(fileError(path, err), file.Close())
	}
	return file, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// holderOf names the process that has the lock, and where it is reached, as far as it has written that.
func holderOf(file *os.File) string {
	var text [200]byte
	n, _ := file.ReadAt(text[:], 0) // it only adds to the message
	pid, rest, _ := strings.Cut(string(text[:n]), "\n")
	address, _, whole := strings.Cut(rest, "\n")
	switch {
	case pid == "":
		return ""
	case !whole:
		return " (pid " + pid + ")"
	}
	return " (pid " + pid + ", " + address + ")"
}

// Announce tells those who want the directory, too, where this process is reached: "console http://127.0.0.1:9466".
func (d *Directory) Announce(address string) error {
	if err := writeAt(d.lock, fmt.Sprintf("%d\n%s\n", os.Getpid(), address)); err != nil {
		return fileError(d.path, err)
	}
	return nil
}

// awaitLock takes the lock of a directory that may still be in use by a server that is just ending.
func awaitLock(ctx context.Context, path string, timeout time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		file, err := lockDirectory(path)
		if !errors.Is(err, ErrInUse) {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// Path is the directory, or a place below it.
func (d *Directory) Path(elements ...string) string {
	return filepath.Join(append([]string{d.path}, elements...)...)
}

// Free is how many bytes of the directory's disk this user may still fill.
func (d *Directory) Free() (uint64, error) {
	free, err := freeBytes(d.path)
	if err != nil {
		return 0, fileError(d.path, err)
	}
	return free, nil
}

// Empty reports whether nobody has worked here yet.
func (d *Directory) Empty() (bool, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return false, fileError(d.path, err)
	}
	return len(entries) <= 1, nil // the lock
}

// Erase removes what the caller says that it has made in the directory, by name. Where there is anything else, nothing is
// removed and the error names it. A PostgreSQL server that a killed process has left to its watcher is waited for, at most
// until ctx ends.
func (d *Directory) Erase(ctx context.Context, made ...string) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fileError(d.path, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == lockFile })
	for _, e := range entries {
		if !slices.Contains(made, e.Name()) {
			return fmt.Errorf("directory %s also holds %s, which is somebody else's: nothing was erased; move it away first", d.path, e.Name())
		}
	}
	for _, e := range entries {
		if err := erase(ctx, d.Path(e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func erase(ctx context.Context, path string) error {
	if _, err := os.Stat(filepath.Join(path, lockFile)); err == nil {
		lock, err := awaitLock(ctx, path, stopTimeout)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
		if err := stopStray(ctx, path); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return fileError(path, err)
	}
	return nil
}

// Close lets others have the directory. Its files stay.
func (d *Directory) Close() error { return d.lock.Close() }

func megabytes(n uint64) string { return fmt.Sprintf("%d MB", n>>20) }
