package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
)

// ownRedis is a redis-server with an append-only file, which can be stopped and put back to an older one.
type ownRedis struct {
	t       testing.TB
	port    int
	dir     string
	running *testbed.Running
	client  *redis.Client
}

func startOwnRedis(t testing.TB) *ownRedis {
	t.Helper()
	testbed.Record(t, testbed.RedisKind, testbed.Real)
	r := &ownRedis{t: t, port: testbed.FreePort(t), dir: t.TempDir()}
	r.client = redis.NewClient(&redis.Options{Addr: r.address()})
	t.Cleanup(func() { _ = r.client.Close() })
	r.start()
	return r
}

func (r *ownRedis) address() string { return fmt.Sprint("127.0.0.1:", r.port) }

func (r *ownRedis) url() string { return "redis://" + r.address() + "/0" }

func (r *ownRedis) start() {
	r.t.Helper()
	r.running = testbed.Run(r.t, exec.Command(testbed.Program(r.t, "redis-server"), "--bind", "127.0.0.1",
		"--port", fmt.Sprint(r.port), "--dir", r.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always"))
	testbed.Eventually(r.t, time.Minute, func() error { return r.client.Ping(context.Background()).Err() })
}

// copyOf is a copy of its files as they are now.
func (r *ownRedis) copyOf() string {
	r.t.Helper()
	folder := filepath.Join(r.t.TempDir(), "older")
	copyFolder(r.t, r.dir, folder)
	return folder
}

// putBack stops the server and starts it again on older files.
func (r *ownRedis) putBack(older string) {
	r.t.Helper()
	r.running.End()
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Fatal(err)
	}
	copyFolder(r.t, older, r.dir)
	r.start()
}

func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a %s %s: %v%s", from, to, err, aside(out))
	}
}

// open starts all processes.
func (b *stores) open() {
	b.Helper()
	for _, stage := range stages() {
		b.stages = append(b.stages, b.in.start(stage))
	}
	b.routers, b.detectors = b.stages[:1], b.stages[1:2]
	b.console = b.door("console", "--set", "console.local_admin=true")
	for range 2 {
		b.gates = append(b.gates, b.door("gate"))
	}
	b.awaitShares(b.routers)
	b.awaitShares(b.detectors)
}

// stop ends the stages and the console in good order; gates go on with what they have.
func (b *stores) stop() {
	b.Helper()
	for _, p := range b.stages {
		p.running.End()
	}
	b.console.running.End()
}

// startAgain starts what stop has ended.
func (b *stores) startAgain() {
	b.Helper()
	for _, p := range b.stages {
		p.again()
	}
	b.console.again()
}

// newGate ends the second gate, and starts one that knows nothing but what it reads.
func (b *stores) newGate() {
	b.Helper()
	b.gates[1].running.End()
	b.gates[1].again()
	testbed.Eventually(b, workTimeout, func() error {
		_, err := b.gates[1].refuses(steady, innocents()[0])
		return err
	})
}

// shell runs commands of a document as somebody would who has set WEIR_POSTGRES_URL; the schema is that of the test.
func (b *stores) shell(folder, commands string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), workTimeout)
	defer cancel()
	program := filepath.Join(folder, "weir")
	if err := os.Symlink(testbed.Weir(), program); err != nil && !os.IsExist(err) {
		b.Fatal(err)
	}
	bash := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c",
		strings.ReplaceAll(commands, "--schema=weir", "--schema="+b.stream.Namespace))
	bash.Dir = folder
	bash.Env = append(b.in.Command(ctx).Env, "WEIR_POSTGRES_URL="+b.stream.Postgres,
		"PATH="+folder+":"+os.Getenv("PATH"))
	out, err := bash.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s\n%s", err, commands, out)
	}
	b.Logf("%s%s", commands, out)
}

// constant asks the first gate, all the time, about who must be held all the time, and about who never may be.
type constant struct {
	b     *stores
	stop  context.CancelFunc
	done  chan struct{}
	once  sync.Once
	wrong []string
	asked int
}

func (b *stores) watchConstant() *constant {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &constant{b: b, stop: cancel, done: make(chan struct{})}
	held, gate := slices.Clone(b.who.came[steady]), b.gates[0]
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			for n, ip := range slices.Concat(held, innocents()) {
				for _, rule := range []string{steady, fallen, edited} {
					want := rule == steady && n < len(held)
					refused, err := gate.refuses(rule, ip)
					if n < len(held) && rule != steady {
						continue
					}
					c.asked++
					if err != nil || refused != want {
						c.wrong = append(c.wrong, fmt.Sprintf("%s: rule %s, %s: refused is %t, want %t (%v)",
							time.Now().UTC().Format(time.TimeOnly), rule, ip, refused, want, err))
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

// end judges what the gate has answered.
func (c *constant) end() {
	c.b.Helper()
	c.once.Do(func() {
		c.stop()
		<-c.done
		c.b.r.wrong += len(c.wrong)
		if c.asked == 0 {
			c.b.Error("the gate was never asked")
		}
		for i, wrong := range c.wrong {
			if i < 10 {
				c.b.Errorf("the gate, meanwhile: %s", wrong)
			}
		}
	})
}
