package detect

import (
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// At most about 10 MB a second are written, whatever the size and the number of partitions; what the log keeps bounds the
// interval.
func TestSnapshotInterval(t *testing.T) {
	for _, test := range []struct {
		name       string
		size       int64
		partitions int
		retention  ingest.Retention
		want       time.Duration
	}{
		{"small", 1 << 10, 64, ingest.Retention{}, 5 * time.Second},
		{"half a minute", 5 << 20, 64, ingest.Retention{}, 32 * time.Second},
		{"64 partitions of 137 MiB", 137 << 20, 64, ingest.Retention{}, 876800 * time.Millisecond},
		{"64 partitions of 138 MiB", 138 << 20, 64, ingest.Retention{}, 883200 * time.Millisecond},
		{"64 partitions of 200 MiB", 200 << 20, 64, ingest.Retention{}, 1280 * time.Second},
		{"bounded by retention", 200 << 20, 64, ingest.Retention{Time: time.Hour}, 20 * time.Minute},
		{"retention is long", 200 << 20, 64, ingest.Retention{Time: 24 * time.Hour}, 1280 * time.Second},
		{"retention is shorter than the least", 1 << 10, 1, ingest.Retention{Time: 6 * time.Second}, 2 * time.Second},
		{"a terabyte each", 1 << 40, 1000, ingest.Retention{}, 104857600 * time.Second},
		{"all there is", 1<<63 - 1, 1024, ingest.Retention{Time: time.Hour}, 20 * time.Minute},
		{"all there is, for ever", 1<<63 - 1, 1024, ingest.Retention{}, 1 << 62},
	} {
		d := &Detector{opt: Options{Checkpoint: 5 * time.Second, Retention: test.retention}, memory: map[int]*owned{}}
		for p := range test.partitions {
			d.memory[p] = &owned{}
		}
		if got := d.interval(test.size); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRetentionIsReadAsKafkaWritesIt(t *testing.T) {
	for _, test := range []struct {
		millis, bytes string
		want          ingest.Retention
	}{
		{"3600000", "1048576", ingest.Retention{Time: time.Hour, Bytes: 1 << 20}},
		{"-1", "-1", ingest.Retention{}},
		{"", "", ingest.Retention{}},
		{"9223372036854775807", "-1", ingest.Retention{Time: 9223372036854 * time.Millisecond}},
	} {
		if got := ingest.ParseRetention(map[string]string{"retention.ms": test.millis, "retention.bytes": test.bytes}); got != test.want {
			t.Errorf("%q, %q: %+v, want %+v", test.millis, test.bytes, got, test.want)
		}
	}
}

// A budget whose snapshots are not written before the log is gone does not fit; what is said to be enough is, and hardly more.
func TestSnapshotRoom(t *testing.T) {
	for _, test := range []struct {
		room SnapshotRoom
		fits bool
	}{
		{SnapshotRoom{256 << 20, 64, ingest.Retention{Time: 24 * time.Hour}}, true},
		{SnapshotRoom{256 << 20, 64, ingest.Retention{Time: time.Hour}}, false},
		{SnapshotRoom{256 << 20, 64, ingest.Retention{}}, true},
		{SnapshotRoom{16 << 30, 64, ingest.Retention{Time: 80 * time.Hour}}, false},
		{SnapshotRoom{1<<63 - 1, 1024, ingest.Retention{Time: time.Hour}}, false},
		{SnapshotRoom{1 << 20, 1024, ingest.Retention{Time: time.Hour}}, true},
	} {
		if test.room.Fits() != test.fits {
			t.Errorf("%+v fits: %v", test.room, !test.fits)
		}
		if test.fits {
			continue
		}
		less, more := test.room, test.room
		less.Budget = test.room.MostBudget()
		if !less.Fits() || less.Budget == 0 {
			t.Errorf("%+v has the budget that would be allowed, and does not fit", less)
		}
		if less.Budget += 1 << 20; less.Fits() {
			t.Errorf("%+v fits with more than the budget that would be allowed", less)
		}
		if more.Retention.Time = test.room.LeastRetention(); test.room.Budget < 1<<60 && !more.Fits() {
			t.Errorf("%+v has the retention that would be needed, and does not fit", more)
		}
		if more.Retention.Time -= 10 * time.Second; more.Fits() {
			t.Errorf("%+v fits with less than the retention that would be needed", more)
		}
	}
}

// A partition whose log keeps only so many bytes gets its snapshots before the log begins after them.
func TestSnapshotBeforeTheLogRunsAway(t *testing.T) {
	const bytes = 3000
	d := &Detector{opt: Options{Checkpoint: time.Second, Retention: ingest.Retention{Bytes: bytes}, Clock: func() traffic.Time { return 0 }}}
	w := &snapshotWriter{d: d}
	now := time.Unix(1e9, 0)
	lags, err := ingest.NewLags(nil, d.opt.Clock)
	if err != nil {
		t.Fatal(err)
	}
	o := &owned{d: d, lag: lags.Of(ingest.StageDetect, 0), state: partitionWithWindows(t, 10), soonest: now, nextSave: now.Add(time.Hour), folded: 5000, savedAt: 5000}
	d.memory = map[int]*owned{0: o}
	folded, offset := 0, int64(10)
	for ; folded <= bytes/3; offset++ {
		if w.longestDue(now) != nil {
			t.Fatalf("due after %d bytes, the log keeps %d", folded, bytes)
		}
		k := detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: offset, Prev: detectors.NoOffset, Time: 1e15}
		m := traffic.Message{Offset: offset - 10, Value: detectors.AppendKeyed(nil, &k)}
		if err := o.fold(t.Context(), &keyedFetch{ingest.Fetched{Messages: []traffic.Message{m}, Next: offset - 9, HighWatermark: 1000}, o.offset}); err != nil || o.halt != nil {
			t.Fatal(err, o.halt)
		}
		folded += len(m.Value)
	}
	if w.longestDue(now) != o {
		t.Errorf("not due after %d bytes, the log keeps %d", folded, bytes)
	}
	if w.longestDue(now.Add(-time.Second)) != nil {
		t.Error("due before the least time between two has passed")
	}
	w = &snapshotWriter{d: d, pieces: make(chan snapshotPiece, 1)}
	w.now = &snapshotJob{owned: o, encoder: o.state.BeginSnapshot(), whole: true, folded: o.folded}
	w.give()
	if o.runsAway() {
		t.Error("due again although all that was folded is in the snapshot that was given")
	}
}
