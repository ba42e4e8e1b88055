package route

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

const oneSecond = traffic.Time(time.Second / time.Microsecond)

// orderAt is an order whose clock the test moves.
func orderAt(now *traffic.Time) *order {
	return newOrder(func() traffic.Time { return *now })
}

func appendedAt(partition int, times ...traffic.Time) []traffic.Message {
	out := make([]traffic.Message, len(times))
	for i, at := range times {
		out[i] = traffic.Message{Partition: partition, Offset: int64(i), Appended: at, Value: []byte("event")}
	}
	return out
}

// TestNothingOlderIsPassed: whatever is queued and whatever is not read yet, a chunk takes the events that were appended
// first, and stops before one that something unread may precede.
func TestNothingOlderIsPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := traffic.Time(1 << 40)
		o := orderAt(&now)
		n := rapid.IntRange(1, 6).Draw(t, "sources")
		sources := make([]*queuedSource, n)
		before := make([][]traffic.Message, n)
		for i := range sources {
			at := traffic.Time(rapid.Int64Range(0, 5).Draw(t, "start"))
			var times []traffic.Time
			for range rapid.IntRange(0, 12).Draw(t, "queued") {
				at += traffic.Time(rapid.Int64Range(0, 3).Draw(t, "gap"))
				times = append(times, at)
			}
			before[i] = appendedAt(i, times...)
			sources[i] = &queuedSource{messages: before[i], dry: rapid.Bool().Draw(t, "dry"), since: at + traffic.Time(rapid.Int64Range(0, 4).Draw(t, "beyond"))}
		}
		most := rapid.IntRange(1, 40).Draw(t, "room")
		room := chunkRoom{most, 1 << 20}
		held := o.choose(sources, &room)
		taken, newest := 0, traffic.BeforeTime
		for i, q := range sources {
			n := len(before[i]) - len(q.messages)
			taken += n
			if n > 0 {
				newest = max(newest, before[i][n-1].Appended)
			}
		}
		if taken != most-room.events || taken > most {
			t.Fatalf("%d events taken of %d, and room for %d is left", taken, most, room.events)
		}
		for i, q := range sources {
			if at, ok := q.next(); ok && at < newest {
				t.Fatalf("source %d: what was appended at %d was passed by an event of %d", i, at, newest)
			}
			if len(q.messages) > 0 && !held && !room.full() {
				t.Fatalf("source %d: %d events are left though there is room", i, len(q.messages))
			}
		}
	})
}

// TestEventsWaitABoundedTime: a partition that does not answer costs the others a second, and then a tenth of the time.
func TestEventsWaitABoundedTime(t *testing.T) {
	now := traffic.Time(1 << 40)
	begin := now
	o := orderAt(&now)
	waited := time.Duration(0)
	const step = 10 * time.Millisecond
	for now.Sub(begin) < time.Minute {
		silent := &queuedSource{since: begin}
		// Within orderSpan of the silent one, or it would not be waited for at all.
		news := &queuedSource{messages: appendedAt(0, begin+1), dry: true}
		held := o.choose([]*queuedSource{silent, news}, &chunkRoom{100, 1 << 20})
		waits := held && len(news.messages) > 0
		if at := min(o.wait(waits), step); waits {
			waited += at
			now = now.Add(at)
		} else {
			now = now.Add(step)
		}
	}
	if low, high := orderTimeout+4*time.Second, orderTimeout+time.Minute/orderRegain; waited < low || waited > high {
		t.Errorf("events waited %v of a minute, want %v to %v", waited, low, high)
	}
}

