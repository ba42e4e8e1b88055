package doctest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic/format"
)

// treatment is what is done with a command line.
type treatment int

const (
	runIt    treatment = iota // run it to its end
	startIt                   // start it, and stop it when the document ends
	exportIt                  // put its variables into the environment of those that follow
	leaveIt                   // what it names exists; that is all that is looked at
)

// treat decides what to do with a command line, and refuses one that nobody has thought about.
func (s *session) treat(programs [][]string) (treatment, error) {
	out := runIt
	for _, words := range programs {
		one, err := s.treatOne(words)
		if err != nil {
			return 0, err
		}
		alone := one == exportIt || one == leaveIt && words[0] != "curl" && words[0] != "haproxy"
		if alone && len(programs) > 1 {
			return 0, fmt.Errorf("%s stands with other commands in a line", words[0])
		}
		if one != runIt {
			out = one
		}
	}
	if len(programs) == 0 {
		return 0, fmt.Errorf("no command")
	}
	for _, words := range programs {
		if out != runIt && isWeir(words) { // nobody sees whether it ends well
			if err := weirTakes(words); err != nil {
				return 0, err
			}
		}
	}
	return out, nil
}

// weirTakes lets weir itself check the flags of a command that is not run to its end, and the log's format.
func weirTakes(words []string) error {
	help := exec.Command(testbed.Weir(), append(slices.Clone(words[1:]), "--help")...)
	if out, err := help.CombinedOutput(); err != nil {
		return fmt.Errorf("weir does not know this: %s", out)
	}
	if at := slices.Index(words, "--format"); at >= 0 && at+1 < len(words) && !slices.Contains(format.Names(), words[at+1]) {
		return fmt.Errorf("weir reads no format %q; it reads %v", words[at+1], format.Names())
	}
	return nil
}

func (s *session) treatOne(words []string) (treatment, error) {
	switch {
	case isWeir(words, "dev"), isWeir(words, "loadgen"):
		return treatDemo(words)
	case isWeir(words, "run"), isWeir(words, "gate"):
		return startIt, nil
	case isWeir(words, "dashboards") && slices.Contains(words, "push"):
		return leaveIt, nil // into somebody's Grafana; cmd/weir tries it on one that speaks its API
	case isWeir(words):
		return runIt, nil
	case words[0] == "export":
		return exportIt, nil
	case words[0] == "make":
		return treatMake(words)
	case words[0] == "docker":
		return leaveIt, checkDocker(words)
	case words[0] == "curl":
		return s.treatCurl(words), nil
	case words[0] == "haproxy":
		return leaveIt, nil // with the configuration of the page: package traffic starts it
	case words[0] == "go":
		return leaveIt, checkGoTest(words)
	case strings.HasPrefix(words[0], "scripts/"):
		return leaveIt, executable(words[0])
	case words[0] == "git" && len(words) > 1 && words[1] == "clone", words[0] == "cd":
		return leaveIt, nil
	case words[0] == "pg_dump", words[0] == "pg_restore":
		return leaveIt, nil // of an installation of yours; internal/operations runs the page's own commands
	case (words[0] == "touch" || words[0] == "rm") && len(words) == 2 && words[1] == "/run/weir/observe":
		return leaveIt, nil // the file of a machine's own gate; cmd/weir tries one of a test's
	case words[0] == "tail" && slices.Contains(words, "-F"):
		return startIt, nil
	case slices.Contains([]string{"cat", "cp", "date", "echo", "head", "mkdir", "printf", "seq", "sha256sum", "sleep", "true", "zcat"}, words[0]):
		return runIt, nil
	}
	return 0, fmt.Errorf("%s is not on the list of commands in internal/doctest", words[0])
}

// executable makes sure that a script of this repository exists and can be run.
func executable(script string) error {
	info, err := os.Stat(filepath.Join(repository, script))
	if err == nil && info.Mode()&0o111 == 0 {
		err = fmt.Errorf("%s cannot be run: mode %s", script, info.Mode())
	}
	return err
}

// isWeir reports whether a command is weir, with the subcommand if one is given.
func isWeir(words []string, subcommand ...string) bool {
	if words[0] != "weir" && words[0] != "bin/weir" {
		return false
	}
	return len(subcommand) == 0 || len(words) > 1 && words[1] == subcommand[0]
}

// treatDemo starts weir dev, and runs loadgen where it writes to a file or is held against a replay. Loads of minutes, and a
// demo that ends by itself, are tested where they are written; here their flags are checked, by weir itself.
func treatDemo(words []string) (treatment, error) {
	switch {
	case isWeir(words, "dev") && !slices.Contains(words, "--exit"):
		return startIt, nil
	case isWeir(words, "loadgen") && (slices.Contains(words, "--to") || slices.Contains(words, "--replay")):
		return runIt, nil
	}
	return leaveIt, nil
}

// treatMake makes sure that a target exists. make dev is weir dev.
func treatMake(words []string) (treatment, error) {
	text, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		return 0, err
	}
	for _, target := range words[1:] {
		if !isAssignment(target) && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).Match(text) {
			return 0, fmt.Errorf("the Makefile has no target %s", target)
		}
	}
	if slices.Contains(words, "dev") {
		return startIt, nil
	}
	return leaveIt, nil
}

