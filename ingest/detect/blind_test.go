package detect

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// blindBench folds events into a partition, and looks at it as often as a reporter does.
type blindBench struct {
	t    *testing.T
	d    *Detector
	o    *owned
	said bytes.Buffer
	now  time.Time
}

func newBlindBench(t *testing.T) *blindBench {
	b := &blindBench{t: t, now: time.Unix(1_700_000_000, 0)}
	metrics, err := newMetrics(&Options{Registerer: prometheus.NewRegistry(), Stream: "live", Clock: func() traffic.Time { return traffic.At(b.now) }})
	if err != nil {
		t.Fatal(err)
	}
	b.d = &Detector{log: slog.New(slog.NewTextHandler(&b.said, nil)), metrics: metrics}
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "a", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 2, Window: time.Minute,
	}}}}))
	b.o = &owned{d: b.d, state: p, lag: metrics.lags.Of(ingest.StageDetect, 0)}
	return b
}

func (b *blindBench) fold(offset, prev int64) {
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Offset: offset, Prev: prev, Time: traffic.At(b.now), Progress: traffic.At(b.now),
		Version: 1, Rules: []int{0}, Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, 1})},
	}
	if _, err := b.o.state.Fold(traffic.At(b.now), &k, nil); err != nil {
		b.t.Fatal(err)
	}
}

// pass lets d go by, with what event does every gap.
func (b *blindBench) pass(d, gap time.Duration, event func()) {
	next := b.now.Add(gap)
	for end := b.now.Add(d); b.now.Before(end); b.now = b.now.Add(reportEvery) {
		for ; !next.After(b.now); next = next.Add(gap) {
			event()
		}
		b.o.observe(b.now)
	}
}

func (b *blindBench) alarms() int {
	return strings.Count(b.said.String(), "the fence drops every record")
}

// TestBlindPartitionAlarms: a partition whose every event record the fence drops is an alarm, however seldom one comes, and
// one alarm; only an accepted event ends it.
func TestBlindPartitionAlarms(t *testing.T) {
	for _, gap := range []time.Duration{time.Second / 10, time.Second, 2 * time.Second, 3 * time.Second, 30 * time.Second, 10 * time.Minute} {
		b := newBlindBench(t)
		b.fold(1000, detectors.NoOffset)
		b.o.observe(b.now)
		repeat := func() { b.fold(7, 6) }
		b.pass(time.Hour, gap, repeat)
		if b.alarms() != 1 || !b.o.blind {
			t.Errorf("an event each %v, all of an hour dropped: %d alarms, want one", gap, b.alarms())
		}
		b.pass(time.Minute, time.Hour, repeat)
		if !b.o.blind {
			t.Errorf("an event each %v: silence has ended the alarm", gap)
		}
		b.fold(1001, 1000)
		b.o.observe(b.now)
		if b.o.blind {
			t.Errorf("an event each %v: an accepted event has not ended the alarm", gap)
		}
	}
}

// TestRepeatedChunkIsNoAlarm: a router that starts anew repeats its last chunk, and may have nothing to send afterwards.
func TestRepeatedChunkIsNoAlarm(t *testing.T) {
	b := newBlindBench(t)
	b.fold(1000, detectors.NoOffset)
	b.o.observe(b.now)
	for offset := range int64(500) {
		b.fold(offset, offset-1)
	}
	b.pass(time.Hour, 2*time.Hour, func() {})
	if b.alarms() > 0 {
		t.Error("one repeated chunk and an hour of silence is an alarm")
	}
	next := int64(1001)
	b.pass(time.Hour, time.Second, func() { // half of what comes is dropped
		b.fold(7, 6)
		b.fold(next, next-1)
		next++
	})
	if b.alarms() > 0 {
		t.Error("a partition that accepts events is blind")
	}
}
