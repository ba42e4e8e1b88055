package route

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Waits of the prefetcher's loop.
const (
	fullQueueWait = 5 * time.Millisecond // while a full queue is left out, a fetch must not wait long for the others
	minFetchPause = 100 * time.Millisecond
	maxFetchPause = 2 * time.Second
)

// prefetcher reads ahead of the session, so that a chunk in flight does not keep the next events waiting. One goroutine
// runs it; the session's goroutine opens, reads and empties the queues.
type prefetcher struct {
	log        ingest.Log
	wait       time.Duration
	queueBytes int             // what all queues together may hold, unpacked; the last batch may pass it
	wake       chan<- struct{} // there is something new for the session
	room       chan struct{}   // there is something new to ask for
	failed     func(error)     // is told of every fetch, or part of one, that went wrong

	mu     sync.Mutex
	queues map[int]*fetchQueue
}

// fetchQueue holds what was read of one partition and not yet routed.
type fetchQueue struct {
	partition int
	messages  []traffic.Message
	bytes     int
	next      int64        // the next offset to ask for: everything before it is in messages, was routed, or is no event
	high      int64        // the log's end when last seen
	atEnd     bool         // the last answer reached the log's end
	dry       bool         // the last answer reached the end of what can be read, which an open transaction may put before the log's
	since     traffic.Time // what stands at next was not appended before this, as far as is known
	asked     traffic.Time
	silent    bool // the last fetch that asked for it has not answered
	lost      bool // next lies outside the log
	readable  ingest.Readable
	lag       *ingest.Lag // shows what was not routed yet
}

func newPrefetcher(log ingest.Log, wait time.Duration, queueBytes int, wake chan<- struct{}, failed func(error)) *prefetcher {
	return &prefetcher{
		log: log, wait: wait, queueBytes: queueBytes, wake: wake, room: make(chan struct{}, 1), failed: failed,
		queues: map[int]*fetchQueue{},
	}
}

// run fetches until ctx is done.
func (p *prefetcher) run(ctx context.Context) {
	wait := retry.NewBackoff(minFetchPause, maxFetchPause)
	for ctx.Err() == nil {
		asked, most := p.ask()
		if len(asked) == 0 {
			select {
			case <-p.room:
			case <-ctx.Done():
			}
			continue
		}
		answers, err := p.log.Fetch(ctx, positionsOf(asked), most)
		if ctx.Err() != nil {
			return
		}
		if p.take(asked, answers, err) {
			wait.Reset()
			continue
		}
		_ = wait.Wait(ctx) // its error is ctx's, which ends the loop
	}
}

// take puts answers into their queues. It reports whether the log can be asked again at once.
func (p *prefetcher) take(asked []asking, answers []ingest.Fetched, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed(err)
	}
	news, troubled := p.missed(asked, answers, err), err != nil
	for i := range answers {
		f := &answers[i]
		at := sort.Search(len(asked), func(k int) bool { return asked[k].at.Partition >= f.Partition })
		if at == len(asked) || asked[at].at.Partition != f.Partition {
			continue
		}
		q := asked[at].q
		switch {
		case p.queues[f.Partition] != q: // closed since
		case errors.Is(f.Err, ingest.ErrOutOfRange):
			q.lost, news = true, true
		case f.Err != nil:
			p.failed(f.Err)
			q.high = max(q.high, f.HighWatermark)
			news = q.failed(f.Err) || news
			troubled = true
		default:
			q.add(f)
			if q.dry && !q.atEnd {
				q.readable.Held(time.Now(), q.next)
			} else {
				q.readable.Answered()
			}
			news = true
		}
	}
	if news {
		ingest.Wake(p.wake)
	}
	return news || !troubled
}

// missed notes the partitions that were asked for and are not among the answers. It reports whether that blocks one.
func (p *prefetcher) missed(asked []asking, answers []ingest.Fetched, err error) (news bool) {
	for _, a := range asked {
		there := func(f ingest.Fetched) bool { return f.Partition == a.at.Partition }
		if p.queues[a.at.Partition] == a.q && !slices.ContainsFunc(answers, there) {
			news = a.q.failed(err) || news
		}
	}
	return news
}

// failed notes an attempt that brought nothing. It reports whether that changes what blocks the partition.
func (q *fetchQueue) failed(err error) bool {
	before := q.readable.Blocked
	q.readable.Failed(time.Now(), q.next, err)
	return !before.Same(q.readable.Blocked)
}

// blockage is why a partition cannot be read on; nil while it can.
func (p *prefetcher) blockage(partition int) *ingest.Blockage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[partition].readable.Blocked
}

