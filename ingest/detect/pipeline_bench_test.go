package detect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkPipeline runs preloaded events from the requests topic to the hits topic through a real Kafka, with the real
// stages in this process; only the stores are in memory. route and detect run alone, so that the processor time can be
// told apart; both is the pipeline. Every run's hits are compared with the truth.
//
// WEIR_BENCH_EVENTS is how many events; default 500,000.
func BenchmarkPipeline(b *testing.B) {
	if os.Getenv(testbed.KafkaKind.Env()) == "" {
		b.Skip("needs WEIR_TEST_KAFKA: a broker in this process would be measured with it")
	}
	p := newPipe(b)
	b.Run("route", func(b *testing.B) {
		p.measure(b, func(r *pipeRun) { r.route() })
	})
	b.Run("detect", func(b *testing.B) {
		if p.routed == "" {
			p.run(b).route() // what detect reads; not in the time, because the loop starts its own
			b.ResetTimer()
		}
		p.measure(b, func(r *pipeRun) { r.detect(); r.judge() })
	})
	b.Run("both", func(b *testing.B) {
		p.measure(b, func(r *pipeRun) {
			var beside sync.WaitGroup
			beside.Go(r.route)
			r.detect()
			beside.Wait()
			r.judge()
		})
	})
}

// pipe is a preloaded requests topic.
type pipe struct {
	kafka    []string
	client   *kafka.Client
	load     *pipeLoad
	events   int
	requests string
	broker   int
	runs     int
	routed   string // a keyed topic that holds all that the requests give
}

func newPipe(b *testing.B) *pipe {
	p := &pipe{kafka: testbed.Kafka(b), events: 500_000}
	if text := os.Getenv("WEIR_BENCH_EVENTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100_000 || time.Duration(n)*pipeSpacing > 4*time.Minute {
			b.Fatalf("WEIR_BENCH_EVENTS: got %q; allowed: 100000 to %d", text, 4*time.Minute/pipeSpacing)
		}
		p.events = n
	}
	p.load = newPipeLoad(p.events)
	p.broker = listener(p.kafka[0])
	p.client = newPipeClient(b, p.kafka)
	p.requests = p.topic(b, testbed.Namespace(b)+".requests", pipeSources)
	p.load.preload(b, p.client.Appender(p.requests))
	b.Logf("%d events of %d bytes", p.events, p.load.bytes/p.events)
	return p
}

func newPipeClient(b *testing.B, brokers []string) *kafka.Client {
	k, err := kafka.New(kafka.Config{Brokers: brokers, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := k.Close(); err != nil {
			b.Error(err)
		}
	})
	return k
}

func (p *pipe) topic(b *testing.B, name string, partitions int) string {
	b.Helper()
	if _, err := p.client.EnsureTopics(b.Context(), []ingest.TopicSpec{{Name: name, Partitions: partitions, MaxMessageBytes: 32 << 20}}); err != nil {
		b.Fatal(err)
	}
	return name
}

// pipeRun is one passage of all events.
type pipeRun struct {
	*pipe
	b           *testing.B
	keyed, hits string
	world       *detectWorld
}

func (p *pipe) run(b *testing.B) *pipeRun {
	p.runs++
	name := fmt.Sprintf("%s.%d", p.requests, p.runs)
	r := &pipeRun{
		pipe: p, b: b, keyed: p.topic(b, name+".keyed", pipeKeyed), hits: p.topic(b, name+".hits", pipeHits),
		world: newDetectWorld(b, pipeKeyed),
	}
	r.world.routing[1] = pipeRouting()
	return r
}

// measure does one passage an iteration. Making topics and groups is not in the time.
func (p *pipe) measure(b *testing.B, pass func(*pipeRun)) {
	var own, broker time.Duration
	for range b.N {
		b.StopTimer()
		r := p.run(b)
		ownBefore, brokerBefore := ownCPU(), p.brokerCPU()
		b.StartTimer()
		pass(r)
		b.StopTimer()
		own += ownCPU() - ownBefore
		broker += p.brokerCPU() - brokerBefore
		b.StartTimer()
	}
	n := float64(b.N * p.events)
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(own.Nanoseconds())/n, "cpu-ns/event")
	b.ReportMetric(float64(broker.Nanoseconds())/n, "broker-ns/event")
	b.ReportMetric(0, "ns/op")
}

