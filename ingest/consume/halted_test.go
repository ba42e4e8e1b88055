package consume

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// brokenOff is a group that gives a member partitions 4 and 5 for a minute, and again after nine without Kafka.
type brokenOff struct{}

func (brokenOff) Run(ctx context.Context, session func(context.Context, ingest.Assignment) error) error {
	for ctx.Err() == nil {
		generation, end := context.WithTimeout(ctx, time.Minute)
		err := session(generation, ingest.Assignment{Partitions: []int{4, 5}, Commits: brokenOff{}})
		end()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(9 * time.Minute):
		}
	}
	return nil
}

// The commit of partition 5 lies beyond the end of its log.
func (brokenOff) Fetch(context.Context, []int) (map[int]ingest.Commit, error) {
	return map[int]ingest.Commit{4: {Offset: 0}, 5: {Offset: 90}}, nil
}
func (brokenOff) Commit(context.Context, map[int]ingest.Commit) error { return nil }

// newerLog has a record in each of its partitions, which a newer build wrote.
type newerLog struct{}

func (newerLog) Fetch(ctx context.Context, at []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	var answers []ingest.Fetched
	for _, p := range at {
		if p.Offset == 0 {
			answers = append(answers, ingest.Fetched{Partition: p.Partition, Messages: []traffic.Message{{Partition: p.Partition}}, Next: 1, HighWatermark: 1})
		}
	}
	if len(answers) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return answers, nil
}

func (newerLog) Bounds(_ context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	bounds := map[int]ingest.Bounds{}
	for _, p := range partitions {
		bounds[p] = ingest.Bounds{End: 1}
	}
	return bounds, nil
}

type oldSink struct{}

func (oldSink) Apply(context.Context, []traffic.Message) error {
	return &detectors.UnknownFormatError{What: "hit", Got: "2", Known: "1"}
}

// A partition that waits for an upgrade, or is stranded, has stopped for as long as a stage finds that: while Kafka is away, WeirPartitionHalted
// could not tell it from one with a gap.
func TestNothingHasStoppedBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c, err := New(Options{Name: "enforce", Log: newerLog{}, Group: brokenOff{}, Sink: oldSink{}, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for minute := range 25 {
			time.Sleep(strandedCheck / 2) // then what lies beyond the log's end is given up
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			sums, series := map[string]float64{}, map[string]int{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					sums[f.GetName()] += m.GetGauge().GetValue()
					series[f.GetName()]++
				}
			}
			want := [3]float64{}
			if minute%10 == 0 {
				want = [3]float64{2, 1, 1}
			}
			got := [3]float64{sums["weir_stage_partition_halted"], sums["weir_stage_newer_format_partition"], sums["weir_stage_stranded_partition"]}
			if got != want || series["weir_stage_partition_halted"] != 2 || series["weir_stage_lag_seconds"] != 2 {
				t.Errorf("minute %d: stopped, of a newer format, stranded: %v, want %v, in %v", minute, got, want, series)
			}
			time.Sleep(time.Minute - strandedCheck/2)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
