package doctest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// aloneVariable is set where nothing else runs on the machine, as far as this process can see.
const aloneVariable = "WEIR_TEST_ALONE"

// rootsData is where weir dev and run-deps.sh keep what they have where they are run by root.
const rootsData = "/var/lib/weir"

// alone makes a machine of its own within this one and runs a program there: no other process, no port that is taken, and an empty
// directory for what weir dev and run-deps.sh keep for root. All that is left over ends with it.
const alone = `set -eu
ip link set lo up
mkdir -p /var/lib/weir
mount -t tmpfs -o mode=755 weir /var/lib/weir
"$@"
exit 0`

// README.md and the quickstart lead who pastes their commands, one after the other, each into a shell that knows nothing of the ones before, on a
// machine where nothing runs, to a first block.
func TestANewcomerReachesTheFirstBlock(t *testing.T) {
	testbed.Night(t, "a machine is set up anew, twice")
	for _, doc := range []string{"README.md", "docs/quickstart.md"} {
		t.Run(strings.ReplaceAll(doc, "/", "-"), func(t *testing.T) {
			for _, program := range []string{"java", "make", "redis-server", "curl"} {
				testbed.Program(t, program)
			}
			fetchedKafka(t)
			if os.Getenv(aloneVariable) == "" {
				barred := noNamespaces()
				if barred == nil {
					onAMachineAlone(t)
					return
				}
				if err := inTheWay(); err != nil {
					testbed.Missing(t, fmt.Sprintf("a newcomer's machine cannot be had: %v; %v", barred, err))
				}
				if os.Geteuid() == 0 {
					t.Cleanup(func() { _ = os.RemoveAll(rootsData) }) // which was not there before
				}
			}
			newNewcomer(t).follow(doc)
		})
	}
}

// unshare runs a program with a network, processes and mounts of its own, which end with it. Only root may.
func unshare(program ...string) *exec.Cmd {
	return exec.Command("unshare", append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}, program...)...)
}

// noNamespaces says why this process may make none; nil if it may.
func noNamespaces() error {
	if out, err := unshare("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("unshare: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// inTheWay says why a newcomer cannot begin on this machine as it is: somebody listens on a port that the documents name, or what weir keeps
// for root would stay. It is nil if nothing is.
func inTheWay() error {
	if os.Geteuid() == 0 {
		if _, err := os.Stat(rootsData); !os.IsNotExist(err) {
			return fmt.Errorf("this is root, whose data in %s is not this test's (%v)", rootsData, err)
		}
	}
	for _, port := range []int{9092, 6379, 5432, 9464, 9465, 9466, 9467, 9469} {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			return err
		}
		_ = l.Close()
	}
	return nil
}

func onAMachineAlone(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	test, sub, _ := strings.Cut(t.Name(), "/")
	command := unshare("bash", "-c", alone, "alone", self, "-test.run=^"+test+"$/^"+sub+"$", "-test.v", "-test.timeout="+(4*longest).String())
	command.Env = append(os.Environ(), aloneVariable+"=1")
	if _, err := os.Stat(rootsData); os.IsNotExist(err) {
		t.Cleanup(func() { _ = os.Remove(rootsData) }) // what was mounted there is gone, the place is empty
	}
	p := testbed.Run(t, command)
	if err := p.Wait(4 * longest); err != nil {
		t.Fatal(err)
	}
	if said := p.Said(); !strings.Contains(said, "--- PASS: "+t.Name()) {
		t.Fatalf("it has not run:\n%s", said)
	}
}

// newcomer has a checkout of weir, and in the environment what is needed to compile it.
type newcomer struct {
	*session
	exports string // begins each shell
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	s := &session{t: t, printed: true, dir: t.TempDir(), vars: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}}
	top, err := filepath.Abs(repository)
	s.must(err)
	out, err := exec.Command("bash", "-c", `tar -C "$1" --exclude=./.git --exclude=./bin -cf - . | tar -C "$2" -xf -`, "bash", top, s.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("copying the checkout: %v: %s", err, out)
	}
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "CGO_ENABLED"} {
		value, err := exec.Command("go", "env", name).Output()
		s.must(err)
		s.vars[name] = strings.TrimSpace(string(value))
	}
	s.vars["GOPROXY"] = "off" // all modules are here
	s.must(os.MkdirAll(filepath.Join(s.vars["HOME"], ".cache", "weir"), 0o755))
	for _, path := range fetchedKafka(t) {
		s.must(os.Symlink(path, filepath.Join(s.vars["HOME"], ".cache", "weir", filepath.Base(path))))
	}
	s.must(os.WriteFile(filepath.Join(s.dir, "access.log.gz"), zipped(t, filepath.Join(top, "examples", "access.log")), 0o644))
	return &newcomer{session: s}
}

// fetchedKafka is what run-deps.sh would fetch, and has been fetched already.
func fetchedKafka(t *testing.T) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "weir", "kafka-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		testbed.Missing(t, "Apache Kafka is not on this machine: scripts/fetch-kafka.sh fetches it")
	}
	return found
}

// follow does all that a document says, and makes sure that it shows a block and a refusal.
func (n *newcomer) follow(doc string) {
	n.t.Helper()
	defer n.end()
	blocks, err := blocksOf(doc, documents(n.t)[doc])
	n.must(err)
	seen := ""
	for i := range blocks {
		b := &blocks[i]
		if file, ok := strings.CutPrefix(b.more, "file="); ok {
			n.keep(b, file)
		}
		if b.kind != "console" {
			continue
		}
		commands, err := commandsOf(b)
		n.must(err)
		for _, c := range commands {
			n.t.Logf("$ %s", c.text)
			if err := n.paste(&c); err != nil {
				n.t.Fatalf("%s:%d: $ %s\n%v", doc, c.line, c.text, err)
			}
			seen += strings.Join(c.output, "\n") + "\n"
		}
	}
	for _, want := range []string{"  blocked  ", "HTTP/1.1 429 Too Many Requests"} {
		if !strings.Contains(seen, want) {
			n.t.Errorf("%s does not show %q", doc, want)
		}
	}
}

// paste gives a shell that has just been opened one command.
func (n *newcomer) paste(c *shown) error {
	programs, err := programsOf(c.text)
	if err != nil {
		return err
	}
	words := programs[0]
	pasted := *c
	pasted.text = n.exports + c.text
	switch {
	case slices.Equal(words, []string{"make", "test"}):
		return nil // runs this
	case words[0] == "export":
		return n.export(c.text)
	case slices.Equal(words, []string{"make", "dev"}):
		if err := n.start(&pasted, programs); err != nil {
			return err
		}
		n.end() // Ctrl-C, before anything else is tried
		n.running = nil
		return nil
	case slices.Equal(words, []string{"make", "run-deps"}), isWeir(words, "run"), isWeir(words, "gate"), words[0] == "tail" && slices.Contains(words, "-F"):
		return n.start(&pasted, programs)
	}
	return n.finish(&pasted, programs)
}

// export takes the line that make run-deps has printed, which must be the one of the document: its ports are free here.
func (n *newcomer) export(line string) error {
	if len(n.running) == 0 { // said in words
		if err := n.start(&shown{text: "make run-deps"}, [][]string{{"make", "run-deps"}}); err != nil {
			return err
		}
	}
	if said := n.running[0].said(); !slices.Contains(strings.Split(said, "\n"), line) {
		return fmt.Errorf("make run-deps does not print this line, but\n%s", said)
	}
	n.exports = line + "\n"
	return nil
}
