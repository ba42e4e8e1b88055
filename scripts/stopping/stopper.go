package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// follower collects what tests print.
type follower struct {
	mu       sync.Mutex
	output   map[string]*strings.Builder // of tests that have not passed
	failures []string
	passed   int
}

// stopper stops the programs of one package's tests, and lets them go on.
type stopper struct {
	dice    *rand.Rand
	program string // of the tests
	root    int    // the process that started it
	most    int
	made    int

	mu      sync.Mutex
	stopped []int // what it has stopped and not let go on
	guard   *exec.Cmd
	pipe    io.WriteCloser // to the guard
}

// guardScript reads lines of process ids, remembers the last, and lets these processes go on when its input ends, which
// it does with this process, however that one ends.
const guardScript = `pids=; while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -s CONT $pids`

func newStopper(o options, p testedPackage, program string) (*stopper, error) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, p.path)
	s := &stopper{dice: rand.New(rand.NewPCG(o.seed, h.Sum64())), program: program, most: o.stops}
	s.guard = exec.Command("/bin/sh", "-c", guardScript)
	s.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends this process's group does not end it
	var err error
	if s.pipe, err = s.guard.StdinPipe(); err != nil {
		return nil, err
	}
	return s, s.guard.Start()
}

// close lets everything go on and ends the guard.
func (s *stopper) close() {
	s.thaw()
	_ = s.pipe.Close()
	_ = s.guard.Wait()
}

// run stops the tests now and then, until they have ended.
func (s *stopper) run(ctx context.Context, ended <-chan struct{}, f *follower) {
	running := s.between(50*time.Millisecond, 3*time.Second) // most packages take no longer
	for s.made < s.most {
		if !wait(ctx, ended, running) {
			return
		}
		still := s.between(1500*time.Millisecond, 12*time.Second)
		at := time.Now()
		if s.freeze() {
			s.made++
			goesOn := wait(ctx, ended, still)
			s.thaw()
			f.say(fmt.Sprintf("    [stood still from %s to %s]", at.Format("15:04:05.000"), time.Now().Format("15:04:05.000")))
			if !goesOn {
				return
			}
		}
		running = s.between(2*time.Second, 10*time.Second)
	}
}

func (s *stopper) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.dice.Int64N(int64(most-least)))
}

// wait reports whether the tests still run after d.
func wait(ctx context.Context, ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-ended:
		return false
	case <-timer.C:
		return true
	}
}

// freeze stops weir's programs below root, until no further one is found: one that is being started while the others
// are stopped, too. It leaves alone what a test has stopped. It reports whether it stopped any.
func (s *stopper) freeze() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seen := map[int]bool{}; ; {
		fresh := slices.DeleteFunc(s.programs(), func(p process) bool { return seen[p.pid] })
		if len(fresh) == 0 {
			return len(s.stopped) > 0
		}
		for _, p := range fresh {
			seen[p.pid] = true
			if p.state == "T" || p.state == "Z" {
				continue
			}
			s.stopped = append(s.stopped, p.pid)
			if s.tell() != nil {
				s.stopped = s.stopped[:len(s.stopped)-1]
				return len(s.stopped) > 0
			}
			_ = syscall.Kill(p.pid, syscall.SIGSTOP) // fails of one that has ended
		}
	}
}

// thaw lets what freeze stopped go on.
func (s *stopper) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.stopped = nil
	_ = s.tell() // a guard that is away has nothing to let go on
}

// tell writes the guard what is stopped, before it is.
func (s *stopper) tell() error {
	words := make([]string, len(s.stopped))
	for i, pid := range s.stopped {
		words[i] = strconv.Itoa(pid)
	}
	_, err := fmt.Fprintln(s.pipe, strings.Join(words, " "))
	return err
}

// end lets everything go on, and sends a signal to the program of the tests.
func (s *stopper) end(signal syscall.Signal) error {
	s.thaw()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all error
	for _, p := range s.programs() {
		if p.exe == s.program {
			all = errors.Join(all, syscall.Kill(p.pid, signal))
		}
	}
	return all
}

// process is one of the machine's.
type process struct {
	pid, parent int
	state       string // T: stopped
	exe         string
}

// programs are the processes below root that run the tests or weir itself, parents first.
func (s *stopper) programs() (ours []process) {
	all := processes()
	below := []int{s.root}
	for i := 0; i < len(below); i++ {
		for _, p := range all {
			if p.parent != below[i] {
				continue
			}
			below = append(below, p.pid)
			if p.exe == s.program || strings.HasPrefix(filepath.Base(p.exe), "weir") {
				ours = append(ours, p)
			}
		}
	}
	return ours
}

// processes reads /proc. What ends meanwhile is left out.
func processes() (all []process) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state parent …; the name may have spaces and parentheses.
		line := string(text)
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		dir := filepath.Dir(path)
		pid, pidErr := strconv.Atoi(filepath.Base(dir))
		parent, parentErr := strconv.Atoi(fields[1])
		if pidErr != nil || parentErr != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil {
			continue // a thread of the system's, or another user's
		}
		all = append(all, process{pid, parent, fields[0], strings.TrimSuffix(exe, " (deleted)")})
	}
	return all
}
