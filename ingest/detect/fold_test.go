package detect_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// rottenLog is a keyed log that does not decode from one offset up to another in a partition, and in which a partition may
// have no leader.
type rottenLog struct {
	keyedLog
	mu                    *sync.Mutex
	partition, leaderless int // -1: none
	from, next            int64
}

func newRottenLog(w *detectWorld) *rottenLog {
	return &rottenLog{keyedLog: keyedLog{w}, mu: &sync.Mutex{}, partition: -1, leaderless: -1}
}

func (l *rottenLog) lead(partition int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaderless = partition
}

func (l *rottenLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	out, err := l.keyedLog.Fetch(ctx, positions, wait)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range out {
		f := &out[i]
		asked := f.Next - int64(len(f.Messages))
		switch {
		case f.Partition != l.partition || asked >= l.next:
		case asked >= l.from:
			f.Messages, f.Next = nil, asked
			f.Err = &ingest.UnreadableError{Next: l.next, Why: errors.New("corrupt record batch: CRC-32C is 1")}
		case f.Next > l.from:
			f.Messages, f.Next = f.Messages[:l.from-asked], l.from
		}
	}
	return slices.DeleteFunc(out, func(f ingest.Fetched) bool { return f.Partition == l.leaderless }), err
}

func (l *rottenLog) Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	l.mu.Lock()
	away := slices.Contains(partitions, l.leaderless)
	l.mu.Unlock()
	if away {
		<-ctx.Done() // the client asks again and again
		return nil, ctx.Err()
	}
	return l.keyedLog.Bounds(ctx, partitions)
}

// watched is a detector at work whose metrics and errors are kept.
type watched struct {
	*running
	registry *prometheus.Registry
	mu       sync.Mutex
	said     bytes.Buffer
}

func (r *watched) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(p)
}

func (r *watched) errors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.said.String(), "\n"), "\n")
}

func (w *detectWorld) watch(owner string, edit func(*detect.Options), partitions ...int) *watched {
	r := &watched{registry: prometheus.NewRegistry()}
	r.running = w.begin(owner, partitions, edit, func(o *detect.Options) {
		o.Registerer = r.registry
		o.Logger = slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	return r
}

// gauge asks that the metric of partition 0 has a value.
func (r *watched) gauge(t *testing.T, name, value string) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		labels := `{partition="0"} `
		if strings.HasPrefix(name, "weir_stage") {
			labels = `{partition="0",stage="detect"} `
		}
		want := "# HELP " + name + " " + f.GetHelp() + "\n# TYPE " + name + " gauge\n" + name + labels + value + "\n"
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
		return
	}
	t.Errorf("no metric %s", name)
}

func (w *detectWorld) state(p int) ingest.PartitionStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states[p]
}

func (w *detectWorld) accept(a ingest.Acceptance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.Side, a.By, a.Reason = ingest.SideKeyed, "ops", "test"
	w.accepted = append(w.accepted, a)
}

// losses counts the loss records, given twice or not.
func (w *detectWorld) losses(t *testing.T) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(distinctHits(t, slices.DeleteFunc(slices.Clone(w.hits), func(h detectors.Hit) bool { return h.Kind != detectors.KindLoss })))
}

// TestDetectStopsAtABatchThatDoesNotDecode: the partition stands there, says so everywhere, its lag grows; an acceptance of
// exactly that gap goes on behind it, with one loss record, also when its owner dies right after.
func TestDetectStopsAtABatchThatDoesNotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		length := len(w.keyed[0])
		tail := w.keyed[0][length-100:]
		w.keyed[0] = w.keyed[0][:length-100]
		log := newRottenLog(w)
		log.partition, log.from, log.next = 0, 20, 25
		edit := func(o *detect.Options) { o.Log = log }
		r := w.watch("a", edit, 0)
		pass(10 * time.Second)
		w.mu.Lock()
		w.keyed[0] = append(w.keyed[0], tail...)
		w.mu.Unlock()
		pass(10 * time.Second)
		if s := w.state(0); s.State != ingest.Halted || s.Offset != 20 || s.End != int64(length) || s.GapSource != ingest.GapInKeyed || s.GapOffset != 25 ||
			!strings.Contains(s.Reason, "CRC-32C") || !strings.Contains(s.Reason, "offsets 20 to 24 would be lost") {
			t.Errorf("reported %+v", s)
		}
		r.gauge(t, "weir_stage_partition_halted", "1")
		r.gauge(t, "weir_stage_lag_records", strconv.Itoa(length-20))
		if said := r.errors(); len(said) != 1 || !strings.Contains(said[0], "cannot be read on") {
			t.Errorf("said %q, want one line", said)
		}
		w.accept(ingest.Acceptance{GapSource: ingest.GapInKeyed, GapOffset: 26})
		w.accept(ingest.Acceptance{GapSource: 0, GapOffset: 25})
		w.accept(ingest.Acceptance{Partition: 1, GapSource: ingest.GapInKeyed, GapOffset: 25})
		pass(10 * time.Second)
		if s := w.state(0); s.State != ingest.Halted || w.losses(t) != 0 {
			t.Errorf("went on by the acceptance of another gap: %+v", s)
		}
		w.accept(ingest.Acceptance{GapSource: ingest.GapInKeyed, GapOffset: 25})
		pass(2500 * time.Millisecond)
		w.takeStore(true) // what it stores from now on is lost with it
		pass(500 * time.Millisecond)
		r.stop(t)
		w.mu.Lock()
		w.storeDown, w.generations[0] = false, nil
		w.mu.Unlock()
		b := w.watch("b", edit, 0)
		b.ended(t)
		pass(3 * time.Second)
		b.gauge(t, "weir_stage_partition_halted", "0")
		b.gauge(t, "weir_stage_lag_records", "0")
		b.stop(t)
		if n := w.losses(t); n != 1 {
			t.Errorf("%d different loss records, want one", n)
		}
	})
}

