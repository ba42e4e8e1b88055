package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/internal/testbed"
)

// devEnviron is this process's, without what a user may have set for weir.
func devEnviron() []string {
	return append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "WEIR_") && !strings.HasPrefix(kv, "WEIR_TEST_")
	}), asProcess+"=1")
}

// devProgram is weir dev as a process of its own, on free ports.
func devProgram(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	all := append([]string{"dev", "--data-dir", dir, "--console-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
		"--config", emptyFile(t)}, args...)
	c := exec.Command(os.Args[0], all...)
	c.Env = devEnviron()
	return c
}

// devProcess is a weir dev that runs.
type devProcess struct {
	t       *testing.T
	dir     string
	command *exec.Cmd
	log     *lines
	ended   chan error
}

func startDev(t *testing.T, dir string, args ...string) *devProcess {
	t.Helper()
	p := &devProcess{t: t, dir: dir, command: devProgram(t, dir, args...), log: &lines{}, ended: make(chan error, 1)}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.command.Wait() }()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // most often it has ended
		if t.Failed() {
			t.Logf("weir dev said:\n%s", p.log)
		}
	})
	return p
}

// await waits for a line that matches and gives its last group.
func (p *devProcess) await(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	testbed.Eventually(p.t, 60*time.Second, func() error {
		m := re.FindStringSubmatch(p.log.String())
		if m == nil {
			return fmt.Errorf("no line matches %s", pattern)
		}
		found = m[len(m)-1]
		return nil
	})
	return found
}

// bed are other commands, which find the servers by the file that weir dev has written.
func (p *devProcess) bed() *bed {
	return &bed{t: p.t, flags: []string{"--config", filepath.Join(p.dir, config.DefaultFile)}}
}

func (p *devProcess) kill() {
	p.t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
}

// interrupt is Ctrl-C, and gives the exit's error.
func (p *devProcess) interrupt() {
	p.t.Helper()
	watch, begun := testbed.StartStopwatch(), time.Now()
	defer watch.Stop()
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil && !watch.Excuses(begun, p.log.String()) {
			p.t.Errorf("after Ctrl-C: %v", err)
		}
		p.t.Logf("ended %s after Ctrl-C", time.Since(begun).Round(time.Millisecond))
	case <-time.After(endTimeout): // the ten seconds that weir dev may take are counted in TestEndsWithinTenSeconds
		p.t.Errorf("%s after Ctrl-C it still runs", endTimeout)
	}
}

// wantBlock waits for a block of which text is a part: its address, or its hit.
func wantBlock(b *bed, text string) {
	b.t.Helper()
	testbed.Eventually(b.t, time.Minute, func() error {
		blocks := decode[[]map[string]any](b, "blocks", "list")
		for _, block := range blocks {
			if strings.Contains(fmt.Sprint(block), text) {
				return nil
			}
		}
		return fmt.Errorf("no block has %s in it: %v", text, blocks)
	})
}

func TestDevKeepsItsStateThroughKillAndCtrlC(t *testing.T) {
	t.Parallel()
	dir, abuser := testbed.Folder(t), "198.51.100.8"
	p := startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	b := p.bed()
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	b.ok("rules", "promote", "tokens", "--reason", "seen enough", "--yes", "--override", "tests")
	p.sendUntilHit(abuser)
	wantBlock(b, abuser)
	first := hitIDs(b)

	p.kill()
	p = startDev(t, dir, "--no-demo")
	p.await(`going on in `)
	p.await(`everything runs`)
	b = p.bed()
	wantBlock(b, abuser) // Redis came up empty: the reconciler has asserted it from history
	if got := hitIDs(b); !slices.Equal(got, first) {
		t.Errorf("after kill -9 the hits are %v, want %v", got, first)
	}
	other := "198.51.100.9"
	b.send(other, 6)
	wantBlock(b, other)
	p.interrupt()

	p = startDev(t, dir, "--no-demo")
	p.await(`everything runs`)
	wantBlock(p.bed(), abuser)
	wantBlock(p.bed(), other)
	p.interrupt()

	p = startDev(t, dir, "--no-demo", "--fresh")
	p.await(`erasing what is in `)
	p.await(`everything runs`)
	if rules := decode[[]any](p.bed(), "rules", "list"); len(rules) != 0 {
		t.Errorf("--fresh kept rules: %v", rules)
	}
	if hits := hitIDs(p.bed()); len(hits) != 0 {
		t.Errorf("--fresh kept hits: %v", hits)
	}
	p.interrupt()
}

// sendUntilHit sends until the stages have taken the rule, which takes up to two seconds, and the ip has a hit.
func (p *devProcess) sendUntilHit(ip string) {
	p.t.Helper()
	b := p.bed()
	testbed.Eventually(p.t, 30*time.Second, func() error {
		b.send(ip, 6)
		if len(hitIDs(b)) == 0 {
			return errors.New("no hit yet")
		}
		return nil
	})
}

func hitIDs(b *bed) []string {
	b.t.Helper()
	var ids []string
	for _, h := range decode[[]map[string]any](b, "history", "hits", "--since", "1h") {
		ids = append(ids, fmt.Sprint(h["id"]))
	}
	slices.Sort(ids)
	return ids
}

func TestDevServesTheConsoleAndMetrics(t *testing.T) {
	t.Parallel()
	p := startDev(t, testbed.Folder(t), "--no-demo")
	p.await(`everything runs`)
	console := p.await(`console +http://(\S+)`)
	if code, body := fetchPage(t, console, "/"); code != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("the console answers %d", code)
	}
	metrics := p.await(`metrics +http://(\S+)/metrics`)
	if _, body := fetchPage(t, metrics, "/metrics"); !strings.Contains(body, "weir_route_events_total") {
		t.Error("the metrics lack those of the stages")
	}
	if code, body := fetchPage(t, metrics, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	p.interrupt()
}

// With a PostgreSQL of the user's, weir dev starts none, and erases nothing there.
func TestDevWithAPostgresOfTheUsers(t *testing.T) {
	t.Parallel()
	dir := testbed.Folder(t)
	flags := []string{"--no-demo", "--postgres-url", testbed.Postgres(t), "--namespace", testbed.Namespace(t)}
	p := startDev(t, dir, flags...)
	p.await(`using PostgreSQL at postgres://`)
	p.await(`everything runs`)
	if _, err := os.Stat(filepath.Join(dir, "postgres")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has started one of its own: %v", err)
	}
	p.interrupt()
	wantWords(t, fails(t, devProgram(t, dir, append(flags, "--fresh")...)), "--fresh does not erase", "--namespace")
}
