package kafka

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// fetchRound is one call of Fetch: the positions that are still open, and the requests that it waits for.
type fetchRound struct {
	log       *topicLog
	ends      time.Time
	open      map[int]ingest.Position // by partition: not answered yet
	room      *fetchRoom
	calls     []*fetchCall
	answers   []ingest.Fetched
	news      bool // an answer that is worth returning at once
	abandoned bool // the caller has gone: nobody will take up what is under way
	wake      chan struct{}
}

// takeOver takes over requests of earlier rounds that ask for a position of this one, and drops stale ones.
func (r *fetchRound) takeOver() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.parked = slices.DeleteFunc(l.parked, func(call *fetchCall) bool {
		for partition, p := range r.open {
			if call.asksFor(partition, p.Offset) {
				call.notify = r.wake
				r.calls = append(r.calls, call)
				return true
			}
		}
		return !call.finished.IsZero() && now.Sub(call.finished) > parkedFor
	})
}

// launch asks for every open position that no request is under way for and that is not backing off. It returns the time
// after which another position may be due.
func (r *fetchRound) launch(ctx context.Context) (again time.Duration) {
	positions, again := r.due()
	if len(positions) == 0 {
		return again
	}
	l := r.log
	leaders, err := l.k.leaders(ctx, l.topic)
	if err != nil {
		if ctx.Err() == nil && l.k.life.Err() == nil {
			l.k.metrics.fetchFailed(l.topic, err)
			l.failing.Failed(l.k.log, "cannot read from Kafka, trying again", err, "topic", l.topic)
		}
		leaders = nil
	}
	byLeader := make(map[int32][]ingest.Position)
	for _, p := range positions {
		if p.Partition >= len(leaders) || p.Partition < 0 || leaders[p.Partition] < 0 {
			l.failed(p.Partition, -1, kafka.LeaderNotAvailable)
			again = min(again, backoffLeast)
			continue
		}
		leader := leaders[p.Partition]
		byLeader[leader] = append(byLeader[leader], p)
	}
	for leader, positions := range byLeader {
		r.send(leader, positions)
	}
	return again
}

// due lists the positions to ask for now: partitions that need a full fetch first, the others in turn.
func (r *fetchRound) due() (due []ingest.Position, again time.Duration) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	now, again := time.Now(), time.Hour
	for partition, p := range r.open {
		if r.underWay(partition, p.Offset) {
			continue
		}
		backoff := l.backoffs[partition]
		if left := backoff.until.Sub(now); left > 0 && (backoff.offset < 0 || backoff.offset == p.Offset) {
			again = min(again, left)
			continue
		}
		due = append(due, p)
	}
	if len(due) == 0 {
		return nil, again
	}
	slices.SortFunc(due, func(a, b ingest.Position) int { return a.Partition - b.Partition })
	l.turn++
	turn := l.turn % len(due)
	due = slices.Concat(due[turn:], due[:turn])
	slices.SortStableFunc(due, func(a, b ingest.Position) int {
		switch x, y := l.backoffs[a.Partition].needsFull, l.backoffs[b.Partition].needsFull; {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	return due, again
}

func (r *fetchRound) underWay(partition int, offset int64) bool {
	return slices.ContainsFunc(r.calls, func(c *fetchCall) bool { return c.asksFor(partition, offset) })
}

func (r *fetchRound) send(leader int32, positions []ingest.Position) {
	l := r.log
	request := &fetchRequest{
		broker: leader, client: clientID, topic: l.topic, positions: positions,
		wait: max(0, time.Until(r.ends)), bytes: l.k.cfg.fetchBytes, partitionBytes: l.k.cfg.partitionFetchBytes,
		correlation: l.correlation.Add(1), uncommitted: l.uncommitted,
	}
	call := &fetchCall{positions: positions, room: r.room, notify: r.wake}
	r.calls = append(r.calls, call)
	l.k.background(func() { l.run(call, request) })
}

// collect takes in what has been answered.
func (r *fetchRound) collect() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.calls = slices.DeleteFunc(r.calls, func(call *fetchCall) bool {
		if call.finished.IsZero() {
			return false
		}
		for _, part := range call.answers {
			p, wanted := r.open[part.Partition]
			if !wanted || p.Offset != part.asked {
				continue // the reader has moved since, or has had this answer from another request
			}
			delete(r.open, part.Partition)
			r.answers = append(r.answers, part.Fetched)
			r.news = r.news || part.Err != nil || part.Next > part.asked
		}
		return true
	})
}

// release leaves the requests under way to the next round.
func (r *fetchRound) release() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for _, call := range r.calls {
		call.notify = nil
		if !r.abandoned {
			r.log.parked = append(r.log.parked, call)
		}
	}
}

// fetchRoom bounds what the answers of one Fetch hold together, unpacked. The size on the wire says nothing, since a batch
// of a megabyte may unpack to hundreds, and the unpacked size is known only afterwards. So room is asked for before each
// batch, and the last batch may pass the bound. A nil room has no bound.
type fetchRoom struct{ left atomic.Int64 }

func newFetchRoom(positions []ingest.Position) *fetchRoom {
	room := &fetchRoom{}
	for _, p := range positions {
		if p.Room <= 0 {
			return nil
		}
		room.left.Add(int64(p.Room))
	}
	return room
}

// open reports whether anything more may be unpacked.
func (r *fetchRoom) open() bool { return r == nil || r.left.Load() > 0 }

// admits reports whether another batch may be unpacked at a position whose answer holds so many bytes already.
func (r *fetchRoom) admits(at ingest.Position, held int) bool {
	return r == nil || held < at.Room && r.open()
}

// take gives the messages of a batch their room, and says how much that is.
func (r *fetchRoom) take(messages []traffic.Message) int {
	if r == nil {
		return 0
	}
	bytes := 0
	for i := range messages {
		bytes += ingest.HeldBytes(&messages[i])
	}
	r.left.Add(-int64(bytes))
	return bytes
}