// waited is how much of the last minutes was spent before open transactions of a partition, and the offset of the one
// that may stand there now.
func (p *prefetcher) waited(partition int) (time.Duration, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[partition]
	return q.readable.Waited(time.Now()), q.next
}

func (q *fetchQueue) add(f *ingest.Fetched) {
	for i := range f.Messages {
		q.bytes += ingest.HeldBytes(&f.Messages[i])
		q.since = f.Messages[i].Appended
	}
	q.messages = append(q.messages, f.Messages...)
	if f.Following != 0 {
		q.since = f.Following
	}
	q.next = max(q.next, f.Next)
	q.high = f.HighWatermark
	q.atEnd = q.next >= f.HighWatermark
	q.dry = q.atEnd || f.Held && q.next >= f.Readable
	q.asked, q.silent = f.Asked, false
	q.showLag()
}

// showLag shows how much of the log is not routed yet.
func (q *fetchQueue) showLag() {
	if n := len(q.messages); n > 0 {
		q.lag.Behind(q.high-q.messages[0].Offset, q.messages[0].Appended)
		return
	}
	q.lag.Behind(q.high-q.next, q.since)
}

// open makes a queue for a partition, to be read from offset on once room is woken. since is a time before
// which nothing from there on was appended, as far as is known. lag is to show what of it is not routed yet.
func (p *prefetcher) open(partition int, offset int64, since traffic.Time, lag *ingest.Lag) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[partition] = &fetchQueue{partition: partition, next: offset, high: offset, since: since, lag: lag}
}

// closeLost closes the queues whose position lies outside their log, and says which.
func (p *prefetcher) closeLost() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lost []int
	for partition, q := range p.queues {
		if q.lost {
			lost = append(lost, partition)
			delete(p.queues, partition)
		}
	}
	sort.Ints(lost)
	return lost
}

// peek returns what is queued of a partition, and the offset up to which the log was read. The slice stays valid, and
// as it is, until the next discard.
func (p *prefetcher) peek(partition int) ([]traffic.Message, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[partition]
	return q.messages, q.next
}

// discard forgets what lies before offset.
func (p *prefetcher) discard(partition int, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[partition]
	n := 0
	for ; n < len(q.messages) && q.messages[n].Offset < offset; n++ {
		q.bytes -= ingest.HeldBytes(&q.messages[n])
	}
	if q.messages = q.messages[n:]; len(q.messages) == 0 {
		q.messages = nil // the array with all its values may go
	}
	q.showLag()
	ingest.Wake(p.room)
}

// logTail is what is known of the end of a partition's log.
type logTail struct {
	high  int64
	empty bool         // read to the end, and nothing is queued
	next  int64        // with empty: the end that was found
	asked traffic.Time // with empty: the clock from before the fetch that found it
}

func (p *prefetcher) tail(partition int) logTail {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[partition]
	return logTail{high: q.high, empty: q.atEnd && len(q.messages) == 0, next: q.next, asked: q.asked}
}

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
// behind (order). So a partition with most of the backlog gets most of the memory, and what is read of the others does
// not lie there while it is waited for.
func (p *prefetcher) ask() ([]asking, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := p.queueBytes - p.held()
	if room <= 0 {
		return p.askOver(), fullQueueWait
	}
	behind := traffic.EndOfTime
	for _, q := range p.queues {
		if !q.dry && !q.lost && !q.silent {
			behind = min(behind, q.since)
		}
	}
	wait := p.wait
	asked := make([]asking, 0, len(p.queues))
	for _, q := range p.queues {
		switch {
		case q.lost:
		case len(q.messages) > 0 && q.since > behind.Add(orderSpan):
			wait = min(wait, fullQueueWait)
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
func (p *prefetcher) askOver() []asking {
	var first *fetchQueue
	for _, q := range p.queues {
		waits := len(q.messages) > 0 || !q.dry && !q.silent
		if !q.lost && waits && (first == nil || q.front() < first.front()) {
			first = q
		}
	}
	if first == nil || len(first.messages) > 0 || p.held() >= 2*p.queueBytes {
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
func (p *prefetcher) held() int {
	n := 0
	for _, q := range p.queues {
		n += q.bytes
	}
	return n
}

// size is what all queues hold, in bytes.
func (p *prefetcher) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held()
}

// queued is what is queued of a partition from offset on, as an order sees it. It stays valid until the next discard. Nothing
// is waited for that cannot be read.
func (p *prefetcher) queued(partition int, offset int64) *queuedSource {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[partition]
	return &queuedSource{messages: ingest.MessagesFrom(q.messages, offset), read: q.next, since: q.since, dry: q.dry || q.readable.Blocked != nil}
}