func (p *pipe) brokerCPU() time.Duration {
	used, _ := brokerCPU(p.broker)
	return used
}

// route routes all of the requests, and remembers where.
func (r *pipeRun) route() {
	r.b.Helper()
	group := r.keyed + ".route"
	commits := map[int]ingest.Commit{}
	for p := range pipeSources {
		commits[p] = ingest.InitialCommit(1, 0, 0, pipeKeyed)
	}
	if err := r.client.CommitInitial(r.b.Context(), group, r.requests, commits); err != nil {
		r.b.Error(err)
		return
	}
	stats := prometheus.NewRegistry()
	router, err := route.New(route.Options{
		Stream: "replay/bench", Topic: r.requests, Generation: 1, KeyedPartitions: pipeKeyed, Secret: make([]byte, 32), SecretID: "s",
		Log: r.client.Log(r.requests), Keyed: r.client.Appender(r.keyed), Group: r.client.Group(group, r.requests, kafka.GroupOptions{}),
		Routings: detectRoutings{r.world}, Partitions: stateStore{r.world}, DeadLetters: noLetters{r.b},
		Clock: func() traffic.Time { return traffic.At(time.Now()) }, Logger: slog.New(slog.DiscardHandler), Registerer: stats,
	})
	if err != nil {
		r.b.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(r.b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			r.b.Error(err)
		}
	})
	told := int64(0)
	testbed.Eventually(r.b, 2*time.Minute, func() error {
		st := router.Stats()
		switch {
		case st.Events != int64(r.events+pipeSources):
			return fmt.Errorf("%d of %d events are routed", st.Events, r.events)
		case told == 0:
			told = st.TickRounds + 1
		}
		if st.TickRounds < told {
			return errors.New("the detectors have not been told of the end")
		}
		return nil
	})
	cancel()
	running.Wait()
	r.routed = r.keyed
}

// detect runs DETECT until every window is closed.
func (r *pipeRun) detect() {
	r.b.Helper()
	keyed := r.keyed
	if r.routed != "" && r.b.Name() == "BenchmarkPipeline/detect" {
		keyed = r.routed
	}
	d := r.world.detector("bench", r.client.Group(keyed+".detect."+strconv.Itoa(r.runs), keyed, kafka.GroupOptions{}), func(o *detect.Options) {
		o.Stream, o.Sources, o.Keyed, o.HitsCount, o.Checkpoint = "replay/bench", pipeSources, pipeKeyed, pipeHits, 5*time.Second
		o.Log, o.Hits = r.client.Log(keyed), r.client.Appender(r.hits)
	})
	ctx, cancel := context.WithCancel(r.b.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			r.b.Error(err)
		}
	})
	select {
	case <-d.Ended():
	case <-time.After(2 * time.Minute):
		r.b.Error("the replay does not end")
	}
	cancel()
	running.Wait()
}

func (r *pipeRun) judge() {
	r.b.StopTimer()
	defer r.b.StartTimer()
	bounds, err := r.client.Log(r.hits).Bounds(r.b.Context(), pipeAll(pipeHits))
	if err != nil {
		r.b.Fatal(err)
	}
	var hits []detectors.Hit
	log := r.client.Log(r.hits)
	for p := range pipeHits {
		for at := (ingest.Position{Partition: p}); at.Offset < bounds[p].End; {
			answers, err := log.Fetch(r.b.Context(), []ingest.Position{at}, time.Second)
			if err != nil {
				r.b.Fatal(err)
			}
			for _, f := range answers {
				for _, m := range f.Messages {
					h, err := detectors.DecodeHit(m.Value)
					if err != nil {
						r.b.Fatal(err)
					}
					hits = append(hits, h)
				}
				at.Offset = f.Next
			}
		}
	}
	r.load.judge(r.b, hits)
}

func pipeAll(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// noLetters takes no dead letter: the load has nothing that cannot be used.
type noLetters struct{ b *testing.B }

var _ ingest.DeadLetters = noLetters{}

func (n noLetters) Put(_ context.Context, letters []traffic.DeadLetter) error {
	n.b.Errorf("%d dead letters, the first is %+v", len(letters), letters[0])
	return nil
}
