package consume

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// lostGroup gives a member partition 4 once; before its commits can be read Kafka goes away, and there is no other generation.
type lostGroup struct{}

var errAway = errors.New("no route to host")

func (lostGroup) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	if err := session(ctx, ingest.Assignment{Partitions: []int{4}, Commits: lostGroup{}}); !errors.Is(err, errAway) {
		return err
	}
	<-ctx.Done()
	return nil
}

func (lostGroup) Fetch(context.Context, []int) (map[int]ingest.Commit, error) { return nil, errAway }
func (lostGroup) Commit(context.Context, map[int]ingest.Commit) error         { return errAway }

type lostLog struct{}

func (lostLog) Fetch(context.Context, []ingest.Position, time.Duration) ([]ingest.Fetched, error) {
	return nil, errAway
}
func (lostLog) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) { return nil, errAway }

type noSink struct{}

func (noSink) Apply(context.Context, []traffic.Message) error { return nil }

// A consumer that Kafka gave a partition, and nothing else, is behind on it until it ends.
func TestAConsumerWithoutKafkaFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c, err := New(Options{Name: "record", Log: lostLog{}, Group: lostGroup{}, Sink: noSink{}, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]float64{}
		for _, f := range families {
			shown[f.GetName()] += f.GetMetric()[0].GetGauge().GetValue()
		}
		if got := shown["weir_stage_lag_seconds"]; got != 300 {
			t.Errorf("a lag of %v s after five minutes without Kafka", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(registry, "weir_stage_lag_seconds"); err != nil || n > 0 {
			t.Errorf("%d partitions are left at the end: %v", n, err)
		}
	})
}
