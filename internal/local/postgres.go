package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// PostgresOptions configure a Postgres. All have defaults.
type PostgresOptions struct {
	// Dir keeps the database; made if it is missing. Empty: a temporary one, which goes with the server, and no fsync.
	Dir string
	// Port on loopback; 0 is any free one.
	Port int
	// Programs says where PostgreSQL's programs come from.
	Programs Programs
	// Say is told what takes long, in a few words without an end: "fetching PostgreSQL 18.3.0". Nil: nobody is.
	Say func(what string)
}

// Postgres is a PostgreSQL server of this process's own on a loopback port, run by programs of this machine, as another
// user where this process is root.
//
// It does not outlive the process that started it, however that one ends: a watcher, a shell that waits for the end of
// its standard input, stops the server. The only writing end of that pipe is in this process, so that the kernel closes
// it even after kill -9. (A parent-death signal would do as much on Linux only, and would leave a temporary folder
// behind.) The watcher holds the folder's lock until the server has ended, so that the next one waits for it.
type Postgres struct {
	url       string
	dir       string
	temporary bool
	account   *account
	programs  string
	pipe      *os.File
	watcher   *exec.Cmd
}

const (
	// stopTimeout bounds the wait for a server that is ending.
	stopTimeout = 20 * time.Second
	// superuser is the role in a server's URL.
	superuser = "weir"
)

// stopScript does not depend on the PATH of the process, and its result tells nothing: a server that never came up
// cannot be stopped.
const stopScript = `PATH=/usr/bin:/bin
read -r _
"$1/pg_ctl" -D "$2/data" -m "$3" -w -t 10 stop || "$1/pg_ctl" -D "$2/data" -m immediate -w -t 5 stop
if test "$4" = temporary; then rm -rf "$2"; fi
exit 0`

// StartPostgres starts a server that goes on where the last one in the same Dir ended. Of several PostgreSQL versions
// it takes the one that made the Dir. ErrNoPostgres says that there is none and none can be fetched.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	p := &Postgres{dir: o.Dir, temporary: o.Dir == ""}
	lock, err := p.prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	// The watcher comes first: from here on the server goes whatever happens to this process.
	err = p.watch(lock)
	if lock != nil {
		err = errors.Join(err, lock.Close()) // the watcher has it now
	}
	if err != nil {
		return nil, errors.Join(err, p.discard())
	}
	if err := p.boot(ctx, o); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// prepare finds the programs, and makes the folder, locked unless it is temporary.
func (p *Postgres) prepare(ctx context.Context, o PostgresOptions) (*os.File, error) {
	var err error
	if p.account, err = serverAccount(filepath.Join(p.dir, "data")); err != nil {
		return nil, err
	}
	if p.programs, err = o.Programs.find(ctx, p.dir, o.Say); err != nil {
		return nil, err
	}
	if p.temporary {
		if p.dir, err = os.MkdirTemp("", "weir-postgres-"); err != nil {
			return nil, fileError(os.TempDir(), err)
		}
		if err := p.account.give(p.dir); err != nil {
			return nil, errors.Join(fileError(p.dir, err), p.discard())
		}
		return nil, nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fileError(p.dir, err)
	}
	if err := p.account.reach(p.dir); err != nil {
		return nil, err
	}
	if err := p.account.give(p.dir); err != nil {
		return nil, fileError(p.dir, err)
	}
	lock, err := awaitLock(ctx, p.dir, stopTimeout)
	if err != nil {
		return nil, err
	}
	if err := stopStray(ctx, p.dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// watch starts the watcher, and gives it the lock to hold.
func (p *Postgres) watch(lock *os.File) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to the watcher of PostgreSQL: %w", err)
	}
	mode, keep := "fast", "kept"
	if p.temporary {
		mode, keep = "immediate", "temporary"
	}
	watcher := exec.Command("/bin/sh", "-c", stopScript, "sh", p.programs, p.dir, mode, keep)
	watcher.Dir = "/"
	watcher.Stdin = reader
	if lock != nil {
		watcher.ExtraFiles = []*os.File{lock}
	}
	p.account.as(watcher)
	err = errors.Join(watcher.Start(), reader.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("watcher of PostgreSQL: %w", err), writer.Close())
	}
	p.pipe, p.watcher = writer, watcher
	return nil
}

