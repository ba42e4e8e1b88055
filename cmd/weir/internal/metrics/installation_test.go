package metrics

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/serving"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// process is a command that serves metrics, and what it has registered.
type process struct {
	name string
	part string // of the command: a stage or a flag; "" for all of it
	*recorder
}

// processes starts each command's parts once, as the command does, on servers of the testbed.
func processes(t *testing.T) []process {
	t.Helper()
	c := config.Default()
	c.Namespace = testbed.Namespace(t)
	c.Kafka.Brokers, c.Redis.URL = testbed.Kafka(t), config.Secret(testbed.Redis(t))
	c.Postgres.URL = config.Secret(testbed.Postgres(t))
	c.Kafka.Partitions = config.Partitions{Requests: 2, Keyed: 2, Hits: 2}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Migrate(t.Context(), c, quiet(), "test", stream.MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	var all []process
	for _, stage := range service.AllStages() {
		p := process{"run", stage, newRecorder()}
		in := p.open(t, c, true)
		p.runStage(t, in)
		p.watchClocks(t, in)
		all = append(all, p)
	}
	g := process{"gate", "", newRecorder()}
	guard := g.makeGate(t, c)
	ingest := process{"ingest", "", newRecorder()}
	live := ingest.open(t, c, false)
	if _, err := live.EnterLive(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ingest.watchClocks(t, live)
	replay := process{"ingest", "--replay", newRecorder()}
	replay.makeReplay(t, c)
	dev := process{"dev", "", newRecorder()}
	dev.makeDemo(t, dev.open(t, c, true), guard)
	return append(all, g, ingest, replay, dev)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// bound makes what service.NewHealth does for http.listen, in the registry that remembers.
func (p process) bound(t *testing.T) {
	t.Helper()
	connections, err := serving.NewMetrics(p.recorder)
	if err != nil {
		t.Fatal(err)
	}
	serving.Bound(nil, serving.DefaultBounds(), connections, "metrics")
}

func (p process) open(t *testing.T, c *config.Config, withRedis bool) *service.Installation {
	t.Helper()
	p.bound(t)
	in, err := service.Open(t.Context(), c, quiet(), p.recorder, withRedis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	return in
}

// runStage runs a stage of weir run until it has begun, by when it has registered everything, and ends it again.
func (p process) runStage(t *testing.T, in *service.Installation) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	conf := *in.Config
	conf.HTTP.Listen = "127.0.0.1:0"
	health, err := service.NewHealth(&conf, service.NewRegistry("", "weir"), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = health.Listener.Close() }()
	if err := in.AnswerCounters(health); err != nil {
		t.Fatal(err)
	}
	var started atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- in.RunStages(ctx, []string{p.part}, &started) }()
	testbed.Eventually(t, 30*time.Second, func() error {
		if !started.Load() {
			return errors.New(p.part + " has not started")
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// watchClocks makes the part of each long-running command that compares clocks.
func (p process) watchClocks(t *testing.T, in *service.Installation) {
	t.Helper()
	if _, err := service.WatchClocks(in, "test", p.name); err != nil {
		t.Fatal(err)
	}
}

// makeReplay makes what a replay has: the stages but for ENFORCE. They register the same on any stream.
func (p process) makeReplay(t *testing.T, c *config.Config) {
	t.Helper()
	in := p.open(t, c, false)
	if err := in.Enter(t.Context(), "live", c.TopicSettings()); err != nil {
		t.Fatal(err)
	}
	_, routes := in.Router()
	_, detects := in.Detector()
	_, records := in.RecordHits()
	if err := errors.Join(routes, detects, records); err != nil {
		t.Fatal(err)
	}
}

func (p process) makeGate(t *testing.T, c *config.Config) *gate.Gate {
	t.Helper()
	p.bound(t)
	redis, err := service.OpenRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	g, blocks, err := service.NewGate(c, redis, quiet(), p.recorder)
	if err != nil {
		t.Fatal(err)
	}
	clock, err := service.WatchRedisClock(redis, quiet(), p.recorder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Heartbeat(c, redis, g, blocks, clock, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := service.WatchObserveFile(g, filepath.Join(t.TempDir(), "observe")); err != nil {
		t.Fatal(err)
	}
	return g
}

// makeDemo makes what weir dev has beside stages and gate: the console and the demo's gateway.
func (p process) makeDemo(t *testing.T, in *service.Installation, guard *gate.Gate) {
	t.Helper()
	page, err := server.New(t.Context(), server.Options{
		Config: in.Config, Log: quiet(), Registerer: p.recorder, Redis: in.Redis, Kafka: in.Kafka,
		Environment: func(func(rules.Problem)) (rules.Environment, error) {
			return rules.Environment{Identity: in.Config.Identity}, nil
		},
		Pulse: in.Pulse, Local: &access.Actor{Name: "ann", Role: access.Admin},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(page.Close)
	gateway, err := demo.NewGateway(demo.GatewayOptions{
		Guard: guard, Emit: func(context.Context, []demo.Event) error { return nil }, Logger: quiet(), Registerer: p.recorder,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gateway.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
