package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoPostgres says that PostgreSQL is nowhere on this machine and cannot be fetched, and names the ways out.
var ErrNoPostgres = errors.New(`this machine has no PostgreSQL (looked for initdb, pg_ctl and postgres in PATH, ` +
	`/usr/lib/postgresql/*/bin, /opt/homebrew and /usr/local)`)

// waysOut is what a user can do about it.
const waysOut = `three ways out: install it (apt-get install postgresql, brew install postgresql@17); ` +
	`or name a server of yours with --postgres-url or WEIR_POSTGRES_URL=postgres://user:password@host:port/database; ` +
	`or run as another user than root, for whom PostgreSQL is fetched`

// usualPlaces are where packages put PostgreSQL's programs without telling PATH: Debian's, Homebrew's, the project's own.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
		"/usr/local/pgsql/bin", "/usr/pgsql-*/bin",
	}
}

// installed lists the folders that hold initdb, pg_ctl and postgres: the one in PATH, then those of each place, the last
// in order first.
func installed(places []string) ([]string, error) {
	var folders []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// Debian links single programs into other folders; postgres finds its share files beside the real one.
		if resolved, err := filepath.EvalSymlinks(initdb); err == nil && hasPostgres(filepath.Dir(resolved)) {
			folders = append(folders, filepath.Dir(resolved))
		}
	}
	for _, place := range places {
		found, err := filepath.Glob(place)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", place, err)
		}
		for _, folder := range slices.Backward(found) {
			if hasPostgres(folder) && !slices.Contains(folders, folder) {
				folders = append(folders, folder)
			}
		}
	}
	return folders, nil
}

func hasPostgres(folder string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}

// fitting picks the programs for a database folder: any for a new one, and for an old one those of the major version
// that made it, since no other can read it. "" says that folders is empty.
func fitting(ctx context.Context, folders []string, dir string) (string, error) {
	made, err := os.ReadFile(filepath.Join(dir, "data", "PG_VERSION"))
	switch {
	case dir == "" || errors.Is(err, os.ErrNotExist):
		if len(folders) == 0 {
			return "", nil
		}
		return folders[0], nil
	case err != nil:
		return "", fileError(dir, err)
	}
	want := strings.TrimSpace(string(made))
	var have []string
	for _, folder := range folders {
		major, err := majorVersion(ctx, folder)
		if err != nil {
			return "", err
		}
		if major == want {
			return folder, nil
		}
		have = append(have, fmt.Sprintf("%s in %s", major, folder))
	}
	if len(have) == 0 {
		have = []string{"none"}
	}
	return "", fmt.Errorf("directory %s was made by PostgreSQL %s, which is not on this machine (there is %s): install that version, "+
		"or start anew in an empty directory", dir, want, strings.Join(have, ", "))
}

// majorVersion asks the programs: "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)" is 15.
func majorVersion(ctx context.Context, folder string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(folder, "postgres --version"), err)
	}
	_, version, _ := strings.Cut(string(out), ") ")
	major := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if len(major) == 0 {
		return "", fmt.Errorf("%s says %q, which names no version", filepath.Join(folder, "postgres --version"), out)
	}
	return major[0], nil
}

// run executes a program of PostgreSQL as the server's user. Its working directory is the server's: the caller's may be
// one that this user cannot enter, which the programs complain about.
func (p *Postgres) run(ctx context.Context, program string, arguments ...string) error {
	return runAs(ctx, p.account, p.dir, filepath.Join(p.programs, program), arguments...)
}

func runAs(ctx context.Context, who *account, dir, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	who.as(command)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("PostgreSQL: %s: %w: %s", filepath.Base(program), err, summary(output.String()))
	}
	return nil
}

// stopStray ends a server in dir that has lost its watcher. The caller holds the lock of dir, so no other process counts
// on that server. A number in a left-over file may be that of another process by now, so that somebody must also answer
// at the server's port; a server that does not is PostgreSQL's own to refuse.
func stopStray(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "data", "postmaster.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // no server, by the account of PostgreSQL itself
	}
	lines := append(strings.Split(string(text), "\n"), "", "", "", "")
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(loopback, lines[3]))
	if err != nil {
		return nil // the file is what a killed server left
	}
	process, err := os.FindProcess(pid)
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("PostgreSQL in %s: %w", dir, err)
	}
	if err := process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("PostgreSQL in %s is still running as process %d and cannot be stopped: %w", dir, pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL in %s, process %d, does not end: stop it by hand", dir, pid)
		case <-tick.C:
		}
	}
}

// summary makes one line of what a program has printed: the last two lines that name an error, or the last line.
func summary(text string) string {
	var telling []string
	last := "it says nothing"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		for _, word := range []string{"FATAL:", "PANIC:", "ERROR:", "error:", "could not", "No space left"} {
			if strings.Contains(line, word) {
				telling = append(telling, line)
				break
			}
		}
	}
	if len(telling) == 0 {
		return last
	}
	return strings.Join(telling[max(0, len(telling)-2):], "; ")
}
