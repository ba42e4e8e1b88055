package testbed

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// privatePostgres is a PostgreSQL server in a folder of its own on a loopback port, without fsync.
//
// Nothing of it outlives the process that started it, however that one ends: a watcher, a shell that waits for the end
// of its standard input, stops the server and removes the folder. The only writing end of that pipe is in this process,
// so that the kernel closes it even after kill -9. (A parent-death signal would do as much on Linux only, and would
// leave the folder behind.)
type privatePostgres struct {
	url     string
	dir     string
	pipe    *os.File
	watcher *exec.Cmd
}

// errNoPostgres names the ways out.
var errNoPostgres = errors.New(`this machine has no PostgreSQL (looked for initdb and pg_ctl in PATH, ` +
	`/usr/lib/postgresql/*/bin, /opt/homebrew and /usr/local). Ways out: install it (apt-get install postgresql, ` +
	`brew install postgresql@17); or set WEIR_TEST_POSTGRES=postgres://user:password@host:port/postgres to use a ` +
	`server of yours, with a role that may create databases; or run "make test", which does its own set-up`)

// stopScript does not depend on the PATH of the tests, and its result tells nothing: a server that never came up cannot
// be stopped, and stop removes what it could not.
const stopScript = `PATH=/usr/bin:/bin; read -r _; "$1/pg_ctl" -D "$2/data" -m immediate -w stop; rm -rf "$2"; exit 0`

func startPostgres() (*privatePostgres, error) {
	programs, err := findPostgres(usualPlaces())
	if err != nil {
		return nil, err
	}
	owner, err := postgresOwner()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-postgres-")
	if err != nil {
		return nil, fmt.Errorf("folder for the server: %w", err)
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, errors.Join(fmt.Errorf("folder for the server: %w", err), os.RemoveAll(dir))
		}
	}
	server := &privatePostgres{dir: dir}
	// The watcher comes first: from here on whatever happens to this process, the folder goes.
	if err := server.watch(programs, dir, owner); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := server.boot(programs, dir, owner); err != nil {
		return nil, errors.Join(err, server.stop())
	}
	return server, nil
}

func (p *privatePostgres) watch(programs, dir string, owner *syscall.Credential) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to the watcher: %w", err)
	}
	watcher := exec.Command("/bin/sh", "-c", stopScript, "sh", programs, dir)
	watcher.Dir = dir
	watcher.Stdin = reader
	// A session of its own: Ctrl-C in the terminal must reach the tests only.
	watcher.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setsid: true}
	err = watcher.Start()
	err = errors.Join(err, reader.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("watcher of the server: %w", err), writer.Close())
	}
	p.pipe, p.watcher = writer, watcher
	return nil
}

func (p *privatePostgres) boot(programs, dir string, owner *syscall.Credential) error {
	const user = "weir"
	password := rand.Text()
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return fmt.Errorf("password of the server: %w", err)
	}
	if owner != nil {
		if err := os.Chown(secret, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("password of the server: %w", err)
		}
	}
	data := filepath.Join(dir, "data")
	// The method "password" spares both sides the hashing of SCRAM at each connection; the wire is loopback.
	err := run(owner, dir, filepath.Join(programs, "initdb"), "-D", data, "-U", user, "-A", "password", "--pwfile", secret,
		"-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	const attempts = 5
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		options := fmt.Sprintf("-c listen_addresses=127.0.0.1 -p %d -k '%s' -c fsync=off -c synchronous_commit=off "+
			"-c full_page_writes=off -c max_connections=300 -c shared_buffers=64MB", port, dir)
		err = run(owner, dir, filepath.Join(programs, "pg_ctl"), "-D", data, "-l", filepath.Join(dir, "log"), "-w",
			"-o", options, "start")
		if err == nil {
			p.url = (&url.URL{
				Scheme: "postgres", User: url.UserPassword(user, password),
				Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres",
			}).String()
			return nil
		}
		// Between the choice of the port and its use another process may have taken it.
		if attempt == attempts {
			log, _ := os.ReadFile(filepath.Join(dir, "log")) // its absence says no more than err does
			return fmt.Errorf("%w\nserver log:\n%s", err, log)
		}
	}
}

// stop ends the server and waits until its folder is gone.
func (p *privatePostgres) stop() error {
	if err := p.pipe.Close(); err != nil {
		return fmt.Errorf("tell the watcher: %w", err)
	}
	if err := p.watcher.Wait(); err != nil {
		return fmt.Errorf("watcher of the server: %w", err)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("folder of the server: %w", err)
	}
	return nil
}

// run executes a program of PostgreSQL as owner. Its working directory is the server's: the caller's may be one that
// owner cannot enter, which the programs complain about.
func run(owner *syscall.Credential, dir, program string, arguments ...string) error {
	command := exec.Command(program, arguments...)
	command.Dir = dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, output.Bytes())
	}
	return nil
}

// usualPlaces are where packages put PostgreSQL's programs without telling PATH: Debian's, Homebrew's, the project's own.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
		"/usr/local/pgsql/bin", "/usr/pgsql-*/bin",
	}
}

// findPostgres returns the folder that holds initdb, pg_ctl and postgres: the one in PATH, else the last in order of the
// first place that has any.
func findPostgres(places []string) (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// Debian links single programs into other folders; postgres finds its share files beside the real one.
		if resolved, err := filepath.EvalSymlinks(initdb); err == nil && hasPostgres(filepath.Dir(resolved)) {
			return filepath.Dir(resolved), nil
		}
	}
	for _, place := range places {
		found, err := filepath.Glob(place)
		if err != nil {
			return "", fmt.Errorf("pattern %q: %w", place, err)
		}
		for _, folder := range slices.Backward(found) {
			if hasPostgres(folder) {
				return folder, nil
			}
		}
	}
	return "", errNoPostgres
}

func hasPostgres(folder string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}

// postgresOwner returns the user to run the server as when this process is root, which PostgreSQL refuses to run as;
// nil means as this process.
func postgresOwner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
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
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and neither user postgres nor user nobody exists here")
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("a free port: %w", err)
	}
	return port, nil
}
