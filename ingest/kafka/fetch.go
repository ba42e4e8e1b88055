package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Log gives read access to topic. All readers of a topic in a process may share it.
//
// A message's value lies in the buffer of its fetch answer, or of its decompressed batch: it stays valid, and keeps that
// whole buffer alive, so a value that is kept for long should be copied.
func (k *Client) Log(topic string) ingest.TimedLog {
	k.metrics.beginLog(topic)
	return &topicLog{
		k: k, topic: topic, uncommitted: !slices.Contains(k.cfg.Committed, topic),
		backoffs: make(map[int]partitionBackoff), watch: newSilence(silentAfter),
	}
}

// topicLog implements Log. One request per leader is in flight for a position; where the leaders are several, an answer
// of one does not wait for the others: their requests stay under way and the next Fetch takes their answers up.
type topicLog struct {
	k           *Client
	topic       string
	uncommitted bool // see Config.Committed
	correlation atomic.Int32
	failing     retry.Trouble
	watch       *silence

	mu       sync.Mutex
	parked   []*fetchCall
	backoffs map[int]partitionBackoff
	turn     int // rotates who is asked for first: the answer is bounded, and filled in the order of the request
}

var _ ingest.TimedLog = (*topicLog)(nil)

// partitionBackoff keeps a partition that has just failed from being asked again at once.
type partitionBackoff struct {
	until  time.Time
	length time.Duration
	// offset is the offset that must not be asked for, -1 for any: after ErrOutOfRange another offset may well do.
	offset int64
	// needsFull says that the last answer held only part of a batch larger than the partition's share. Such a partition is
	// asked for first: brokers send the first batch of an answer whole.
	needsFull bool
}

const (
	backoffLeast = 50 * time.Millisecond
	backoffMost  = time.Second
	// fetchGrace is how much longer than its wait a fetch may take: the way of an answer that the broker sends when the wait
	// is over.
	fetchGrace = 250 * time.Millisecond
	// parkedFor bounds how long an answer that nobody took up is kept: after a rebalance nobody will.
	parkedFor = 5 * time.Second
)

// Bounds implements Log.
func (l *topicLog) Bounds(ctx context.Context, partitions []int) (map[int]ingest.Bounds, error) {
	return l.k.bounds(ctx, l.topic, partitions)
}

// OffsetsAt implements TimedLog.
func (l *topicLog) OffsetsAt(ctx context.Context, partitions []int, at traffic.Time) (map[int]int64, error) {
	return l.k.offsetsAt(ctx, l.topic, partitions, at)
}

// Fetch implements Log. A broker or leader that is away is logged, counted and tried again with back-off; Fetch itself
// fails only when ctx is done or the client is closed.
func (l *topicLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	out, err := l.fetch(ctx, positions, wait)
	if err == nil {
		l.observe(positions, out)
	}
	return out, err
}

