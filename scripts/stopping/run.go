package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// event is one line of test2json.
type event struct {
	Action  string
	Package string `json:",omitempty"`
	Test    string `json:",omitempty"`
	Output  string `json:",omitempty"`
}

// test runs the tests of a package, and stops them meanwhile.
func test(ctx context.Context, o options, p testedPackage, program string, out *printer) (r result) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	// test2json ignores the interrupt, and so would all that the tests start, which some of them interrupt.
	arguments := []string{
		"tool", "test2json", "-t", "-p", p.path, "env", "--default-signal=INT,QUIT", program, "-test.v=test2json", "-test.paniconexit0",
		"-test.timeout=" + o.timeout.String(), "-test.parallel=" + strconv.Itoa(o.parallel), // one word each, as go test does
	}
	if o.run != "" {
		arguments = append(arguments, "-test.run="+o.run)
	}
	if o.skip != "" {
		arguments = append(arguments, "-test.skip="+o.skip)
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir, command.Stderr = p.dir, os.Stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		return result{broken: err.Error()}
	}
	s, err := newStopper(o, p, program)
	if err != nil {
		return result{broken: err.Error()}
	}
	defer s.close()
	command.Cancel = func() error { return s.end(syscall.SIGTERM) }
	command.WaitDelay = 15 * time.Second
	if err := command.Start(); err != nil {
		return result{broken: err.Error()}
	}
	s.root = command.Process.Pid
	follower := follower{output: map[string]*strings.Builder{}}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		s.run(ctx, ended, &follower)
	}()
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		out.event(lines.Bytes())
		follower.line(lines.Bytes())
	}
	err = errors.Join(lines.Err(), command.Wait())
	close(ended)
	<-stopped
	r = result{failures: follower.failures, passed: follower.passed, stops: s.made}
	if err != nil && (len(r.failures) == 0 || follower.unfinished() != "") {
		r.broken = fmt.Sprintf("%v\n%s%s", err, follower.unfinished(), follower.text(""))
	}
	return r
}

// line takes up an event.
func (f *follower) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.output[e.Test] == nil {
		f.output[e.Test] = &strings.Builder{}
	}
	switch e.Action {
	case "output":
		f.output[e.Test].WriteString(e.Output)
	case "pass", "skip":
		if e.Test != "" {
			delete(f.output, e.Test)
			f.passed++
		}
	case "fail":
		if e.Test != "" {
			f.failures = append(f.failures, "FAIL "+e.Test+"\n"+f.output[e.Test].String())
			delete(f.output, e.Test)
		}
	}
}

// say adds a line to what each test that runs has printed.
func (f *follower) say(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for test, said := range f.output {
		if test != "" {
			fmt.Fprintln(said, text)
		}
	}
}

// unfinished names the tests that have begun and not ended.
func (f *follower) unfinished() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var text string
	var names []string
	for name := range f.output {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		text += "unfinished " + name + "\n" + f.output[name].String()
	}
	return text
}

// text is what a test has printed; of none, what the program did outside of tests.
func (f *follower) text(test string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.output[test] == nil {
		return ""
	}
	return f.output[test].String()
}
