package detectors_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// world is what rapid draws: a rule, and events of few keys over few source partitions.
type world struct {
	limits  []int // by routing version
	window  time.Duration
	late    time.Duration
	sources int
	events  []drawn
}

type drawn struct {
	source  int
	at      traffic.Time
	ip      string
	version int64
}

func drawWorld(t *rapid.T, inOrder bool) world {
	w := world{
		limits:  rapid.SliceOfN(rapid.IntRange(0, 4), 1, 2).Draw(t, "limits"),
		window:  time.Duration(rapid.IntRange(2, 20).Draw(t, "window")) * time.Second,
		sources: rapid.IntRange(1, 3).Draw(t, "sources"),
	}
	if inOrder {
		w.sources = 1           // equal times of two source partitions would arrive in either order
		w.limits = w.limits[:1] // a limit raised above what a saturated key has kept under-counts for a window
	}
	w.late = time.Duration(rapid.IntRange(0, 40).Draw(t, "lateness")) * time.Second
	now := origin
	for i := range rapid.IntRange(0, 120).Draw(t, "events") {
		now += traffic.Time(rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3, 9, 30}).Draw(t, fmt.Sprint("gap ", i))) * second
		at := now
		if !inOrder {
			at -= traffic.Time(rapid.SampledFrom([]int{0, 0, 0, 1, 3, 8, 25, 60}).Draw(t, fmt.Sprint("delay ", i))) * second
		}
		w.events = append(w.events, drawn{
			source: rapid.IntRange(0, w.sources-1).Draw(t, "source"), at: at,
			ip:      rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}).Draw(t, "ip"),
			version: int64(rapid.IntRange(1, len(w.limits)).Draw(t, "version")),
		})
	}
	return w
}

func (w world) versions() []rules.Version {
	var out []rules.Version
	for _, limit := range w.limits {
		out = append(out, rule(limit, w.window, w.late))
	}
	return out
}

// play folds the world's events with ticks between them and returns, per key, the events that were on time.
func (w world) play(t *rapid.T, b *bench) map[string][]oracle.Event {
	onTime := map[string][]oracle.Event{}
	for i, e := range w.events {
		k := b.event(e.source, e.at, e.ip, e.version)
		late := b.p.Counts().Late
		b.must(k)
		if b.p.Counts().Late == late {
			onTime[e.ip] = append(onTime[e.ip], oracle.Event{
				Time: int64(e.at), Source: e.source, Offset: k.Offset, Limit: w.limits[e.version-1],
			})
		}
		if i%7 == 6 {
			s := rapid.IntRange(0, w.sources-1).Draw(t, "tick")
			b.must(b.tick(s, b.top[s]))
		}
	}
	b.end()
	return onTime
}

type span struct {
	first, last traffic.Time
	count       int64
}

// closings are the final states of all episodes per subject, in order of time.
func closings(hits []detectors.Hit) map[traffic.Subject][]span {
	out := map[traffic.Subject][]span{}
	for i := range hits {
		if h := &hits[i]; h.Phase == detectors.PhaseClosed {
			out[h.Subject] = append(out[h.Subject], span{h.First, h.Last, h.Count})
		}
	}
	for _, spans := range out {
		slices.SortFunc(spans, func(a, b span) int { return int(a.first - b.first) })
	}
	return out
}

func subjectOf(ip string) traffic.Subject {
	if ip == "2001:db8::1" {
		return "ip=2001%3Adb8%3A%3A%2F64"
	}
	return traffic.Subject("ip=" + ip + "%2F32")
}

// In order, episodes are exact: number, bounds and counts are those of the oracle.
func TestInOrderIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt, true)
		b := newBench(t, w.sources, w.versions()...)
		onTime := w.play(rt, b)
		got := closings(b.hits)
		for ip, events := range onTime {
			var want []span
			for _, e := range oracle.Sliding(events, w.window.Microseconds(), detectors.MaxEpisode.Microseconds()) {
				want = append(want, span{traffic.Time(e.First), traffic.Time(e.Last), e.Count})
			}
			if !slices.Equal(got[subjectOf(ip)], want) {
				rt.Fatalf("%s\n got %v\nwant %v", ip, got[subjectOf(ip)], want)
			}
		}
	})
}

// Out of order, which sources are over is that of the sorted log, and nothing is lost or counted twice in the protocol:
// every episode that opened is closed or merged exactly once, by the same id.
func TestAnyOrderFlagsTheSameSources(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt, false)
		b := newBench(t, w.sources, w.versions()...)
		onTime := w.play(rt, b)
		got := closings(b.hits)
		for ip, events := range onTime {
			want := oracle.Sliding(events, w.window.Microseconds(), detectors.MaxEpisode.Microseconds())
			if (len(got[subjectOf(ip)]) > 0) != (len(want) > 0) {
				rt.Fatalf("%s: got %v, the oracle %v", ip, got[subjectOf(ip)], want)
			}
		}
		open := map[string]int{}
		last := map[string]detectors.Hit{}
		for _, h := range b.hits {
			if h.Kind != detectors.KindHit {
				continue
			}
			if before, ok := last[h.ID]; ok && (h.Count < before.Count || h.First > before.First || h.Last < before.Last) {
				rt.Fatalf("hit %s shrank:\n%+v\n%+v", h.ID, before, h)
			}
			last[h.ID] = h
			switch h.Phase {
			case detectors.PhaseOpen:
				open[h.ID]++
			case detectors.PhaseClosed, detectors.PhaseMerged:
				open[h.ID] += 10
			}
		}
		for id, n := range open {
			if n != 11 {
				rt.Fatalf("hit %s: opened %d times, ended %d times", id, n%10, n/10)
			}
		}
	})
}

// A crash at any record, restored from a snapshot at any earlier one, gives the same bytes; so does a log with
// duplicates in it.
func TestCrashAndReplayGiveTheSameHits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt, false)
		b := newBench(t, w.sources, w.versions()...)
		w.play(rt, b)
		want := encode(t, b.hits)
		at := rapid.IntRange(0, len(b.log)).Draw(rt, "snapshot at")
		p := detectors.NewPartition(b.cfg)
		learn(p, w)
		var got []detectors.Hit
		for i, l := range b.log {
			if i == at {
				raw := p.Snapshot(nil)
				restored, err := detectors.Restore(b.cfg, raw)
				if err != nil {
					rt.Fatalf("restore: %v", err)
				}
				if again := restored.Snapshot(nil); !slices.Equal(again, raw) {
					rt.Fatal("a restored state encodes differently")
				}
				p = restored
				learn(p, w)
			}
			var err error
			if got, err = p.Fold(l.appended, &l.keyed, got); err != nil {
				rt.Fatal(err)
			}
		}
		if !slices.Equal(encode(t, got), want) {
			rt.Fatalf("got %q\nwant %q", phases(got), phases(b.hits))
		}
	})
}

func learn(p *detectors.Partition, w world) {
	for i, v := range w.versions() {
		p.Learn(detectors.NewPlan(&rules.Routing{Number: int64(i + 1), Rules: []rules.Version{v}}))
	}
}

func encode(t testing.TB, hits []detectors.Hit) []string {
	t.Helper()
	var out []string
	for i := range hits {
		raw, err := detectors.EncodeHit(&hits[i])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(raw))
	}
	return out
}
