package local

import (
	"errors"
	"testing"
)

// KillWatcher kills the watcher of a server and so loses the server: what a power user with kill can do.
func KillWatcher(p *Postgres) error {
	err := p.watcher.Process.Kill()
	_ = p.watcher.Wait() // it was killed
	return errors.Join(err, p.pipe.Close())
}

// InstalledFolder is where this machine's programs are.
func InstalledFolder(t *testing.T) string {
	t.Helper()
	folders, err := installed(usualPlaces())
	if err != nil || len(folders) == 0 {
		t.Fatalf("%v, %v", ErrNoPostgres, err)
	}
	return folders[0]
}