// boot makes the database if there is none, and starts the server.
func (p *Postgres) boot(ctx context.Context, o PostgresOptions) error {
	password, err := p.makeData(ctx, o.Say)
	if err != nil {
		return err
	}
	const attempts = 5
	for attempt := 1; ; attempt++ {
		port, err := portFor(o.Port)
		if err != nil {
			return portError("PostgreSQL", o.Port, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err = p.startServer(ctx, port); err == nil {
			p.url = (&url.URL{
				Scheme: "postgres", User: url.UserPassword(superuser, password),
				Host: net.JoinHostPort(loopback, strconv.Itoa(port)), Path: "/postgres",
			}).String()
			return nil
		}
		// Between the choice of the port and its use another process may have taken it.
		if attempt == attempts || o.Port != 0 {
			return err
		}
	}
}

// makeData runs initdb unless that was done before, and gives the password. What initdb has not finished never counts.
func (p *Postgres) makeData(ctx context.Context, say func(string)) (password string, err error) {
	data, secret := filepath.Join(p.dir, "data"), filepath.Join(p.dir, "password")
	if _, err := os.Stat(data); err == nil {
		text, err := os.ReadFile(secret)
		if err != nil {
			return "", fileError(p.dir, err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	say("making a database")
	unfinished := data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fileError(p.dir, err)
	}
	password = rand.Text()
	if err := errors.Join(os.WriteFile(secret, []byte(password), 0o600), p.account.give(secret)); err != nil {
		return "", fileError(p.dir, err)
	}
	// The method "password" spares both sides the hashing of SCRAM at each connection; the wire is loopback.
	err = p.run(ctx, "initdb", "-D", unfinished, "-U", superuser, "-A", "password", "--pwfile", secret, "-E", "UTF8",
		"--locale=C", "--no-sync")
	if err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, data); err != nil {
		return "", fileError(p.dir, err)
	}
	return password, nil
}

// startServer returns when the server takes connections. It is not broken off: pg_ctl killed at the wrong moment would
// leave a server that its watcher cannot see.
func (p *Postgres) startServer(ctx context.Context, port int) error {
	log := filepath.Join(p.dir, "log")
	if err := os.Rename(log, log+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fileError(p.dir, err)
	}
	// No socket file: its path would be too long for the system in some folders.
	options := fmt.Sprintf("-c listen_addresses=%s -p %d -c unix_socket_directories='' -c max_connections=300 "+
		"-c shared_buffers=64MB -c max_wal_size=128MB -c synchronous_commit=off", loopback, port)
	if p.temporary {
		options += " -c fsync=off -c full_page_writes=off"
	}
	err := p.run(context.WithoutCancel(ctx), "pg_ctl", "-D", filepath.Join(p.dir, "data"), "-l", log, "-w", "-o", options, "start")
	if err == nil {
		return nil
	}
	text, readErr := os.ReadFile(log)
	if readErr != nil {
		return err
	}
	why := summary(string(text))
	if !p.temporary {
		why += " (all of it in " + log + ")"
	}
	return fmt.Errorf("PostgreSQL does not start: %s", why)
}

// URL is where clients find the server, with a role that may do everything.
func (p *Postgres) URL() string { return p.url }

// Close ends the server and waits until it has ended; a temporary folder is gone then. It is called once.
func (p *Postgres) Close() error {
	if err := p.pipe.Close(); err != nil {
		return fmt.Errorf("tell the watcher of PostgreSQL: %w", err)
	}
	if err := p.watcher.Wait(); err != nil {
		return fmt.Errorf("watcher of PostgreSQL: %w", err)
	}
	return p.discard()
}

// discard removes what the watcher of a temporary server could not, being another user.
func (p *Postgres) discard() error {
	if !p.temporary {
		return nil
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fileError(p.dir, err)
	}
	return nil
}

// portFor gives the port, or a free one for 0; the error is that of a port that is taken.
func portFor(port int) (int, error) {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return 0, err
	}
	port = listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
