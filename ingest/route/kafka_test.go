package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// routeBed is a stream's topics on Kafka, and the world that its checker knows.
type routeBed struct {
	*kafkakit.Kit
	world                 *world
	requests, keyed, dead string
	group                 string
}

func newRouteBed(t *testing.T) *routeBed {
	b := &routeBed{Kit: kafkakit.New(t), world: newWorld()}
	for v := range b.world.released {
		b.world.released[v] = b.world.begin.Add(time.Duration(v) * 150 * time.Millisecond)
	}
	b.requests, b.keyed, b.dead = b.Topic(simSources), b.Topic(simKeyed), b.Topic(1)
	b.group = b.requests + ".route"
	commits := map[int]ingest.Commit{}
	for p := range simSources {
		commits[p] = ingest.InitialCommit(7, 0, 0, simKeyed)
	}
	if err := b.K.CommitInitial(b.Ctx, b.group, b.requests, commits); err != nil {
		t.Fatal(err)
	}
	return b
}

// start runs a router of its own, as a process of its own would, until stop.
func (b *routeBed) start() (stop func()) {
	b.T.Helper()
	client := b.Client()
	letters, err := consume.NewDeadLetters(consume.DeadLetterOptions{Appender: client.Appender(b.dead), Partitions: 1})
	if err != nil {
		b.T.Fatal(err)
	}
	opt := newSimHost(b.world).options()
	opt.Topic, opt.Log, opt.Keyed, opt.DeadLetters = b.requests, client.Log(b.requests), client.Appender(b.keyed), letters
	membership := kafkakit.GroupOptions()
	membership.LookEvery = 200 * time.Millisecond
	opt.Group = client.Group(b.group, b.requests, membership)
	opt.Clock, opt.Logger = simNow, kafkakit.Logger(b.T)
	router, err := New(opt)
	if err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			b.T.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// send appends a wave of events.
func (b *routeBed) send(r *rand.Rand, n int) {
	b.T.Helper()
	byPartition := map[int][]string{}
	for range n {
		p := r.IntN(simSources)
		e := simEvent{
			offset: int64(len(b.world.requests[p])), time: simNow().Add(-time.Duration(r.Int64N(int64(time.Second)))), bad: r.Float64() < .02,
			ip: fmt.Sprint("192.0.2.", r.IntN(50)), device: fmt.Sprint("tv-", r.IntN(50)), user: fmt.Sprint("u", r.IntN(50)),
		}
		b.world.requests[p] = append(b.world.requests[p], e)
		byPartition[p] = append(byPartition[p], string(e.value()))
	}
	b.Put(b.requests, byPartition)
}

// collect reads back what is on the topics.
func (b *routeBed) collect() {
	b.T.Helper()
	for p, log := range b.logs(b.requests, simSources) {
		for i, m := range log {
			b.world.requests[p][i].appended = m.Appended
		}
	}
	for q, log := range b.logs(b.keyed, simKeyed) {
		for _, m := range log {
			b.world.keyed[q] = append(b.world.keyed[q], simRecord{at: m.Appended, value: m.Value})
		}
	}
	for _, m := range b.logs(b.dead, 1)[0] {
		var l traffic.DeadLetter
		if err := json.Unmarshal(m.Value, &l); err != nil || l.Topic != b.requests {
			b.T.Fatalf("dead letter %s: %v", m.Value, err)
		}
		b.world.letters[[2]int64{int64(l.Partition), l.Offset}] = l.Reason
	}
}

// logs reads a topic to its present end.
func (b *routeBed) logs(topic string, partitions int) map[int][]traffic.Message {
	b.T.Helper()
	out := map[int][]traffic.Message{}
	log := b.K.Log(topic)
	for p := range partitions {
		bounds, err := log.Bounds(b.Ctx, []int{p})
		if err != nil {
			b.T.Fatal(err)
		}
		for at := int64(0); at < bounds[p].End; {
			answers, err := log.Fetch(b.Ctx, kafkakit.Positions(at, p), time.Second)
			if err != nil {
				b.T.Fatal(err)
			}
			for _, f := range answers {
				at = f.Next
				out[p] = append(out[p], f.Messages...)
			}
		}
	}
	return out
}

// TestRouteOverKafka: routers come and go while events flow and versions change; the keyed log is an independent routing
// of the requests log all the same.
func TestRouteOverKafka(t *testing.T) {
	b := newRouteBed(t)
	r := rand.New(rand.NewPCG(1, 2))
	stops := []func(){b.start()}
	const waves = 40
	pace := time.NewTicker(40 * time.Millisecond)
	defer pace.Stop()
	for i := range waves {
		b.send(r, 60)
		<-pace.C
		switch i {
		case 8, 24:
			stops = append(stops, b.start())
		case 16, 32:
			stops[0]()
			stops = stops[1:]
		}
	}
	testbed.Eventually(t, 2*time.Minute, func() error {
		commits, err := b.K.FetchCommits(b.Ctx, b.group, b.requests, []int{0, 1, 2})
		if err != nil {
			return err
		}
		for p := range b.world.requests {
			if at, end := commits[p].Offset, int64(len(b.world.requests[p])); at != end {
				return fmt.Errorf("partition %d is routed up to %d of %d", p, at, end)
			}
		}
		return nil
	})
	for _, stop := range stops {
		stop()
	}
	b.collect()
	if wrong := b.world.check(); len(wrong) > 0 {
		t.Errorf("%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
	}
	if len(b.world.letters) == 0 {
		t.Error("no bad event was sent")
	}
}

// TestRouteReadsPartitionsAddedMeanwhile: an operator adds partitions to requests, and gateways write into them at once.
func TestRouteReadsPartitionsAddedMeanwhile(t *testing.T) {
	b := newRouteBed(t)
	stop := b.start()
	b.send(rand.New(rand.NewPCG(1, 2)), 60)
	const added = simSources
	b.Grow(b.requests, added+2)
	e := simEvent{time: simNow(), ip: "192.0.2.1", device: "tv", user: "u"}
	testbed.Eventually(t, 10*time.Second, func() error { // other brokers may not know it yet
		return b.K.Appender(b.requests).Append(b.Ctx, kafkakit.Batches(map[int][]string{added: {string(e.value()), string(e.value())}}))
	})
	bounds, err := b.K.Log(b.requests).Bounds(b.Ctx, []int{added}) // an append whose answer was lost was made twice
	if err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, 2*time.Minute, func() error {
		commits, err := b.K.FetchCommits(b.Ctx, b.group, b.requests, []int{added, added + 1})
		if err != nil {
			return err
		}
		if at, end := commits[added].Offset, bounds[added].End; at != end || end < 2 {
			return fmt.Errorf("the first partition that was added is committed at %d, want %d", at, end)
		}
		if _, routed := commits[added+1]; !routed {
			return errors.New("the second one is not routed")
		}
		return nil
	})
	stop()
}
