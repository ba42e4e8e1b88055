package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/internal/testbed"
)

// asProcess, in the environment, makes the test binary the program itself: for tests that send it signals.
const asProcess = "WEIR_TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(testbed.Main(m))
}

// bed is one installation on the servers of the testbed.
type bed struct {
	t     *testing.T
	flags []string
}

func newBed(t *testing.T, redis testbed.RedisServer) *bed {
	namespace := testbed.Namespace(t)
	return bedOn(t, redis, namespace, historytest.Migrated(t, namespace))
}

// emptyBed is one whose database is empty, as a new installation's is.
func emptyBed(t *testing.T) *bed {
	return bedOn(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)}, testbed.Namespace(t), testbed.Postgres(t))
}

func bedOn(t *testing.T, redis testbed.RedisServer, namespace, postgres string) *bed {
	b := &bed{t: t, flags: []string{
		"--config", emptyFile(t), "--namespace", namespace,
		"--kafka-brokers", strings.Join(testbed.Kafka(t), ","), "--postgres-url", postgres,
		"--set", "kafka.partitions.requests=2", "--set", "kafka.partitions.keyed=4", "--set", "kafka.partitions.hits=2",
	}}
	switch redis.Kind {
	case testbed.RedisKind:
		b.flags = append(b.flags, "--redis-url", redis.URL)
	case testbed.RedisClusterKind:
		b.flags = append(b.flags, "--redis-addresses", strings.Join(redis.Addrs, ","))
	}
	return b
}

func emptyFile(t *testing.T) string { return writeFile(t, "weir.yaml", "") }

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome is what a command said.
type outcome struct {
	code           int
	stdout, stderr string
}

// weir runs a command to its end. One that stood still for longer than it waits for a server says so, and is run again; a replay that it has made
// by then is made anew.
func (b *bed) weir(args ...string) outcome {
	b.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		o := b.weirWith("", args...)
		if try == tries || !o.stoodStill() {
			return o
		}
		if try == 1 && args[0] == "ingest" && slices.Contains(args, "--replay") {
			args = append(slices.Clone(args), "--on-exists", "replace")
		}
	}
}

// weirWith runs a command that reads stdin. One that stood still is run again only where it has given Kafka nothing yet:
// events that were given twice would count twice.
func (b *bed) weirWith(stdin string, args ...string) outcome {
	b.t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		var out, errs bytes.Buffer
		code := run(b.t.Context(), append(args, b.flags...), strings.NewReader(stdin), &out, &errs)
		o := outcome{code, out.String(), errs.String()}
		given := o.stdout != "" || strings.Contains(o.stderr, "given to Kafka")
		if try == tries || stdin == "" || given || !o.stoodStill() {
			return o
		}
	}
}

// ok runs a command that must succeed and gives its output.
func (b *bed) ok(args ...string) string {
	b.t.Helper()
	o := b.weir(args...)
	if o.code != exitOK {
		b.t.Fatalf("weir %s: exit code %d\n%s%s", strings.Join(args, " "), o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// stoodStill reports whether a command has waited for a server for as long as it does.
func (o outcome) stoodStill() bool {
	return strings.Contains(o.stderr, context.DeadlineExceeded.Error())
}

// decode runs a command that must succeed and reads its JSON output.
func decode[T any](b *bed, args ...string) T {
	b.t.Helper()
	var v T
	text := b.ok(append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return v
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// process is a command that runs until it is stopped.
type process struct {
	b    *bed
	log  *lines
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
	code int           // its exit code, valid after done
}

// start starts a command that runs until the test ends, or stop is called. The test's servers stay until it has ended.
func (b *bed) start(args ...string) *process {
	b.t.Helper()
	return b.startAt("127.0.0.1:0", args...)
}

// startAt is start of a command that serves its metrics at an address.
func (b *bed) startAt(address string, args ...string) *process {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	p := &process{b: b, log: &lines{}, stop: cancel, done: make(chan struct{})}
	all := append(append(args, b.flags...), "--http-listen", address)
	go func() {
		defer close(p.done)
		p.code = run(ctx, all, strings.NewReader(""), p.log, p.log)
	}()
	b.t.Cleanup(func() {
		defer func() {
			if b.t.Failed() {
				b.t.Logf("weir %s said:\n%s", args[0], p.log)
			}
		}()
		cancel()
		p.awaitEnd()
	})
	return p
}

// endTimeout is for a process that shares this machine with other tests: alone it ends in a second or two.
const endTimeout = 20 * time.Second

// end stops the process and wants a clean exit. One that had no time to end cleanly, since it stood still, says that its time was over.
func (p *process) end() {
	p.b.t.Helper()
	watch, begun := testbed.StartStopwatch(), time.Now()
	defer watch.Stop()
	p.stop()
	p.awaitEnd()
	if p.code != exitOK && !watch.Excuses(begun, p.log.String()) {
		p.b.t.Errorf("exit code %d", p.code)
	}
	p.b.t.Logf("ended after %s", time.Since(begun).Round(time.Millisecond))
}

// awaitEnd waits until a process that was told to stop has ended.
func (p *process) awaitEnd() {
	p.b.t.Helper()
	select {
	case <-p.done:
	case <-time.After(endTimeout):
		p.b.t.Fatal("not ended after ", endTimeout)
	}
}

// awaitLog waits for a line that matches and gives its first group.
func (p *process) awaitLog(pattern string) string {
	p.b.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	testbed.Eventually(p.b.t, 30*time.Second, func() error {
		m := re.FindStringSubmatch(p.log.String())
		if m == nil {
			return fmt.Errorf("no log line matches %s", pattern)
		}
		found = m[len(m)-1]
		return nil
	})
	return found
}

// fetchPage reads a page of a process.
func fetchPage(t *testing.T, address, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := exchange(t, r)
	return answer.status, string(answer.body)
}

// exchange sends a request and reads the whole answer.
func exchange(t *testing.T, r *http.Request) verdict {
	t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return verdict{answer.StatusCode, answer.Header, body}
}
