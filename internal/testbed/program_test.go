package testbed

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A program ends with its test together with its children, also those that it no longer waits for.
func TestRunEndsTheWholeGroup(t *testing.T) {
	child := filepath.Join(t.TempDir(), "child")
	var p *Running
	t.Run("within", func(t *testing.T) {
		p = Run(t, exec.Command("/bin/sh", "-c", `sleep 600 & echo $! >"$1.new"; mv "$1.new" "$1"; echo started; wait`, "sh", child))
		Eventually(t, 10*time.Second, func() error {
			_, err := os.Stat(child)
			return err
		})
		if err := p.Alive(); err != nil {
			t.Error(err)
		}
		Eventually(t, 10*time.Second, func() error {
			if said := p.Said(); said != "started\n" {
				return fmt.Errorf("said %q", said)
			}
			return nil
		})
	})
	if err := p.Alive(); err == nil {
		t.Error("the program outlives its test")
	}
	text, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, 10*time.Second, func() error {
		if state := stateOf(pid); state != "" && state != "Z" {
			return fmt.Errorf("its child %d is in state %s", pid, state)
		}
		return nil
	})
}

// stateOf is a process's state on Linux; empty once it is gone.
func stateOf(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if syscall.Kill(pid, 0) == nil {
			return "alive"
		}
		return ""
	}
	return strings.Fields(string(status[strings.LastIndexByte(string(status), ')')+1:]))[0]
}

func TestRunKnowsHowAProgramEnded(t *testing.T) {
	p := Run(t, exec.Command("/bin/sh", "-c", "echo broken; exit 3"))
	if err := p.Wait(10 * time.Second); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if err := p.Alive(); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want what it said", err)
	}
	p.End()
	p.End()
}

func TestFreePortIsFree(t *testing.T) {
	for range 20 {
		port := FreePort(t)
		if port < 10_000 || port >= 32_000 {
			t.Errorf("got %d", port)
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

// Who is given a port may take its time: nobody else is given it, here or in another process, until the test ends.
func TestFreePortIsGivenOnce(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	t.Run("within", func(t *testing.T) {
		for range 500 {
			port := FreePort(t)
			if given[port] {
				t.Fatalf("%d is given twice", port)
			}
			given[port] = true
		}
	})
	held := 0
	for port := range given {
		claim, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			held++ // maybe by the next one who was given it
			continue
		}
		_ = claim.Close()
	}
	if held > len(given)/2 {
		t.Errorf("%d of %d ports are held after the test that had them", held, len(given))
	}
}

func TestWhatStaysIsLeftOver(t *testing.T) {
	before, end := goleak.IgnoreCurrent(), make(chan struct{})
	defer close(end)
	go func() { <-end }()
	if err := leftOver(0, before); err == nil || !strings.Contains(err.Error(), "TestWhatStaysIsLeftOver") {
		t.Errorf("got %v", err)
	}
}
