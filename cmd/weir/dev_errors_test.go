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
	"strings"
	"syscall"
	"testing"
	"time"
)

// fails runs weir dev, which must end by itself with exit code 1 and one line on standard error.
func fails(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
		dir := devFolder(t)
		wantWords(t, fails(t, devCommand(t, dir, flag, taken.Addr().String())), flag, taken.Addr().String(), "address already in use")
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a data directory was made before the port was tried", flag)
		}
	}
}

func TestDevRunsOnceInADirectory(t *testing.T) {
	dir := devFolder(t)
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	wantWords(t, fails(t, devCommand(t, dir, "--no-demo")), "running already", fmt.Sprintf("pid %d", p.command.Process.Pid), "--data-dir")
	wantWords(t, fails(t, devCommand(t, dir, "--no-demo", "--fresh")), "running already")
	if got := decode[[]any](p.bed(), "rules", "list"); len(got) != 0 {
		t.Errorf("got rules %v", got)
	}
	p.interrupt()
}

func TestDevLeavesForeignDirectoriesAlone(t *testing.T) {
	dir := devFolder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantWords(t, fails(t, devCommand(t, dir, "--fresh")), "somebody else", "thesis.tex", "--data-dir")
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

// devMount gives a small file system of its own, where this user may mount one: as root on Linux.
func devMount(t *testing.T, options string) string {
	t.Helper()
	dir := devFolder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("unprivileged: no file system can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

func TestDevInAReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := devFolder(t)
		if err := os.Mkdir(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		wantWords(t, fails(t, devCommand(t, dir)), dir, "permission denied", "--data-dir")
		return
	}
	dir := devMount(t, "ro,size=1m")
	wantWords(t, fails(t, devCommand(t, dir)), dir, "read-only file system", "--data-dir")
}

func TestDevWithoutSpace(t *testing.T) {
	dir := devMount(t, "size=8m,mode=755")
	wantWords(t, fails(t, devCommand(t, dir)), dir, "MB free on its disk, at least 256 MB are needed", "--data-dir")
}

// A disk that fills up while weir dev runs ends it before a server fails in the middle of a write.
func TestDevWhoseDiskFillsUp(t *testing.T) {
	dir := devMount(t, "size=400m,mode=755")
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	big, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for err == nil {
		var free uint64
		if free, err = freeOn(dir); free < devFull {
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
	case <-time.After(30 * time.Second):
		t.Fatal("still running on a full disk")
	}
	wantWords(t, p.log.String(), "weir: disk: ", "MB free on the disk of "+dir, "--data-dir")
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
	inner := devCommand(t, devFolder(t))
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
		{[]string{"--demo-seconds", "-1"}, fmt.Sprintf("--demo-seconds: got -1; allowed: 0 (until stopped), or %d to 3600", demoLeast)},
	} {
		got := offline(t, "", append([]string{"dev", "--config", emptyFile(t)}, test.args...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%v: exit code %d, %s", test.args, got.code, got.stderr)
		}
	}
}

func TestDevTakesOfTheConfigurationWhatItSays(t *testing.T) {
	given, err := loadConfig(configSource{file: writeFile(t, "weir.yaml", "namespace: mine\nkafka: {brokers: [10.0.0.1:9092]}\n"),
		environ: []string{"WEIR_REDIS_URL=redis://10.0.0.2:6379/0", "WEIR_LOG_LEVEL=debug"}})
	if err != nil {
		t.Fatal(err)
	}
	c, ignored := devConfig(given, devOptions{})
	if c.Namespace != "mine" || c.Log.Level != "debug" || c.Kafka.Brokers[0] == "10.0.0.1:9092" {
		t.Errorf("took namespace %s, log level %s, brokers %v", c.Namespace, c.Log.Level, c.Kafka.Brokers)
	}
	if len(ignored) != 2 || !strings.HasPrefix(ignored[0], "kafka.brokers (") || ignored[1] != "redis.url (WEIR_REDIS_URL)" {
		t.Errorf("ignored %q", ignored)
	}
}
