package main

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
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/internal/testbed"
)

// fails runs weir dev, which must end by itself with exit code 1 and one line on standard error.
func fails(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	defer stop()
	err := command.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitError {
		t.Fatalf("ended with %v, want exit code %d\n%s%s", err, exitError, out.Bytes(), problems.Bytes())
	}
	text := problems.String()
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "weir: ") {
		t.Errorf("standard error is not one line of weir's:\n%s", text)
	}
	return text
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the error does not say %q: %s", w, text)
		}
	}
}

func TestDevSaysWhichPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, flag := range []string{"--console-listen", "--gateway-listen"} {
		dir := testbed.Folder(t)
		wantWords(t, fails(t, devProgram(t, dir, flag, taken.Addr().String())), flag, taken.Addr().String(), "address already in use")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 1 {
			t.Errorf("%s: before the port was tried the data directory was given %v (%v), allowed: its lock", flag, entries, err)
		}
	}
}

func TestDevRunsOnceInADirectory(t *testing.T) {
	t.Parallel()
	dir := testbed.Folder(t)
	p := startDev(t, dir, "--no-demo")
	console := p.await(`console +http://([^/\s]+)`)
	p.await(`everything runs`)
	wantWords(t, fails(t, devProgram(t, dir, "--no-demo")), "running already", fmt.Sprintf("(pid %d, console http://%s)", p.command.Process.Pid, console), "--data-dir")
	wantWords(t, fails(t, devProgram(t, dir, "--no-demo", "--fresh")), "running already")
	// A second one has the ports of the first one too, and what it has to say is that there is one.
	wantWords(t, fails(t, devProgram(t, dir, "--console-listen", console)), "running already")
	if got := decode[[]any](p.bed(), "rules", "list"); len(got) != 0 {
		t.Errorf("got rules %v", got)
	}
	p.interrupt()
}

func TestDevLeavesForeignDirectoriesAlone(t *testing.T) {
	t.Parallel()
	dir := testbed.Folder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantWords(t, fails(t, devProgram(t, dir, "--fresh")), "somebody else", "thesis.tex", "--data-dir")
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}

	// One that it has made, where somebody has put something since.
	dir = testbed.Folder(t)
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	p.interrupt()
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantWords(t, fails(t, devProgram(t, dir, "--no-demo", "--fresh")), "--fresh", "also holds src", "nothing was erased")
	if _, err := os.Stat(filepath.Join(dir, "postgres")); err != nil {
		t.Error(err)
	}
}

// Two weir dev, or a weir dev and an installation, in one schema would take each other's partitions.
func TestDevLeavesForeignSchemasAlone(t *testing.T) {
	t.Parallel()
	mine, other := testbed.Folder(t), testbed.Folder(t)
	flags := []string{"--no-demo", "--postgres-url", testbed.Postgres(t), "--namespace", testbed.Namespace(t)}
	for range 2 { // the second time it goes on in its own
		p := startDev(t, mine, flags...)
		p.await(`everything runs`)
		p.interrupt()
	}
	wantWords(t, fails(t, devProgram(t, other, flags...)), "was not made by weir dev in "+other, "--namespace", "drop that schema")
	if err := os.Remove(filepath.Join(mine, "schema")); err != nil {
		t.Fatal(err)
	}
	wantWords(t, fails(t, devProgram(t, mine, flags...)), "was not made by weir dev in "+mine)
}

// The broker's files are gone and PostgreSQL's are not: nothing can be detected, and weir dev does not say that all is well.
func TestDevWhosePartitionsStopSaysSo(t *testing.T) {
	t.Parallel()
	dir := testbed.Folder(t)
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	b := p.bed()
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	p.sendUntilHit("198.51.100.8")
	// More than the log of a new broker comes to, in ticks, before its partitions are taken, however long that takes.
	b.send("198.51.100.8", 1000)
	testbed.Eventually(t, 30*time.Second, func() error {
		rows := decode[[]acts.Partition](b, "partitions", "list")
		if !slices.ContainsFunc(rows, func(r acts.Partition) bool { return r.Side == "keyed" && r.Offset >= 1000 }) {
			return fmt.Errorf("not counted yet: %+v", rows)
		}
		return nil
	})
	p.interrupt()
	if err := os.RemoveAll(filepath.Join(dir, "kafka")); err != nil {
		t.Fatal(err)
	}
	p = startDev(t, dir, "--no-demo")
	p.await(`weir: .*stopped: what PostgreSQL and the data directory hold does not belong together.*--fresh starts anew`)
	if strings.Contains(p.log.String(), "everything runs") {
		t.Error("it says that everything runs")
	}
	var exit *exec.ExitError
	if err := <-p.ended; !errors.As(err, &exit) || exit.ExitCode() != exitError {
		t.Errorf("ended with %v", err)
	}
}

