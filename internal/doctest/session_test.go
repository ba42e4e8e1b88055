package doctest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// patience is after how long a command hangs, on a machine that is busy with other tests; longest, of one that may compile.
const patience, longest = time.Minute, 15 * time.Minute

// session runs the commands of one document, one after the other, in a directory and against an installation of its own.
// Both are made at the first command.
type session struct {
	t       *testing.T
	ready   bool // the document takes it that weir migrate has been run
	dir     string
	vars    map[string]string // what the commands find in their environment
	ports   map[string]string // of 127.0.0.1, as the documents have them, to those that are free here
	running []*process
	printed bool // commands run as they are printed: what else listens on their ports is no matter
	broken  bool // a command has failed: those after it would only fail, too
}

// Ports that the documents use belong to weir's defaults and are mapped to free ones, so that two programs that would
// get into each other's way for a reader do so here, too.
const defaultHTTP, defaultGate, defaultConsole = "127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466"

var localPort = regexp.MustCompile(`127\.0\.0\.1:94\d\d`)

func (s *session) begin() {
	s.t.Helper()
	if s.dir != "" {
		return
	}
	s.dir, s.ports = s.t.TempDir(), map[string]string{}
	s.vars = map[string]string{
		"PATH": filepath.Join(s.dir, "bin") + ":" + os.Getenv("PATH"), "HOME": s.dir, "USER": "reader",
		"WEIR_NAMESPACE": testbed.Namespace(s.t), "WEIR_KAFKA_BROKERS": strings.Join(testbed.Kafka(s.t), ","),
		"WEIR_REDIS_URL": testbed.Redis(s.t), "WEIR_POSTGRES_URL": testbed.Postgres(s.t),
		"WEIR_GATE_LISTEN": s.local(defaultGate), "WEIR_CONSOLE_LISTEN": s.local(defaultConsole),
		// The defaults, but for their number: a document is read by one person, not by a fleet.
		"WEIR_KAFKA_PARTITIONS_REQUESTS": "2", "WEIR_KAFKA_PARTITIONS_KEYED": "4", "WEIR_KAFKA_PARTITIONS_HITS": "2",
	}
	s.must(os.Mkdir(filepath.Join(s.dir, "bin"), 0o755))
	s.must(os.Symlink(testbed.Weir(), filepath.Join(s.dir, "bin", "weir")))
	top, err := filepath.Abs(repository)
	s.must(err)
	for _, name := range []string{"examples", "deploy", "Makefile", "docker-compose.yml"} {
		s.must(os.Symlink(filepath.Join(top, name), filepath.Join(s.dir, name)))
	}
	s.must(os.WriteFile(filepath.Join(s.dir, "access.log.gz"), zipped(s.t, filepath.Join(top, "examples", "access.log")), 0o644))
	if s.ready {
		out, err := s.bash("weir migrate")
		if err != nil {
			s.t.Fatalf("weir migrate: %v\n%s", err, out)
		}
	}
}

func (s *session) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func zipped(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// local gives the address that stands for one of the documents.
func (s *session) local(address string) string {
	if s.printed {
		return address
	}
	if s.ports[address] == "" {
		s.ports[address] = fmt.Sprint("127.0.0.1:", testbed.FreePort(s.t))
	}
	return s.ports[address]
}

// keep writes a block to the file that it says it is.
func (s *session) keep(b *block, file string) {
	s.t.Helper()
	s.begin()
	path := filepath.Join(s.dir, filepath.Clean("/"+file))
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(b.text), 0o644))
}

// runBlock runs the commands of a block.
func (s *session) runBlock(b *block) {
	s.t.Helper()
	commands, err := commandsOf(b)
	if err != nil {
		s.t.Errorf("%s: %v", b.at(), err)
		return
	}
	for _, c := range commands {
		if s.broken {
			return
		}
		if err := s.command(&c); err != nil {
			s.t.Errorf("%s:%d: $ %s\n%v", b.doc, c.line, c.text, err)
			s.broken = true
		}
	}
}

// command does with one command line what its kind asks for.
func (s *session) command(c *shown) error {
	programs, err := programsOf(c.text)
	if err != nil {
		return err
	}
	treatment, err := s.treat(programs)
	if err != nil {
		return err
	}
	switch treatment {
	case runIt:
		s.begin()
		return s.finish(c, programs)
	case startIt:
		s.begin()
		return s.start(c, programs)
	case exportIt:
		return s.export(programs)
	}
	return nil
}

// finish runs a command to its end and compares its output. A command that only asks is asked again for a while, since
// what it asks about takes effect a moment after the command before it; and so is one that waited in vain while it stood still.
func (s *session) finish(c *shown, programs [][]string) error {
	text := localPort.ReplaceAllStringFunc(c.text, s.local)
	deadline := time.Now().Add(patience)
	for {
		out, err := s.bash(text)
		if err == nil {
			err = compare(c.output, out)
		}
		again := asks(programs) || strings.Contains(out, context.DeadlineExceeded.Error())
		if err == nil || !again || time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("%w\nit says:\n%s%s", err, out, s.tails())
			}
			return nil
		}
		timer := time.NewTimer(200 * time.Millisecond)
		<-timer.C
	}
}

