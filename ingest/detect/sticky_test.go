package detect_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

// stickyFleet is DETECT processes in one consumer group of a real protocol, over stores in memory.
type stickyFleet struct {
	t     *testing.T
	world *detectWorld
	topic string
	kafka []string
	ctx   context.Context
	stats map[string]*prometheus.Registry
}

const stickyPartitions = 12

func newStickyFleet(t *testing.T) *stickyFleet {
	testbed.CheckLeaks(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	f := &stickyFleet{t: t, world: newDetectWorld(t, stickyPartitions), kafka: testbed.Kafka(t), ctx: ctx,
		stats: map[string]*prometheus.Registry{}}
	f.world.fill(20)
	f.topic = testbed.Namespace(t) + ".keyed"
	_, err := f.client().EnsureTopics(ctx, []ingest.TopicSpec{{Name: f.topic, Partitions: stickyPartitions, MaxMessageBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *stickyFleet) client() *kafka.Client {
	f.t.Helper()
	k, err := kafka.New(kafka.Config{
		Brokers: f.kafka, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := k.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return k
}

// start runs a detector of its own until stop.
func (f *stickyFleet) start(owner string) (stop func()) {
	f.t.Helper()
	f.stats[owner] = prometheus.NewRegistry()
	group := f.client().Group(f.topic+".detect", f.topic, kafkakit.GroupOptions())
	d := f.world.detector(owner, group, func(o *detect.Options) { o.Registerer = f.stats[owner] })
	ctx, cancel := context.WithCancel(f.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(func() { cancel(); running.Wait() })
	return func() { cancel(); running.Wait() }
}

// await waits until each of owners has the same share, and returns how often a partition changed its owner before.
func (f *stickyFleet) await(owners ...string) int {
	f.t.Helper()
	taken := 0
	testbed.Eventually(f.t, 2*time.Minute, func() error {
		f.world.mu.Lock()
		defer f.world.mu.Unlock()
		has := map[string]int{}
		for _, owner := range f.world.owners {
			has[owner]++
		}
		for _, owner := range owners {
			if has[owner] != stickyPartitions/len(owners) {
				return fmt.Errorf("owners have %v", has)
			}
		}
		taken = f.world.taken
		return nil
	})
	return taken
}

// warm is how many partitions owners found with their own memory still right.
func (f *stickyFleet) warm(owners ...string) (n int) {
	f.t.Helper()
	for _, owner := range owners {
		families, err := f.stats[owner].Gather()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if family.GetName() == "weir_detect_restores_total" && l.GetName() == "outcome" && l.GetValue() == "warm" {
						n += int(m.GetCounter().GetValue())
					}
				}
			}
		}
	}
	return n
}

// When a member joins or leaves, only what balance asks for changes its owner; the rest is found warm.
func TestPartitionsStayWithTheirOwners(t *testing.T) {
	f := newStickyFleet(t)
	f.start("a")
	f.await("a")
	f.start("b")
	if two := f.await("a", "b"); two != stickyPartitions+6 {
		t.Errorf("%d changes of owner until two have six each, want %d", two, stickyPartitions+6)
	}
	f.warmReaches(6, "a")
	warm := f.warm("a", "b")
	stop := f.start("c")
	if three := f.await("a", "b", "c"); three != stickyPartitions+6+4 {
		t.Errorf("%d changes of owner until three have four each, want four more than before", three)
	}
	f.warmReaches(warm+8, "a", "b")
	warm = f.warm("a", "b")
	stop()
	if again := f.await("a", "b"); again != stickyPartitions+6+4+4 {
		t.Errorf("%d changes of owner after one has left, want the four that it had", again)
	}
	f.warmReaches(warm+8, "a", "b")
}

func (f *stickyFleet) warmReaches(want int, owners ...string) {
	f.t.Helper()
	testbed.Eventually(f.t, 2*time.Minute, func() error {
		if got := f.warm(owners...); got < want {
			return fmt.Errorf("%v found %d partitions warm, want %d", owners, got, want)
		}
		return nil
	})
}
