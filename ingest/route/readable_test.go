package route

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// TestNobodyWaitsForWhatCannotBeRead: as soon as it is known that a partition cannot be read on, what others hold waits
// for it no more; what was read of it comes in its turn.
func TestNobodyWaitsForWhatCannotBeRead(t *testing.T) {
	const now = traffic.Time(1 << 40)
	clock := func() traffic.Time { return now }
	fresh := func() *prefetcher {
		in := newPrefetcher(nil, time.Second, 1<<20, make(chan struct{}, 1), func(error) {})
		in.open(0, 5, now-2*oneSecond, nil)
		in.open(1, 0, now-2*oneSecond, nil)
		return in
	}
	bad := &ingest.UnreadableError{Next: 9, Why: errors.New("corrupt record batch")}
	live := ingest.Fetched{Partition: 1, Next: 1, HighWatermark: 1, Messages: appendedAt(1, now-oneSecond)}
	for _, test := range []struct {
		name    string
		answers []ingest.Fetched
		held    bool
	}{
		{"silent for the first time", []ingest.Fetched{live}, true},
		{"does not decode", []ingest.Fetched{{Partition: 0, Next: 5, HighWatermark: 20, Err: bad}, live}, false},
	} {
		in := fresh()
		asked, _ := in.ask()
		in.take(asked, test.answers, nil)
		o := newOrder(clock)
		o.startsAt(now - 2*oneSecond)
		queued := []*queuedSource{in.queued(0, 5), in.queued(1, 0)}
		if held := o.choose(queued, &chunkRoom{10, 1 << 20}); held != test.held {
			t.Errorf("%s: the other partition's event waits: %v, want %v", test.name, held, test.held)
		}
		if queued[0].behind {
			t.Errorf("%s: counts as behind", test.name)
		}
	}

	in := fresh()
	asked, _ := in.ask()
	in.take(asked, []ingest.Fetched{{Partition: 0, Next: 6, HighWatermark: 20, Messages: []traffic.Message{{Offset: 5, Appended: now - 2*oneSecond}}}}, nil)
	asked, _ = in.ask()
	in.take(asked, []ingest.Fetched{{Partition: 0, Next: 6, HighWatermark: 20, Err: bad}}, nil)
	o := newOrder(clock)
	q := in.queued(0, 5)
	if held := o.choose([]*queuedSource{q}, &chunkRoom{10, 1 << 20}); held || len(q.messages) > 0 {
		t.Errorf("held %v with %d events left of what was read before the bad batch", held, len(q.messages))
	}
}

// What an open transaction keeps from readers is said to be so once that lasts, and no longer than that; an end of
// the log that was read is none.
func TestAnOpenTransactionIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newPrefetcher(nil, time.Second, 1<<20, make(chan struct{}, 1), func(error) {})
		in.open(0, 5, 0, nil)
		in.open(1, 5, 0, nil)
		answer := func(readable int64) {
			asked, _ := in.ask()
			in.take(asked, []ingest.Fetched{
				{Partition: 0, Next: 5 + readable, HighWatermark: 20, Held: readable < 15, Readable: 5 + readable},
				{Partition: 1, Next: 20, HighWatermark: 20},
			}, nil)
		}
		expect := func(blocked bool) {
			t.Helper()
			if in.blockage(0) != nil != blocked || in.blockage(1) != nil {
				t.Errorf("blocked: %+v, and at its end: %+v; want the first: %v", in.blockage(0), in.blockage(1),
					blocked)
			}
		}
		for range 30 {
			answer(0)
			expect(false)
			time.Sleep(time.Second)
		}
		answer(0)
		expect(true)
		answer(1)
		expect(false)
		time.Sleep(time.Hour)
		answer(15)
		expect(false)
	})
}
