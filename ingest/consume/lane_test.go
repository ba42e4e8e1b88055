package consume

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func TestStatsAreOfTheLanesThatWork(t *testing.T) {
	var c Consumer
	if got := c.Stats(); got != (Stats{}) {
		t.Errorf("before a generation: %+v", got)
	}
	c.present.Store(&consumption{lanes: map[int]*lane{
		0: {applied: 5, end: 12}, 1: {applied: 7, end: 7}, 2: {applied: 9, end: 3}, // the log has lost its tail
	}})
	if got := c.Stats(); got != (Stats{Owned: 3, Lag: 7}) {
		t.Errorf("got %+v, want 3 partitions and 7 records", got)
	}
}

// A lane's lag counts what its sink has not taken, from the oldest of it on.
func TestALaneShowsTheOldestThatIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := newMetrics(registry, "record")
		if err != nil {
			t.Fatal(err)
		}
		c := &Consumer{opts: Options{Name: "record", BatchRecords: 2, Logger: slog.New(slog.DiscardHandler)},
			metrics: m}
		s := &consumption{c: c, room: make(chan struct{}, 1)}
		l := &lane{s: s, partition: 4, wake: make(chan struct{}, 1), stored: -1, stranded: -1, lag: m.lags.Of("record", 4)}
		expect := func(records, seconds, halted float64) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					got[f.GetName()] = m.GetGauge().GetValue()
				}
			}
			if got["weir_stage_lag_records"] != records || got["weir_stage_lag_seconds"] != seconds || got["weir_stage_partition_halted"] != halted {
				t.Errorf("got %v, want %v records, %v seconds, halted %v", got, records, seconds, halted)
			}
		}
		now := func() traffic.Time { return traffic.At(time.Now()) }
		l.since = now()
		l.start(10, 10)
		expect(0, 0, 0)
		begin := now()
		message := func(offset int64, age time.Duration) traffic.Message {
			return traffic.Message{Partition: 4, Offset: offset, Appended: begin.Add(-age)}
		}
		l.offer(t.Context(), ingest.Fetched{
			Messages: []traffic.Message{message(10, 9*time.Second), message(11, 8*time.Second), message(12, 3*time.Second)}, Next: 13, HighWatermark: 15, Asked: begin,
		})
		expect(5, 9, 0)
		l.cut(2)
		time.Sleep(time.Second) // the sink has two of them
		expect(5, 10, 0)
		l.await(true)
		expect(5, 10, 1)
		l.await(false)
		l.advance(12)
		expect(3, 4, 0)
		l.cut(2)
		l.advance(13) // two are not read: they were appended after the last that was
		expect(2, 4, 0)
		l.offer(t.Context(), ingest.Fetched{Next: 15, HighWatermark: 15, Asked: now()})
		l.cut(2)
		l.advance(15)
		expect(0, 0, 0)
		s.strand(l, 99, ingest.Bounds{End: 15})
		expect(0, 0, 1)
		m.forget("record", 4)
		for _, name := range []string{"weir_stage_stranded_partition", "weir_stage_newer_format_partition"} {
			if n, err := testutil.GatherAndCount(registry, name); err != nil || n > 0 {
				t.Errorf("%s is left of a partition that was given away: %v", name, err)
			}
		}
		expect(0, 0, 1) // until another generation begins
	})
}