// checkGoTest makes sure that the tested package exists.
func checkGoTest(words []string) error {
	if len(words) < 3 || words[1] != "test" {
		return fmt.Errorf("of go, the documents use go test PACKAGE")
	}
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") }) // flags of the test come after it
	if at < 0 {
		return fmt.Errorf("go test of no package: one is named by ./PATH")
	}
	found, err := filepath.Glob(filepath.Join(repository, words[at], "*_test.go"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no tests", words[at])
	}
	return err
}

func checkDocker(words []string) error {
	if len(words) < 3 || words[1] != "compose" || !slices.Contains([]string{"up", "down", "ps", "logs", "exec", "build", "start", "stop", "restart"}, words[2]) {
		return fmt.Errorf("of docker, the documents use docker compose up, down, ps, logs, exec, build, start, stop and restart")
	}
	_, err := os.Stat(filepath.Join(repository, "docker-compose.yml"))
	return err
}

// treatCurl runs curl where what it asks has been started.
func (s *session) treatCurl(words []string) treatment {
	if len(s.running) > 0 && slices.ContainsFunc(words, localPort.MatchString) {
		return runIt
	}
	return leaveIt
}

// listening gives what a document starts listeners of its own: weir run and weir gate serve metrics where the default is mapped to.
// weir dev, which make dev runs, takes a free port for these; it has a directory of its own, and the ports that stand for
// those of the documents.
func (s *session) listening(text string, programs [][]string) string {
	words := programs[0]
	switch {
	case s.printed:
	case (isWeir(words, "run") || isWeir(words, "gate")) && !slices.Contains(words, "--http-listen"):
		command, _, _ := strings.Cut(text, " #")
		return command + " --http-listen " + s.local(defaultHTTP)
	case isWeir(words, "dev"), words[0] == "make":
		const console, gateway = "127.0.0.1:9466", "127.0.0.1:9467"
		flags := ""
		if isWeir(words) {
			flags = strings.Join(words[2:], " ")
		}
		return fmt.Sprintf("unset ${!WEIR_*}; exec weir dev %s --data-dir %s --console-listen %s --gateway-listen %s", flags,
			s.devDir(), s.local(console), s.local(gateway))
	}
	return text
}

// devDir is a directory that PostgreSQL can enter, which weir dev runs as another user where it runs as root.
func (s *session) devDir() string {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "weir-doctest-")
	s.must(err)
	s.t.Cleanup(func() { s.must(os.RemoveAll(dir)) })
	s.must(os.Chmod(dir, 0o755))
	return filepath.Join(dir, "dev")
}

// asks reports whether a command line changes nothing, so that it can be repeated.
func asks(programs [][]string) bool {
	return !slices.ContainsFunc(programs, func(words []string) bool {
		family := isWeir(words, "history") || isWeir(words, "doctor") || isWeir(words, "config") || isWeir(words, "version")
		list := isWeir(words) && len(words) > 2 && (words[2] == "list" || words[2] == "show")
		return !family && !list && words[0] != "curl"
	})
}

// export takes variables over, if weir knows them. Where servers are is this test's to say.
func (s *session) export(programs [][]string) error {
	s.begin()
	show := exec.Command(testbed.Weir(), "config", "show", "--output", "json")
	show.Dir, show.Env = s.dir, []string{"PATH=" + os.Getenv("PATH")}
	out, err := show.Output()
	if err != nil {
		return err
	}
	var fields []struct{ Environment string }
	if err := json.Unmarshal(out, &fields); err != nil {
		return err
	}
	servers := []string{"WEIR_KAFKA_BROKERS", "WEIR_REDIS_URL", "WEIR_REDIS_ADDRESSES", "WEIR_POSTGRES_URL"}
	for _, word := range programs[0][1:] {
		name, value, ok := strings.Cut(word, "=")
		known := strings.HasPrefix(name, "WEIR_TEST_") || name == "WEIR_SERVER" || name == "WEIR_TOKEN" // of commands that ask a server
		for _, f := range fields {
			known = known || f.Environment == name
		}
		switch {
		case !ok || !known:
			return fmt.Errorf("export %s: weir knows no such variable", word)
		case !slices.Contains(servers, name):
			s.vars[name] = localPort.ReplaceAllStringFunc(value, s.local)
		}
	}
	return nil
}

func TestTreatment(t *testing.T) {
	for _, tc := range []struct {
		text string
		want treatment
		bad  bool
	}{
		{"weir migrate", runIt, false},
		{"bin/weir run --stages route", startIt, false},
		{"weir gate", startIt, false},
		{"tail -F access.log | weir ingest - --format combined --live", startIt, false},
		{"export WEIR_NAMESPACE=x", exportIt, false},
		{"make test", leaveIt, false},
		{"make tset", 0, true},
		{"docker compose up -d", leaveIt, false},
		{"docker run weir", 0, true},
		{"curl http://127.0.0.1:9465/", leaveIt, false}, // nothing has been started
		{"curl https://example.com/ | bash", 0, true},
		{"for i in 1 2; do curl http://127.0.0.1:9467/; sleep 1; done", leaveIt, false},
		{"weir loadgen --to f --events 10 --truth t", runIt, false},
		{"weir loadgen --duration 2m --truth t", leaveIt, false},
		{"weir loadgen --duraton 2m", 0, true},
		{"haproxy -f haproxy.cfg | weir ingest - --format haproxy --live", leaveIt, false},
		{"haproxy -f haproxy.cfg | weir ingest - --fromat haproxy --live", 0, true},
		{"tail -F access.log | weir ingest - --format haproxi --live", 0, true},
		{"go test -run TestSomething -count=1 ./ingest", leaveIt, false},
		{"go test ./nowhere", 0, true},
		{"go run ./cmd/weir", 0, true},
		{"rm -rf /", 0, true},
		{"weir version && python3 x.py", 0, true},
		{"make test && weir run", 0, true},
		{"for i in 1 2; do echo $i; done >> f", runIt, false},
	} {
		programs, err := programsOf(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := (&session{t: t}).treat(programs)
		if got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%s: got %d, %v", tc.text, got, err)
		}
	}
}
