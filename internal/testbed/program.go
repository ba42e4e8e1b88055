package testbed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of a program on this machine, one of those that scripts/install-packages.sh installs. Without
// it the test is skipped and says so, or, with WEIR_TEST_REQUIRE_REAL=1, fails.
func Program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, folder := range []string{"/usr/sbin", "/usr/local/sbin"} { // not in everybody's PATH
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path
		}
	}
	Missing(t, name+" is not on this machine: scripts/install-packages.sh installs it")
	return ""
}

// Missing ends a test that lacks something real: skipped with the reason, or failed with WEIR_TEST_REQUIRE_REAL=1.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("WEIR_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("WEIR_TEST_REQUIRE_REAL=1, but %s", reason)
	}
	t.Skip(reason)
}

// FreePort returns a loopback port that nobody listens on, from below those that the system gives to clients, so that no
// passing connection takes it before it is used. Until the test ends no other FreePort of this machine returns it, also while the program that
// it is for has not begun to listen, or is being restarted: the port's other half, that of UDP, is held meanwhile.
func FreePort(t testing.TB) int {
	t.Helper()
	const lowest, highest = 10_000, 32_000
	for range 1000 {
		port := lowest + rand.IntN(highest-lowest)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			_ = claim.Close()
			continue
		}
		t.Cleanup(func() { _ = claim.Close() })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatalf("no port between %d and %d is free", lowest, highest)
	return 0
}

// Running is a program at work.
type Running struct {
	t       testing.TB
	name    string
	process *os.Process
	log     string // path
	pipe    *os.File
	watcher *exec.Cmd
	ended   chan struct{}
	err     error // valid after ended
}

// endScript waits for the end of its standard input, which is that of the test process at the latest, and then ends a
// process group: politely, and after 8 s without a word.
const endScript = `PATH=/usr/bin:/bin; read -r _
kill -s TERM -- "-$1" 2>/dev/null
n=0
while [ "$n" -lt 80 ] && kill -s 0 -- "-$1" 2>/dev/null; do sleep 0.1; n=$((n + 1)); done
kill -s KILL -- "-$1" 2>/dev/null
exit 0`

// Run starts a program in a process group of its own and ends all of the group with the test, or with the test process,
// however that one ends. What it says goes to a file that is shown when the test fails.
func Run(t testing.TB, command *exec.Cmd) *Running {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "log-*")
	if err != nil {
		t.Fatal(err)
	}
	p := &Running{t: t, name: filepath.Base(command.Path), log: file.Name(), ended: make(chan struct{})}
	command.Stdout, command.Stderr = file, file
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.process = command.Process
	go func() {
		defer close(p.ended)
		p.err = command.Wait()
		_ = file.Close()
	}()
	if err := p.watch(command.Process.Pid); err != nil {
		_ = command.Process.Kill()
		<-p.ended
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.End()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.Said())
		}
	})
	return p
}

func (p *Running) watch(group int) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	p.watcher = exec.Command("/bin/sh", "-c", endScript, "sh", strconv.Itoa(group))
	p.watcher.Stdin = reader
	p.watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.watcher.Start(); err != nil {
		return fmt.Errorf("watcher of %s: %w", p.name, err)
	}
	p.pipe = writer
	return reader.Close()
}

// End ends the program and its children, and waits for that. It may be called again.
func (p *Running) End() {
	p.t.Helper()
	if p.pipe == nil {
		return
	}
	if err := p.pipe.Close(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	p.pipe = nil
	if err := p.watcher.Wait(); err != nil {
		p.t.Errorf("watcher of %s: %v", p.name, err)
	}
	if err := p.Wait(patience); errors.Is(err, errStillRunning) {
		p.t.Errorf("%s outlives kill -9", p.name)
	}
}

// Freeze stops the program where it is: it takes connections and questions, and answers nothing, as a machine that hangs.
func (p *Running) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen program go on. Of one that is not frozen, or has ended, it asks nothing.
func (p *Running) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Running) signal(s os.Signal) {
	p.t.Helper()
	if err := p.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%s: %v: %v", p.name, s, err)
	}
}

var errStillRunning = errors.New("still running")

// Alive returns an error that says what happened, once the program has ended by itself.
func (p *Running) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %w\n%s", p.name, p.err, p.Said())
	default:
		return nil
	}
}

// Wait waits for the program to end by itself, for limit at most, and returns what exec.Cmd.Wait said of it.
func (p *Running) Wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-timer.C:
		return fmt.Errorf("%s: %w after %s", p.name, errStillRunning, limit)
	}
}

// PID is the id of the program's process.
func (p *Running) PID() int { return p.process.Pid }

// Log is the path of the file with all that the program wrote to its outputs. It goes with the test.
func (p *Running) Log() string { return p.log }

// Said is the end of what the program wrote to its outputs.
func (p *Running) Said() string {
	const most = 8000
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}