// TestStragglersHaveHalf: a partition that was left behind neither holds the others up, nor do they keep it waiting.
func TestStragglersHaveHalf(t *testing.T) {
	now := traffic.Time(1 << 40)
	times := func(n int, at traffic.Time) []traffic.Time {
		out := make([]traffic.Time, n)
		for i := range out {
			out[i] = at + traffic.Time(i)
		}
		return out
	}
	for _, tt := range []struct {
		name               string
		behind, live       int
		wantBehind, wantOK int
	}{
		{"both have more than enough", 100, 100, 10, 10},
		{"the straggler takes what is free", 100, 3, 17, 3},
		{"the others take what is free", 4, 100, 4, 16},
		{"it alone", 100, 0, 20, 0},
	} {
		o := orderAt(&now)
		o.startsAt(now - 2*oneSecond)
		straggler := &queuedSource{messages: appendedAt(0, times(tt.behind, now-600*oneSecond)...)}
		straggler.since = now - 599*oneSecond
		live := &queuedSource{messages: appendedAt(1, times(tt.live, now-oneSecond)...), dry: true}
		o.choose([]*queuedSource{straggler, live}, &chunkRoom{20, 1 << 20})
		if gotBehind, gotLive := tt.behind-len(straggler.messages), tt.live-len(live.messages); gotBehind != tt.wantBehind || gotLive != tt.wantOK {
			t.Errorf("%s: %d of the straggler and %d live, want %d and %d", tt.name, gotBehind, gotLive, tt.wantBehind, tt.wantOK)
		}
	}
}

// TestATimeOfTheFutureHoldsNothingUp: only a producer can have written it, and he does not say whose turn it is.
func TestATimeOfTheFutureHoldsNothingUp(t *testing.T) {
	now := traffic.Time(1 << 40)
	o := orderAt(&now)
	odd := &queuedSource{messages: appendedAt(0, traffic.EndOfTime-1), dry: true}
	plain := &queuedSource{messages: appendedAt(1, now-oneSecond), dry: true}
	if held := o.choose([]*queuedSource{odd, plain}, &chunkRoom{10, 1 << 20}); held || len(odd.messages)+len(plain.messages) > 0 {
		t.Errorf("held %v with %d and %d events left", held, len(odd.messages), len(plain.messages))
	}
	if o.announced(o.chosen); o.front > now {
		t.Errorf("the front is %d at %d: everybody would be a straggler", o.front, now)
	}
}

// TestNobodyWaitsForAStraggler, not even another one, as long as others go on.
func TestNobodyWaitsForAStraggler(t *testing.T) {
	now := traffic.Time(1 << 40)
	o := orderAt(&now)
	o.startsAt(now)
	dead := &queuedSource{since: now - 900*oneSecond}
	alive := &queuedSource{messages: appendedAt(1, now-600*oneSecond), since: now - 600*oneSecond}
	live := &queuedSource{messages: appendedAt(2, now), dry: true}
	if held := o.choose([]*queuedSource{dead, alive, live}, &chunkRoom{10, 1 << 20}); held || len(alive.messages)+len(live.messages) > 0 {
		t.Errorf("held %v, with %d events of a straggler and %d live ones left", held, len(alive.messages), len(live.messages))
	}
}

// TestWhatIsNotAnnouncedLeavesNobodyBehind: a choice is made anew when the chunk before took longer, or failed.
func TestWhatIsNotAnnouncedLeavesNobodyBehind(t *testing.T) {
	now := traffic.Time(1 << 40)
	o := orderAt(&now)
	o.startsAt(now - 400*oneSecond)
	source := func() *queuedSource {
		return &queuedSource{messages: appendedAt(0, now-390*oneSecond, now-oneSecond), dry: true}
	}
	o.choose([]*queuedSource{source()}, &chunkRoom{10, 1 << 20})
	unread, q := &queuedSource{since: now - 395*oneSecond}, source()
	if held := o.choose([]*queuedSource{unread, q}, &chunkRoom{10, 1 << 20}); !held || len(q.messages) != 2 {
		t.Errorf("held %v with %d events left: what is not read yet was not waited for", held, len(q.messages))
	}
	o.announced(o.chosen)
}

// backlog gives a partition n events that were appended over d, the last one just before now, and one each 100 ms after.
func (w *world) backlog(p, n int, d time.Duration) {
	for i := range n {
		at := w.begin.Add(-d + d*time.Duration(i)/time.Duration(n))
		w.requests[p] = append(w.requests[p], simEvent{offset: int64(len(w.requests[p])), appended: at, time: at, ip: "192.0.2.1", device: "tv", user: "u"})
	}
	for i := range 30 {
		at := w.begin.Add(time.Duration(i+1) * 100 * time.Millisecond)
		w.requests[p] = append(w.requests[p], simEvent{offset: int64(len(w.requests[p])), appended: at, time: at, ip: "192.0.2.1", device: "tv", user: "u"})
	}
}