// TestDetectGoesOnWhenALeaderIsBack: a partition that nobody answers for, when it is taken or later, stops no other, says
// that it stands, and goes on by itself.
func TestDetectGoesOnWhenALeaderIsBack(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newDetectWorld(t, 2)
			w.fill(100)
			log := newRottenLog(w)
			if before {
				log.lead(1)
			}
			r := w.watch("a", func(o *detect.Options) { o.Log = log }, 0, 1)
			pass(150 * time.Millisecond)
			log.lead(1)
			pass(20 * time.Second)
			if s := w.state(0); s.Offset != int64(len(w.keyed[0])) || s.State != ingest.Running {
				t.Errorf("partition 0 waits for partition 1: %+v", s)
			}
			if s := w.state(1); s.State != ingest.Running {
				t.Errorf("an election takes seconds: %+v", s)
			}
			pass(20 * time.Second)
			if s := w.state(1); s.State != ingest.Halted || s.GapOffset != ingest.NoOffset || !strings.Contains(s.Reason, "no leader") {
				t.Errorf("reported %+v", s)
			}
			log.lead(-1)
			r.ended(t)
			pass(3 * time.Second)
			if s := w.state(1); s.State != ingest.Running || len(r.errors()) != 1 {
				t.Errorf("reported %+v, said %q", s, r.errors())
			}
			r.stop(t)
			w.check()
		})
	}
}

// publish makes a routing version with the rules of version 1.
func (w *detectWorld) publish(version int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := *w.routing[1]
	r.Number = version
	w.routing[version] = &r
}

// steps puts events of one source into a keyed partition.
type steps struct {
	w    *detectWorld
	q    int
	at   traffic.Time
	next int64
}

func (s *steps) put(n int, version int64) {
	for range n {
		s.at += 700_000
		s.w.put(s.q, detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: s.next, Prev: s.next - 1, Time: detectOrigin + s.at, Progress: detectOrigin + s.at,
			Version: version, Rules: []int{0}, Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, 1})},
		})
		s.next++
	}
}

// TestDetectWaitsForAVersionInItsPartitionOnly: a record of a routing version that cannot be loaded stops the partition that
// it lies in, which says so, and goes on when the store is back.
func TestDetectWaitsForAVersionInItsPartitionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 2)
		waiting, other := steps{w: w, q: 0}, steps{w: w, q: 1}
		waiting.put(20, 1)
		other.put(20, 1)
		r := w.watch("a", func(*detect.Options) {}, 0, 1)
		pass(5 * time.Second)
		w.takeStore(true)
		waiting.put(3, 1)
		waiting.put(3, 2)
		other.put(40, 1)
		pass(30 * time.Second)
		if s := w.state(1); s.Offset != 60 || s.State != ingest.Running {
			t.Errorf("partition 1 waits for partition 0: %+v", s)
		}
		if s := w.state(0); s.Offset != 23 || s.State != ingest.Halted || !strings.Contains(s.Reason, "routing version 2") || s.GapOffset != ingest.NoOffset {
			t.Errorf("partition 0 reported %+v", s)
		}
		w.publish(2)
		w.takeStore(false)
		pass(10 * time.Second)
		if s := w.state(0); s.Offset != 26 || s.State != ingest.Running {
			t.Errorf("partition 0 does not go on: %+v", s)
		}
		r.stop(t)
	})
}

// TestDetectKnowsPublishedVersions: a version that was published while the store was there is known when it is not.
func TestDetectKnowsPublishedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		s := steps{w: w}
		s.put(20, 1)
		r := w.watch("a", func(*detect.Options) {}, 0)
		pass(5 * time.Second)
		for version := int64(2); version <= 5; version++ {
			w.publish(version)
		}
		pass(2 * time.Second)
		w.takeStore(true)
		for version := int64(2); version <= 5; version++ {
			s.put(4, version)
		}
		pass(5 * time.Second)
		if st := w.state(0); st.Offset != 36 || st.State != ingest.Running {
			t.Errorf("reported %+v, want all folded", st)
		}
		r.stop(t)
	})
}

// TestDetectLearnsVersionsOfAnyAge: partitions that need more versions than are kept, each another old one, all get on. They
// stop in the middle of answers for that, with the fetch of what comes after under way: its records must not be folded when
// they go on before it is answered.
func TestDetectLearnsVersionsOfAnyAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 3
		w := newDetectWorld(t, partitions)
		for version := int64(2); version <= 60; version++ {
			w.publish(version)
		}
		for q := range partitions {
			s := steps{w: w, q: q}
			for i := range int64(60) {
				s.put(1, 1+(i*7+int64(q)*20)%60)
			}
		}
		r := w.watch("a", func(*detect.Options) {}, 0, 1, 2)
		pass(3 * time.Minute)
		for q := range partitions {
			if st := w.state(q); st.Offset != 60 || st.State != ingest.Running {
				t.Errorf("reported %+v, want all folded", st)
			}
		}
		r.stop(t)
	})
}
