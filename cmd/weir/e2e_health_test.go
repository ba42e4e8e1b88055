package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/cmd/weir/internal/devserver"
	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// hanging makes a broker take every request, and answer none while it hangs.
func hanging(cluster *kfake.Cluster) *atomic.Bool {
	hung := &atomic.Bool{}
	cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, nil, hung.Load()
	})
	return hung
}

// seen is a console that somebody looks at.
type seen struct {
	t      *testing.T
	server string // http://…
	who    string // whose token is shown; empty: none is asked for
}

// get reads a page or an answer of the API.
func (s seen) get(path string) (string, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server+path, nil)
	if err != nil {
		return "", err
	}
	if s.who != "" {
		r.Header.Set("Authorization", "Bearer secret-of-"+s.who)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, answer.Status, body)
	}
	return string(body), err
}

// awaits waits until API, live picture and pages say alike whether Kafka answers.
func (s seen) awaits(away bool) {
	s.t.Helper()
	testbed.Eventually(s.t, time.Minute, func() error {
		var h api.Health
		if code := ask(s.t, s.server+"/api/v1/health", s.who, &h); code != http.StatusOK {
			return fmt.Errorf("health: %d", code)
		}
		said := slices.ContainsFunc(h.Problems, func(p api.HealthProblem) bool { return p.Part == "Kafka" })
		if said != away || !away && len(h.Problems) > 0 {
			return fmt.Errorf("away: %v, and the API has %+v", away, h.Problems)
		}
		for _, path := range []string{"/health", "/"} {
			page, err := s.get(path)
			if err != nil {
				return err
			}
			if says := strings.Contains(page, "<b>Kafka</b> does not answer"); says != away {
				return fmt.Errorf("away: %v, and %s says so: %v", away, path, says)
			}
			if well := strings.Contains(page, "Everything that reports is well"); path == "/health" && well == away {
				return fmt.Errorf("away: %v, and everything is well: %v", away, well)
			}
		}
		live, err := s.get("/api/v1/pulse")
		if err == nil && strings.Contains(live, `"Kafka"`) != away {
			err = fmt.Errorf("away: %v, and the live picture is %s", away, live)
		}
		return err
	})
}

// A broker that takes requests and answers none is told of by the console alone, the one beside the stages and the one
// of weir dev, in the same words, and so is its return.
func TestAHungKafkaIsSaidWhereverTheConsoleIsServed(t *testing.T) {
	t.Parallel()
	broker := testbed.EmbeddedKafka(t)
	hung := hanging(broker)
	t.Cleanup(func() { hung.Store(false) }) // before the processes are stopped
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.flags = append(b.flags, "--kafka-brokers", strings.Join(broker.ListenAddrs(), ","))
	b.ok("migrate")
	_, beside := b.console("run", "--console")
	_, alone := b.console("console")
	consoles := []seen{{t, beside, "anna"}, {t, alone, "anna"}}
	for _, c := range consoles {
		c.awaits(false)
	}
	hung.Store(true)
	for _, c := range consoles {
		c.awaits(true)
	}
	hung.Store(false)
	for _, c := range consoles {
		c.awaits(false)
	}
}

// health waits until what the API says of an installation is as wanted.
func (s seen) health(is func(h api.Health) bool) {
	s.t.Helper()
	testbed.Eventually(s.t, time.Minute, func() error {
		var h api.Health
		if code := ask(s.t, s.server+"/api/v1/health", s.who, &h); code != http.StatusOK || !is(h) {
			return fmt.Errorf("%d %+v", code, h)
		}
		return nil
	})
}

// doctorSays waits until weir doctor has a line of a check, with a status and words.
func (b *bed) doctorSays(check string, status doctor.Status, words string) {
	b.t.Helper()
	testbed.Eventually(b.t, time.Minute, func() error {
		var found []doctor.Finding
		o := b.weir("doctor", "--output", "json")
		if err := json.Unmarshal([]byte(o.stdout), &found); err != nil {
			return fmt.Errorf("%w: %s%s", err, o.stdout, o.stderr)
		}
		for _, f := range found {
			if strings.HasPrefix(f.Check, check) && f.Status == status && strings.Contains(f.Found, words) {
				return nil
			}
		}
		return fmt.Errorf("no line %s %s %q among %+v", status, check, words, found)
	})
}