// routedTimes are the append times of the events on one keyed partition, in its order, by source.
func (w *world) routedTimes(t *testing.T) (times []traffic.Time, sources []int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for q := range w.keyed {
		if len(times) > 0 {
			break // all events of the backlog have one key: one keyed partition has them all
		}
		for _, rec := range w.keyed[q] {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(rec.value, &k); err != nil {
				t.Fatal(err)
			}
			if k.Kind == detectors.KeyedEvent {
				times, sources = append(times, w.requests[k.Source][k.Offset].appended), append(sources, k.Source)
			}
		}
	}
	return times, sources
}

// TestBacklogsAreCaughtUpEvenly: after an outage, however unevenly the backlog lies over the partitions, they are routed
// side by side by append time.
func TestBacklogsAreCaughtUpEvenly(t *testing.T) {
	const outage = 390 * time.Second
	calmWorld(t, func(w *world) {
		w.backlog(0, 1500, outage)
		w.backlog(1, 120, outage)
		w.backlog(2, 6, outage)
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		rest(ctx, 60*time.Second)
		times, _ := w.routedTimes(t)
		if len(times) != 1500+120+6+3*30 {
			t.Fatalf("%d events on the keyed partition", len(times))
		}
		newest, skew := traffic.BeforeTime, time.Duration(0)
		for _, at := range times {
			newest = max(newest, at)
			skew = max(skew, newest.Sub(at))
		}
		if skew > time.Second {
			t.Errorf("an event was routed after another one that was appended %v later", skew)
		}
	})
}

// TestAnUnreadablePartitionHoldsNobodyUp: while it is away, and when it comes back with all that it has missed.
func TestAnUnreadablePartitionHoldsNobodyUp(t *testing.T) {
	const outage = 390 * time.Second
	const down = 20 * time.Second
	calmWorld(t, func(w *world) {
		w.backlog(0, 3000, outage)
		w.backlog(1, 100, outage)
		w.backlog(2, 100, outage)
		w.setAway(0, true)
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		others := func() int {
			n := 0
			_, sources := w.routedTimes(t)
			for _, p := range sources {
				if p != 0 {
					n++
				}
			}
			return n
		}
		rest(ctx, 6*time.Second)
		if got := others(); got != 2*(100+30) {
			t.Errorf("%d events of the partitions that can be read are routed, want %d", got, 2*130)
		}
		rest(ctx, down-6*time.Second)
		w.setAway(0, false)
		before := others()
		w.append(1, 5)
		rest(ctx, 300*time.Millisecond)
		if got := others() - before; got != 5 {
			t.Errorf("%d of 5 events of now are routed while partition 0 is caught up", got)
		}
		if w.commit(0).Offset > 3000 {
			t.Error("partition 0 was caught up at once: the test shows nothing")
		}
		rest(ctx, 20*time.Second)
		if got := w.commit(0).Offset; got != 3030 {
			t.Errorf("partition 0 is routed up to %d of 3030", got)
		}
		if st := r.Stats(); st.OrderWaits == 0 || st.Announcements > 2*st.Chunks {
			t.Errorf("%d waits, %d announcements for %d chunks: want some of the first, and no commits while events wait",
				st.OrderWaits, st.Announcements, st.Chunks)
		}
	})
}

// BenchmarkOrder chooses a chunk of ten thousand events from eight sources whose append times alternate: the worst case,
// as each event is another source's than the one before.
func BenchmarkOrder(b *testing.B) {
	const sources, events = 8, 10_000
	now := traffic.Time(1 << 40)
	o := orderAt(&now)
	queued := make([][]traffic.Message, sources)
	for i := range queued {
		times := make([]traffic.Time, events/sources)
		for k := range times {
			times[k] = now - oneSecond + traffic.Time(k*sources+i)
		}
		queued[i] = appendedAt(i, times...)
	}
	for b.Loop() {
		chosen := make([]*queuedSource, sources)
		for i := range chosen {
			chosen[i] = &queuedSource{messages: queued[i], dry: true}
		}
		room := chunkRoom{events, 1 << 30}
		if o.choose(chosen, &room); !room.full() {
			b.Fatalf("room for %d events is left", room.events)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
}
