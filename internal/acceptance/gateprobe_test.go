package acceptance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// gateProbe takes the time from an event's acknowledgement by Kafka until a gate in another process than weir's refuses
// its sender, by latencyRule.
type gateProbe struct {
	t       testing.TB
	kafka   *kgo.Client
	replica *replica.Replica
	probes  int
}

func newGateProbe(t testing.TB, in *install) *gateProbe {
	t.Helper()
	p := &gateProbe{t: t}
	store, err := blocklist.Connect(blocklist.Server{URL: testbed.Redis(t)}, in.ns)
	if err != nil {
		t.Fatal(err)
	}
	p.replica, err = replica.New(replica.Options{
		Store: store, Clock: func() traffic.Time { return traffic.At(time.Now()) },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.replica.Run(ctx) })
	p.kafka, err = kgo.NewClient(kgo.SeedBrokers(in.kafka...), kgo.DefaultProduceTopic(in.ns+".requests"),
		kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kafka.Close()
		cancel()
		running.Wait()
		_ = store.Close()
	})
	return p
}

func (p *gateProbe) event(device string) *kgo.Record {
	return &kgo.Record{Key: []byte(device), Value: fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"203.0.113.7",`+
		`"device":"%s","method":"POST","host":"api.example.com","path":"/v1/guest-tokens","status":201,`+
		`"user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"}`,
		time.Now().UTC().Format(time.RFC3339Nano), device)}
}

func (p *gateProbe) refused(device string) bool {
	_, held := p.replica.Find(traffic.Identity{Device: device},
		rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, traffic.At(time.Now()))
	return held
}

// probe lets a new device ask for one token too many, and waits until it is refused.
func (p *gateProbe) probe() time.Duration {
	p.t.Helper()
	p.probes++
	device := fmt.Sprint("abuser-", p.probes)
	for range 3 {
		if p.refused(device) {
			p.t.Fatalf("%s is refused before it is over", device)
		}
		if err := p.kafka.ProduceSync(p.t.Context(), p.event(device)).FirstErr(); err != nil {
			p.t.Fatal(err)
		}
	}
	acknowledged := time.Now()
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	for !p.refused(device) {
		if time.Since(acknowledged) > time.Minute {
			p.t.Fatalf("%s is not refused", device)
		}
		<-look.C
	}
	return time.Since(acknowledged)
}

// probed is how long abusers were let in, one after the other.
func probed(gate *gateProbe) (took []time.Duration) {
	for range loadProbes {
		took = append(took, gate.probe())
	}
	return took
}

// times are the shortest, the longest, the middle and the 99th of a hundred.
func times(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	all := slices.Sorted(slices.Values(took))
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%s to %s, median %s, p99 %s", round(all[0]), round(all[len(all)-1]), round(all[len(all)/2]),
		round(all[(len(all)*99-1)/100]))
}