func (l *topicLog) fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	round := &fetchRound{
		log: l, ends: time.Now().Add(wait), open: make(map[int]ingest.Position, len(positions)), room: newFetchRoom(positions),
		wake: make(chan struct{}, 1),
	}
	for _, p := range positions {
		round.open[p.Partition] = p
	}
	defer round.release()
	round.takeOver()
	over := time.NewTimer(wait + fetchGrace)
	defer over.Stop()
	for {
		if ctx.Err() != nil {
			round.abandoned = true
			return nil, ctx.Err()
		}
		if l.k.life.Err() != nil {
			return nil, errKafkaClosed
		}
		again := round.launch(ctx)
		round.collect()
		if round.news || len(round.open) == 0 || (len(round.answers) > 0 && len(round.calls) == 0) {
			return round.answers, nil
		}
		retry := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-l.k.life.Done():
		case <-over.C:
			retry.Stop()
			return round.answers, nil
		case <-round.wake:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// fetchCall is one request to one leader.
type fetchCall struct {
	positions []ingest.Position
	room      *fetchRoom
	finished  time.Time // zero until the answer is there
	answers   []fetchedPart
	notify    chan<- struct{} // of the round that waits for it; guarded, like finished and answers, by topicLog.mu
}

// fetchedPart is the answer for one position.
type fetchedPart struct {
	ingest.Fetched
	asked int64
}

func (c *fetchCall) asksFor(partition int, offset int64) bool {
	for _, p := range c.positions {
		if p.Partition == partition {
			return p.Offset == offset
		}
	}
	return false
}

// run sends the request and hands its answer in. It outlives the Fetch that launched it, never the client.
func (l *topicLog) run(call *fetchCall, request *fetchRequest) {
	asked := traffic.At(time.Now()) // before the request is sent: see Fetched.Asked
	answer, err := l.k.roundTrip(l.k.life, request.wait+l.k.cfg.RequestTimeout, request)
	var parts []fetchedPart
	if err == nil {
		response, ok := answer.(*fetchResponse)
		if !ok {
			err = fmt.Errorf("fetch: unexpected answer %T", answer)
		} else {
			parts = l.decode(call, response, asked)
		}
	}
	if err != nil && l.k.life.Err() == nil {
		l.k.metrics.fetchFailed(l.topic, err)
		l.failing.Failed(l.k.log, "cannot read from Kafka, trying again", err, "topic", l.topic, "broker", request.broker)
	} else if err == nil {
		l.failing.Over(l.k.log, "reading from Kafka again", "topic", l.topic)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		for _, p := range call.positions {
			l.backOff(p.Partition, -1)
		}
	}
	call.answers, call.finished = parts, time.Now()
	select {
	case call.notify <- struct{}{}:
	default: // it is awake already, or nobody waits (a nil channel)
	}
}

// decode turns a response into answers; a partition whose leader has moved gets none, and a backoff.
func (l *topicLog) decode(call *fetchCall, response *fetchResponse, asked traffic.Time) []fetchedPart {
	got := make(map[int]*fetchedPartition, len(response.partitions))
	for i := range response.partitions {
		got[response.partitions[i].partition] = &response.partitions[i]
	}
	parts := make([]fetchedPart, 0, len(call.positions))
	for _, p := range call.positions {
		part := fetchedPart{asked: p.Offset, Fetched: ingest.Fetched{Partition: p.Partition, Next: p.Offset, Asked: asked}}
		answer := got[p.Partition]
		needsFull := false
		switch {
		case answer == nil:
			l.failed(p.Partition, -1, kafka.UnknownTopicOrPartition)
			continue
		case answer.code != 0 && leaderAway(answer.code):
			l.failed(p.Partition, -1, answer.code)
			continue
		case answer.code == kafka.OffsetOutOfRange:
			part.Err = fmt.Errorf("topic %s partition %d offset %d: %w", l.topic, p.Partition, p.Offset, ingest.ErrOutOfRange)
		case answer.code != 0:
			part.Err = fmt.Errorf("fetching topic %s partition %d: %w", l.topic, p.Partition, answer.code)
		default:
			part.HighWatermark, part.LogStart = answer.highWatermark, answer.logStart
			if !l.uncommitted { // else brokers say nothing, or what is of no interest
				if part.Held = answer.lastStable >= 0 && answer.lastStable < answer.highWatermark; part.Held {
					part.Readable = answer.lastStable
				}
			}
			part.Err = l.records(&part.Fetched, answer, p, call.room)
			// Where there is no room any more, nothing was looked at, and nothing is known of the batch.
			needsFull = part.Err == nil && part.Next == p.Offset && len(answer.records) > 0 && call.room.open()
			if needsFull && p == call.positions[0] && l.needsFullFetch(p.Partition) {
				// First in a request a batch is sent whole, whatever its size (KIP-74).
				part.Err = &ingest.UnreadableError{Next: ingest.NoOffset, Why: fmt.Errorf("topic %s partition %d: %w: the broker sends %d bytes, "+
					"and no whole batch in them that holds the offset", l.topic, p.Partition, errCorrupt, len(answer.records))}
			}
		}
		if part.Err != nil {
			l.failed(p.Partition, p.Offset, part.Err)
		} else {
			l.answered(p.Partition, needsFull)
		}
		parts = append(parts, part)
	}
	return parts
}

func (l *topicLog) records(f *ingest.Fetched, answer *fetchedPartition, p ingest.Position, room *fetchRoom) error {
	set, err := decodeRecords(room, p, answer.records, answer.aborted, l.k.codecs)
	if err != nil {
		return &ingest.UnreadableError{
			Next: behindBad(answer.records, p.Offset, answer.highWatermark),
			Why:  fmt.Errorf("topic %s partition %d: %w", l.topic, f.Partition, err),
		}
	}
	f.Messages, f.Next, f.Following = set.messages, set.next, set.following
	if n := len(set.messages); n > 0 {
		hear(&l.k.heard, set.messages[n-1].Appended)
	}
	m := l.k.metrics
	m.fetchedRecords.WithLabelValues(l.topic).Add(float64(len(set.messages)))
	m.fetchedBytes.WithLabelValues(l.topic).Add(float64(len(answer.records)))
	if set.control > 0 {
		m.skippedRecords.WithLabelValues(l.topic, skippedControl).Add(float64(set.control))
	}
	if set.aborted > 0 {
		m.skippedRecords.WithLabelValues(l.topic, skippedAborted).Add(float64(set.aborted))
	}
	return nil
}

// leaderAway says that the answer of another broker, or of this one a little later, will do.
func leaderAway(code kafka.Error) bool {
	switch code {
	case kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.ReplicaNotAvailable,
		kafka.KafkaStorageError, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.OffsetNotAvailable, kafka.UnknownTopicID:
		return true
	}
	return false
}

func (l *topicLog) failed(partition int, offset int64, err error) {
	l.k.metrics.fetchFailed(l.topic, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backOff(partition, offset)
}

func (l *topicLog) answered(partition int, needsFull bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if needsFull {
		l.backoffs[partition] = partitionBackoff{needsFull: true}
	} else {
		delete(l.backoffs, partition)
	}
}

// needsFullFetch reports whether the last answer for the partition held less than a batch.
func (l *topicLog) needsFullFetch(partition int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.backoffs[partition].needsFull
}

// backOff keeps the partition from being asked for a while, longer each time. The caller holds mu.
func (l *topicLog) backOff(partition int, offset int64) {
	r := l.backoffs[partition]
	r.length = min(max(2*r.length, backoffLeast), backoffMost)
	r.until, r.offset = time.Now().Add(r.length), offset
	l.backoffs[partition] = r
}

// silentAfter is how long a partition may go unanswered while others are answered before that is an alarm. kafka-go's
// issues #387, #847 and #955 tell of readers that stall for ever after a broker restart.
const silentAfter = 30 * time.Second

// silence watches that every partition that is asked for gets answers.
type silence struct {
	after time.Duration

	mu     sync.Mutex
	asked  map[int]unanswered
	latest time.Time // of any answer
}

type unanswered struct {
	since    time.Time // asked without an answer since then
	reported time.Time // last time in an alarm
	recent   time.Time // asked last
}

func newSilence(after time.Duration) *silence {
	return &silence{after: after, asked: make(map[int]unanswered)}
}

// observe takes in one fetch. silent are the partitions in alarm now, ascending; report are those of them to log: at
// first, and again each time the period has passed.
func (s *silence) observe(now time.Time, positions []ingest.Position, answers []ingest.Fetched) (silent, report []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range positions {
		a, known := s.asked[p.Partition]
		if !known || now.Sub(a.recent) > s.after {
			a = unanswered{since: now} // it may well have been another owner's in between
		}
		a.recent = now
		s.asked[p.Partition] = a
	}
	for _, f := range answers {
		s.asked[f.Partition] = unanswered{since: now, recent: now}
		s.latest = now
	}
	for partition, a := range s.asked {
		switch {
		case now.Sub(a.recent) > s.after:
			delete(s.asked, partition) // no longer asked for
		case now.Sub(a.since) >= s.after && s.latest.After(a.since):
			silent = append(silent, partition)
			if now.Sub(a.reported) >= s.after {
				a.reported = now
				s.asked[partition] = a
				report = append(report, partition)
			}
		}
	}
	slices.Sort(silent)
	slices.Sort(report)
	return silent, report
}

func (l *topicLog) observe(positions []ingest.Position, answers []ingest.Fetched) {
	silent, report := l.watch.observe(time.Now(), positions, answers)
	l.k.metrics.silent.WithLabelValues(l.topic).Set(float64(len(silent)))
	if len(report) > 0 {
		l.k.log.Error("partitions give no answer while others do", "topic", l.topic, "partitions", report, "for_at_least", l.watch.after)
	}
}
