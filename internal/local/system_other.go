//go:build !linux && !darwin

package local

import (
	"errors"
	"os"
	"os/exec"
)

var errSystem = errors.New("local servers run on Linux and macOS only")

// account is another user that a server runs as.
type account struct{ name string }

func (a *account) as(*exec.Cmd) {}

func (a *account) give(string) error { return nil }

func (a *account) reach(string) error { return nil }

func serverAccount(string) (*account, error) { return nil, errSystem }

func lockNow(*os.File) error { return errSystem }

func freeBytes(string) (uint64, error) { return 0, errSystem }
