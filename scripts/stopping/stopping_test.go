package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// stayVariable has this program wait for the end of its standard input, in place of its tests, as a program that a test
// has started.
const stayVariable = "WEIR_STOPPING_STAY"

func TestMain(m *testing.M) {
	if os.Getenv(stayVariable) == "" {
		os.Exit(testbed.Main(m))
	}
	fmt.Println("here")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// staying starts a program like that of a package's tests.
func staying(t *testing.T) (pid int) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), stayVariable+"=1")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return command.Process.Pid
}

func is(t *testing.T, pid int, stopped bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error { // the system takes a moment to stop it
		for _, p := range processes() {
			if p.pid == pid && (p.state == "T") == stopped {
				return nil
			}
		}
		return fmt.Errorf("process %d: stopped is not %v", pid, stopped)
	})
}

func stopperOf(t *testing.T) *stopper {
	t.Helper()
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStopper(options{seed: 1, stops: 2}, testedPackage{path: "p"}, own)
	if err != nil {
		t.Fatal(err)
	}
	s.root = os.Getpid()
	t.Cleanup(s.close)
	return s
}

// What weir's programs are is stopped and goes on; what a test itself has stopped stays so.
func TestStopsAndLetsGoOn(t *testing.T) {
	one, two, frozen := staying(t), staying(t), staying(t)
	first, second := stopperOf(t), stopperOf(t)
	other := exec.Command("cat")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if !first.freeze() {
		t.Fatal("found nothing to stop")
	}
	is(t, other.Process.Pid, false)
	_ = in.Close()
	_ = other.Wait()
	for _, pid := range []int{one, two, frozen} {
		is(t, pid, true)
	}
	if second.freeze() {
		t.Error("stopped what was stopped already")
	}
	second.thaw()
	is(t, one, true)
	first.thaw()
	for _, pid := range []int{one, two, frozen} {
		is(t, pid, false)
	}
}

// Who stopped something and ends without a word leaves nothing stopped.
func TestTheGuardLetsGoOn(t *testing.T) {
	pid, s := staying(t), stopperOf(t)
	s.freeze()
	is(t, pid, true)
	_ = s.pipe.Close()
	is(t, pid, false)
}

func TestTheSameSeedStopsAtTheSameMoments(t *testing.T) {
	draw := func(seed uint64) (text string) {
		s, err := newStopper(options{seed: seed}, testedPackage{path: "p"}, "none")
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for range 5 {
			text += fmt.Sprintln(s.between(time.Second, time.Minute))
		}
		return text
	}
	first, again := draw(1), draw(1)
	if first != again || first == draw(2) {
		t.Error("the seed does not say when")
	}
}

func TestStopsNothingMoreThanItMay(t *testing.T) {
	s := stopperOf(t)
	s.most = 0
	s.run(context.Background(), nil, nil) // returns at once
	if s.made != 0 {
		t.Errorf("stopped %d times", s.made)
	}
}

func TestFollowsWhatTestsSay(t *testing.T) {
	f := follower{output: map[string]*strings.Builder{}}
	for _, line := range []string{
		`{"Action":"run","Test":"TestA"}`, `{"Action":"run","Test":"TestB"}`, `{"Action":"run","Test":"TestC"}`,
		`{"Action":"output","Test":"TestA","Output":"why\n"}`, `{"Action":"pass","Test":"TestB"}`,
	} {
		f.line([]byte(line))
	}
	f.say("stood still")
	f.line([]byte(`{"Action":"fail","Test":"TestA"}`))
	f.line([]byte(`{"Action":"output","Output":"panic\n"}`))
	if got := fmt.Sprintf("%q", f.failures); got != `["FAIL TestA\nwhy\nstood still\n"]` || f.passed != 1 {
		t.Errorf("%s, %d passed", got, f.passed)
	}
	if got := f.unfinished(); got != "unfinished TestC\nstood still\n" || f.text("") != "panic\n" {
		t.Errorf("%q %q", got, f.text(""))
	}
}