// What a gate is and has done is known where people look: one that is right, one of another identity map, and one of a
// namespace that is misspelt. One that has ended is known no more.
func TestGatesAreKnown(t *testing.T) {
	t.Parallel()
	server := testbed.EmbeddedRedis(t)
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	b.ok("migrate")
	b.doctorSays("redis namespace", doctor.OK, "is missing until weir run with enforce starts")
	b.doctorSays("gates", doctor.OK, "none has told of itself")
	_, beside := b.console("run", "--console")
	c := seen{t, beside, "anna"}
	right := b.start("gate", "--listen", "127.0.0.1:0")
	address := right.awaitLog(`forward-auth checks" address=(\S+)`)
	c.health(func(h api.Health) bool { return len(h.Gates) == 1 && h.Gates[0].Ready })
	for range 3 {
		check(t, address, "198.51.100.7")
	}
	c.health(func(h api.Health) bool {
		return len(h.Gates) == 1 && h.Gates[0].Ready && h.Gates[0].Passed == 3 && len(h.Gates[0].Doubts) == 0 &&
			len(h.Problems) == 0
	})
	b.doctorSays("redis namespace", doctor.OK, "the stage enforce has been there")
	b.doctorSays("gates", doctor.OK, "1 gate, 0 blocks at most")

	odd := b.start("gate", "--listen", "127.0.0.1:0", "--set", "identity.device.header=X-Other")
	c.health(func(h api.Health) bool {
		return len(h.Gates) == 2 && len(h.Problems) == 1 && strings.HasPrefix(h.Problems[0].Part, "Gate ") &&
			strings.Contains(h.Problems[0].Detail, "another identity map")
	})
	b.doctorSays("gate ", doctor.Fail, "reads requests by another identity map")
	page, err := c.get("/health")
	if err != nil || !strings.Contains(page, "needs a look") || !strings.Contains(page, "holds") {
		t.Errorf("the page has no gates (%v)\n%s", err, page)
	}
	misspelt := &bed{t: t, flags: append(slices.Clone(b.flags), "--namespace", "wier")}
	elsewhere := misspelt.start("gate", "--listen", "127.0.0.1:0")
	b.doctorSays("gates of wier", doctor.Warn, "1 gate in this database, and 1 of them not ready")
	odd.end()
	c.health(func(h api.Health) bool { return len(h.Gates) == 1 && len(h.Problems) == 0 })
	elsewhere.end()
	server.SetError("LOADING it reads its file")
	c.health(func(h api.Health) bool { return len(h.Gates) == 0 && slices.Contains(h.Unknown, "gates") })
	server.SetError("")
	c.health(func(h api.Health) bool { return len(h.Gates) == 1 && !slices.Contains(h.Unknown, "gates") })
	right.end()
}

func TestAHungKafkaIsSaidByTheConsoleOfDev(t *testing.T) {
	t.Parallel()
	var hung *atomic.Bool
	said := &lines{}
	a := &app{
		Output: terminal.Output{Stdout: said, Stderr: said}, stdin: strings.NewReader(""), environ: devEnviron(),
		devHooks: devserver.Hooks{Kafka: func(k *local.Kafka) *local.Kafka {
			hung = hanging(k.Cluster())
			return k
		}},
	}
	p := &process{b: &bed{t: t}, log: said, done: make(chan struct{})}
	p.run(a, "dev", "--no-demo", "--data-dir", testbed.Folder(t), "--console-listen", "127.0.0.1:0", "--config",
		emptyFile(t),
		"--namespace", testbed.Namespace(t), "--postgres-url", testbed.Postgres(t))
	c := seen{t, p.awaitLog(`console +(http://\S+)`), ""}
	t.Cleanup(func() { hung.Store(false) }) // before it is stopped
	c.awaits(false)
	hung.Store(true)
	c.awaits(true)
	hung.Store(false)
	c.awaits(false)
}

// run starts a program that ends with the test.
func (p *process) run(a *app, args ...string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.b.t.Context()))
	p.stop = cancel
	go func() {
		defer close(p.done)
		p.code = a.run(ctx, args)
	}()
	p.b.t.Cleanup(func() {
		cancel()
		p.awaitEnd()
		if p.b.t.Failed() {
			p.b.t.Logf("weir %s said:\n%s", args[0], p.log)
		}
	})
}
