package route

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// asking is a queue with the position that was asked for it.
type asking struct {
	q  *fetchQueue
	at ingest.Position
}

func positionsOf(asked []asking) []ingest.Position {
	positions := make([]ingest.Position, len(asked))
	for i := range asked {
		positions[i] = asked[i].at
	}
	return positions
}

// ask chooses what to fetch next, ascending by partition. The room that is left is shared by the partitions that the next
// chunks are made of: those with nothing queued, and of the others those that are hardly ahead of the one that is furthest
// behind (routeOrder). So a partition with most of the backlog gets most of the memory, and what is read of the others does
// not lie there while it is waited for.
func (in *intake) ask() ([]asking, time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	room := in.queueBytes - in.held()
	if room <= 0 {
		return in.askOver(), crowdWait
	}
	behind := traffic.EndOfTime
	for _, q := range in.queues {
		if !q.dry && !q.lost && !q.silent {
			behind = min(behind, q.since)
		}
	}
	wait := in.wait
	asked := make([]asking, 0, len(in.queues))
	for _, q := range in.queues {
		switch {
		case q.lost:
		case len(q.messages) > 0 && q.since > behind.Add(orderSpan):
			wait = min(wait, crowdWait)
		default:
			asked = append(asked, q.ask(1))
		}
	}
	for i := range asked {
		asked[i].at.Room = max(room/len(asked), 1)
	}
	slices.SortFunc(asked, func(a, b asking) int { return cmp.Compare(a.at.Partition, b.at.Partition) })
	return asked, wait
}

// askOver chooses what to fetch although the bound is reached: one batch of the partition that the order waits for, without
// which nothing that is queued may be routed. Beyond twice the bound the order does not get it, and goes on without.
func (in *intake) askOver() []asking {
	var first *fetchQueue
	for _, q := range in.queues {
		waits := len(q.messages) > 0 || !q.dry && !q.silent
		if !q.lost && waits && (first == nil || q.front() < first.front()) {
			first = q
		}
	}
	if first == nil || len(first.messages) > 0 || in.held() >= 2*in.queueBytes {
		return nil
	}
	return []asking{first.ask(1)}
}

// ask notes that the partition is asked for.
func (q *fetchQueue) ask(room int) asking {
	q.silent = true
	q.readable.Ask(time.Now())
	return asking{q, ingest.Position{Partition: q.partition, Offset: q.next, Room: room}}
}

// front is when the first message that is not routed was appended, or a time before which it was not.
func (q *fetchQueue) front() traffic.Time {
	if len(q.messages) > 0 {
		return q.messages[0].Appended
	}
	return q.since
}

// held is what all queues hold. The caller holds mu.
func (in *intake) held() int {
	n := 0
	for _, q := range in.queues {
		n += q.bytes
	}
	return n
}

// size is what all queues hold, in bytes.
func (in *intake) size() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.held()
}

// queued is what is queued of a partition from offset on, as an order sees it. It stays valid until the next drop. Nothing
// is waited for that cannot be read.
func (in *intake) queued(partition int, offset int64) *queuedSource {
	in.mu.Lock()
	defer in.mu.Unlock()
	q := in.queues[partition]
	return &queuedSource{messages: ingest.MessagesFrom(q.messages, offset), read: q.next, since: q.since, dry: q.dry || q.readable.Blocked != nil}
}
