package acceptance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/testbed"
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
	*gateProbe
	in     *install
	stages *process
	sent   atomic.Int64
}

func newLatencyBed(b *testing.B) *latencyBed {
	l := &latencyBed{in: newInstall(b, [3]int{8, 64, 8}, fmt.Sprintf("{url: %q}", testbed.Redis(b)), 0)}
	l.in.Weir("rules", "apply", "-f", l.in.Write("rules.yaml", latencyRule), "--reason", "bench")
	l.in.Weir("rules", "promote", "guest-tokens", "--reason", "bench", "--yes", "--override", "tests")
	l.stages = l.in.start("run")
	l.gateProbe = newGateProbe(b, l.in)
	return l
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
	l.t.Helper()
	snapshots := 0
	l.in.query(`SELECT count(*) FROM {ns}.checkpoints`, func(rows pgx.Rows) error { return rows.Scan(&snapshots) })
	if snapshots == 0 {
		l.t.Error("no snapshot was stored meanwhile")
	}
	for n := range 1000 {
		if device := fmt.Sprint("tv-", n); l.refused(device) {
			l.t.Errorf("%s is refused", device)
		}
	}
}
