//go:build linux || darwin

package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is another user that a server runs as; nil means the user of this process.
type account struct {
	name     string
	uid, gid uint32
}

// as makes command run as the account, in a session of its own: Ctrl-C in the terminal must reach this process only,
// which then ends its servers in order.
func (a *account) as(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// give makes the account the owner of a file or folder.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// serverAccount is who PostgreSQL runs as, since it refuses to run as root: nobody else where this process is not root,
// else the owner of the data that is there, or postgres, or nobody.
func serverAccount(data string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if info, err := os.Stat(data); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 {
			return &account{name: "with uid " + strconv.Itoa(int(s.Uid)), uid: s.Uid, gid: s.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("uid of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("gid of %s: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and neither user postgres nor user nobody exists here")
}

// reach makes sure that the account can enter every folder above path.
func (a *account) reach(path string) error {
	if a == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fileError(dir, err)
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil // initdb will say so if it is not
		}
		needed := os.FileMode(0o001)
		switch {
		case s.Uid == a.uid:
			needed = 0o100
		case s.Gid == a.gid:
			needed = 0o010
		}
		if info.Mode()&needed == 0 {
			return fmt.Errorf("PostgreSQL does not run as root and is run as user %s, who cannot enter %s: choose a directory that "+
				"others can reach, such as one below /var/lib or /var/tmp, or run as another user than root", a.name, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// lockNow takes the lock of a file, or says ErrInUse.
func lockNow(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

func freeBytes(path string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}