func (s *session) bash(text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = s.dir, s.environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *session) environ() []string {
	var all []string
	for name, value := range s.vars {
		all = append(all, name+"="+value)
	}
	return all
}

// compare looks for each shown line among those that were printed, in order. In a shown line … stands for anything, and
// blanks for any number of them.
func compare(shown []string, printed string) error {
	rest := strings.Split(printed, "\n")
	for _, line := range shown {
		pattern := regexp.QuoteMeta(strings.TrimRight(line, " "))
		pattern = regexp.MustCompile(` +`).ReplaceAllString(strings.ReplaceAll(pattern, "…", ".*"), ` +`)
		re, err := regexp.Compile("^" + pattern + `\s*$`)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(rest, re.MatchString)
		if at < 0 {
			return fmt.Errorf("no line is as shown: %s", line)
		}
		rest = rest[at+1:]
	}
	return nil
}

// process is a command that runs until the document ends.
type process struct {
	cmd  *exec.Cmd
	text string
	log  string
	done chan error
	weir bool // all of it is weir: it must end by itself, with exit code 0
}

func (s *session) start(c *shown, programs [][]string) error {
	if isWeir(programs[0], "run") && slices.Contains(programs[0], "--console") && !s.printed {
		s.end() // a reader has stopped make dev by then, whose console is at the same address
		s.running = nil
	}
	f, err := os.CreateTemp(s.dir, "log-*")
	if err != nil {
		return err
	}
	text := s.listening(localPort.ReplaceAllStringFunc(c.text, s.local), programs)
	p := &process{cmd: exec.Command("bash", "-c", text), text: c.text, log: f.Name(), done: make(chan error, 1), weir: len(programs) == 1 && (!s.printed || isWeir(programs[0]))}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = s.dir, s.environ(), f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all of a pipe ends
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.done <- p.cmd.Wait()
		_ = f.Close()
	}()
	s.running = append(s.running, p)
	return p.awaitReady(programs)
}

// awaitReady waits until a process says that it works.
func (p *process) awaitReady(programs [][]string) error {
	ready, limit := "", patience
	for _, words := range programs {
		if words[0] == "make" {
			limit = longest // it builds first
		}
		switch {
		case words[0] == "make" && slices.Contains(words, "run-deps"):
			ready = "export WEIR_"
		case isWeir(words, "run"):
			ready = "msg=running"
		case isWeir(words, "gate"):
			ready = `msg="answering`
		case isWeir(words, "dev"), words[0] == "make":
			ready = "http://"
		}
	}
	deadline := time.Now().Add(limit)
	for ready != "" && !strings.Contains(p.said(), ready) {
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("it has ended (%v) and said\n%s", err, p.said())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not say %s, but\n%s", ready, p.said())
		}
	}
	return nil
}

func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tails is what the processes have said last, for a failure.
func (s *session) tails() string {
	var b strings.Builder
	for _, p := range s.running {
		said := p.said()
		fmt.Fprintf(&b, "\n%s has said:\n%s", p.text, said[max(0, len(said)-2000):])
	}
	return b.String()
}

// end stops what runs, the youngest first.
func (s *session) end() {
	s.t.Helper()
	watch := testbed.StartStopwatch()
	defer watch.Stop()
	for _, p := range slices.Backward(s.running) {
		group, told := -p.cmd.Process.Pid, time.Now()
		_ = syscall.Kill(group, syscall.SIGINT) // it may have ended
		select {
		case err := <-p.done:
			var code *exec.ExitError
			if p.weir && err != nil && !(errors.As(err, &code) && code.ExitCode() == 0) && !watch.Excuses(told, p.said()) {
				s.t.Errorf("$ %s: %v after Ctrl-C; it said\n%s", p.text, err, p.said())
			}
		case <-time.After(patience):
			s.t.Errorf("$ %s: still there %s after Ctrl-C", p.text, patience)
		}
		_ = syscall.Kill(group, syscall.SIGKILL)
	}
}

func TestCompare(t *testing.T) {
	const printed = "RULE   SOURCE\nflood  ip=192.0.2.1/32\nflood  ip=192.0.2.2/32\n"
	for _, tc := range []struct {
		shown []string
		good  bool
	}{
		{nil, true},
		{[]string{"RULE SOURCE", "flood ip=192.0.2.2/32"}, true},
		{[]string{"flood …"}, true},
		{[]string{"flood ip=192.0.2.2/32", "RULE SOURCE"}, false},
		{[]string{"flood ip=192.0.2.3/32"}, false},
		{[]string{"flood ip=192.0.2.1"}, false},
	} {
		if err := compare(tc.shown, printed); (err == nil) != tc.good {
			t.Errorf("%q: %v", tc.shown, err)
		}
	}
}
