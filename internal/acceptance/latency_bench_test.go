package acceptance

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const latencyRule = `
id: guest-tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [device]
limit: 2
window: 10s
lateness: 5s
block: {ttl: 10m}
`

const (
	latencyRate    = 10_000    // events a second beside the measured ones
	latencyDevices = 1_000_000 // that send them in turn, so that none is over
	latencyEvery   = 5 * time.Millisecond
)

// BenchmarkEventToGate is the time from an event's acknowledgement by Kafka until a gate in another process refuses its
// sender: real servers, one `weir run`, 10,000 other events a second, snapshots on. An iteration is one abuser, so
// -benchtime 500x gives a p99 that means something.
func BenchmarkEventToGate(b *testing.B) {
	for _, kind := range []testbed.Kind{testbed.KafkaKind, testbed.RedisKind, testbed.PostgresKind} {
		if os.Getenv(kind.Env()) == "" {
			b.Skip("needs " + kind.Env() + ": a server in this process would be measured with it")
		}
	}
	l := newLatencyBed(b)
	l.probe() // the first one finds connections, topics and plans cold
	stop := l.background()
	for range 20 {
		l.probe()
	}
	var took []time.Duration
	before, start := l.sent.Load(), time.Now()
	b.ResetTimer()
	for range b.N {
		took = append(took, l.probe())
	}
	b.StopTimer()
	rate := float64(l.sent.Load()-before) / time.Since(start).Seconds()
	stop()
	l.check()
	l.stages.stop()
	used := l.stages.cmd.ProcessState.UserTime() + l.stages.cmd.ProcessState.SystemTime()
	b.ReportMetric(float64(used.Microseconds())/float64(l.sent.Load()), "cpu-us/event")
	slices.Sort(took)
	for _, q := range []int{50, 99} {
		b.ReportMetric(float64(took[(len(took)*q-1)/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", q))
	}
	b.ReportMetric(rate, "events/s")
	b.ReportMetric(0, "ns/op")
}

// latencyBed is an installation under load, and a gate's copy of its blocklist.
type latencyBed struct {
	b       *testing.B
	in      *install
	kafka   *kgo.Client
	replica *replica.Replica
	stages  *process
	probes  int
	sent    atomic.Int64
}

func newLatencyBed(b *testing.B) *latencyBed {
	redis := testbed.Redis(b)
	l := &latencyBed{b: b, in: newInstall(b, [3]int{8, 64, 8}, fmt.Sprintf("{url: %q}", redis), 0)}
	l.in.Weir("rules", "apply", "-f", l.in.Write("rules.yaml", latencyRule), "--reason", "bench")
	l.in.Weir("rules", "promote", "guest-tokens", "--reason", "bench", "--yes", "--override", "tests")
	l.stages = l.in.start("run")
	store, err := blocklist.Connect(blocklist.Server{URL: redis}, l.in.ns)
	if err != nil {
		b.Fatal(err)
	}
	l.replica, err = replica.New(replica.Options{
		Store: store, Clock: func() traffic.Time { return traffic.At(time.Now()) }, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.replica.Run(ctx) })
	l.kafka, err = kgo.NewClient(kgo.SeedBrokers(l.in.kafka...), kgo.DefaultProduceTopic(l.in.ns+".requests"), kgo.ProducerLinger(0))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.kafka.Close()
		cancel()
		running.Wait()
		_ = store.Close()
	})
	return l
}

func (l *latencyBed) event(device string) *kgo.Record {
	return &kgo.Record{Key: []byte(device), Value: fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"203.0.113.7","device":"%s","method":"POST",`+
		`"host":"api.example.com","path":"/v1/guest-tokens","status":201,"user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}`,
		time.Now().UTC().Format(time.RFC3339Nano), device)}
}

func (l *latencyBed) refused(device string) bool {
	_, held := l.replica.Find(traffic.Identity{Device: device}, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, traffic.At(time.Now()))
	return held
}

// probe lets a new device ask for one token too many, and waits until it is refused.
func (l *latencyBed) probe() time.Duration {
	l.b.Helper()
	l.probes++
	device := fmt.Sprint("abuser-", l.probes)
	for range 3 {
		if l.refused(device) {
			l.b.Fatalf("%s is refused before it is over", device)
		}
		if err := l.kafka.ProduceSync(l.b.Context(), l.event(device)).FirstErr(); err != nil {
			l.b.Fatal(err)
		}
	}
	acknowledged := time.Now()
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	for !l.refused(device) {
		if time.Since(acknowledged) > time.Minute {
			l.b.Fatalf("%s is not refused", device)
		}
		<-look.C
	}
	return time.Since(acknowledged)
}

// background sends events of other devices until stop.
func (l *latencyBed) background() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(latencyEvery)
		defer tick.Stop()
		began := time.Now()
		for n := int64(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int64(time.Since(began).Seconds() * latencyRate); n < due; n++ {
				l.kafka.Produce(ctx, l.event(fmt.Sprint("tv-", n%latencyDevices)), func(_ *kgo.Record, err error) {
					if err == nil {
						l.sent.Add(1)
					}
				})
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// check makes sure that the load was what it is said to be.
func (l *latencyBed) check() {
	l.b.Helper()
	snapshots := 0
	l.in.query(`SELECT count(*) FROM {ns}.checkpoints`, func(rows pgx.Rows) error { return rows.Scan(&snapshots) })
	if snapshots == 0 {
		l.b.Error("no snapshot was stored meanwhile")
	}
	for n := range 1000 {
		if device := fmt.Sprint("tv-", n); l.refused(device) {
			l.b.Errorf("%s is refused", device)
		}
	}
}