// PostgreSQL was weir dev's to start, so nobody else can start it again.
func TestDevWhosePostgresEndsSaysSo(t *testing.T) {
	t.Parallel()
	dir := testbed.Folder(t)
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil { // what its programs do to end it fast
		t.Fatal(err)
	}
	p.await(`weir: .*PostgreSQL, which weir dev had started, has ended: `)
}

func TestDevListensOnThisMachineOnly(t *testing.T) {
	for _, flag := range []string{"--console-listen", "--gateway-listen"} {
		for _, address := range []string{"", ":19466", "0.0.0.0:19466", "[::]:0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
			got := offline(t, "", "dev", "--data-dir", testbed.Folder(t), "--config", emptyFile(t), "--console-listen", "127.0.0.1:0", flag, address)
			if got.code != exitUsage || !strings.Contains(got.stderr, flag+": got") || !strings.Contains(got.stderr, "localhost:0") {
				t.Errorf("%s %q: exit code %d, said %s", flag, address, got.code, got.stderr)
			}
		}
	}
}

func TestDevInAReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := testbed.Folder(t)
		if err := os.Mkdir(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		wantWords(t, fails(t, devProgram(t, dir)), dir, "permission denied", "--data-dir")
		return
	}
	dir := testbed.Mount(t, "ro,size=1m")
	wantWords(t, fails(t, devProgram(t, dir)), dir, "read-only file system", "--data-dir")
}

func TestDevWithoutSpace(t *testing.T) {
	dir := testbed.Mount(t, "size=8m,mode=755")
	wantWords(t, fails(t, devProgram(t, dir)), dir, "MB free on its disk, at least 256 MB are needed", "--data-dir")
}

// A disk that fills up while weir dev runs ends it before a server fails in the middle of a write.
func TestDevWhoseDiskFillsUp(t *testing.T) {
	dir := testbed.Mount(t, "size=400m,mode=755")
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	big, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for err == nil {
		var free uint64
		if free, err = freeOn(dir); free < 32<<20 { // what must stay free
			break
		}
		if err == nil {
			_, err = big.Write(chunk)
		}
	}
	if err := errors.Join(err, big.Close()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != exitError {
			t.Errorf("ended with %v, want exit code %d", err, exitError)
		}
	case <-time.After(time.Minute):
		t.Fatal("still running on a full disk")
	}
	wantWords(t, p.log.String(), "weir: disk: ", "MB free on the disk of "+dir, "at least 32 MB are needed", "--data-dir")
	if strings.Contains(p.log.String(), "goroutine ") {
		t.Error("a stack trace")
	}
}

func freeOn(dir string) (uint64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return uint64(s.Bavail) * uint64(s.Bsize), err
}

// The machine without PostgreSQL is this one, with what there is of it hidden in a mount namespace.
func TestDevWithoutPostgres(t *testing.T) {
	const hide = `set -e
for d in /usr/lib/postgresql /usr/local/pgsql /usr/pgsql-*; do if test -d "$d"; then mount -t tmpfs tmpfs "$d"; fi; done
PATH=/nowhere; export PATH
exec "$@"`
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("unprivileged: no mount namespace can be made here: %v %s", err, out)
	}
	inner := devProgram(t, testbed.Folder(t))
	command := exec.Command("unshare", append([]string{"-m", "sh", "-c", hide, "sh"}, inner.Args...)...)
	command.Env = inner.Env
	wantWords(t, fails(t, command), "this machine has no PostgreSQL", "apt-get install postgresql", "--postgres-url", "WEIR_POSTGRES_URL",
		"another user than root")
}

func TestDevRefusesFlagsThatContradict(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--exit"}, "--exit needs --demo-seconds"},
		{[]string{"--exit", "--demo-seconds", "20", "--no-demo"}, "--no-demo leaves it out"},
		{[]string{"--demo-seconds", "-1"}, "--demo-seconds: got -1; allowed: 0 (until stopped), or 20 to 3600"},
	} {
		got := offline(t, "", append([]string{"dev", "--config", emptyFile(t)}, test.args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%v: exit code %d, %s", test.args, got.code, got.stderr)
		}
	}
}
