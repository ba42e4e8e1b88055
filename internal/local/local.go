// Package local runs the servers that weir works with on this machine, with nothing installed but Go: Kafka and Redis
// inside the process, PostgreSQL as a private server from programs found here or fetched. They listen on loopback only.
// They are for `weir dev` and for tests, never for production: one broker without replicas, a Redis that forgets when it
// stops, a database whose last moments a power cut may lose.
//
//	              survives Close and kill -9         ends with the process
//	Kafka         yes, in its Dir                    yes
//	Redis         no; ENFORCE's reconciler refills   yes
//	Postgres      yes, in its Dir; no without one    yes, also after kill -9
//
// An error is one line that says what is wrong with which port or directory. Flags are not named: the caller knows them.
package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"syscall"
)

// loopback is where all servers listen.
const loopback = "127.0.0.1"

// address is host:port on loopback; port 0 asks for a free one.
func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// portError says in a line why a server cannot listen.
func portError(server string, port int, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: port %d on %s is taken by another program: free it or choose another port", server, port, loopback)
	}
	return fmt.Errorf("%s: cannot listen on %s: %w", server, address(port), err)
}

// fileError says in a line what is wrong with a directory, for the mistakes that users can mend.
func fileError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("directory %s is on a read-only file system", dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("directory %s cannot be written to (permission denied)", dir)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("directory %s: no space left on its disk", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is not a directory", dir)
	}
	return fmt.Errorf("directory %s: %w", dir, err)
}
