package kafka

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/traffic"
)

const (
	// A produce request stays below brokers' socket.request.max.bytes (100 MiB) by far.
	mostRequestBytes = 32 << 20
	// A large append is split over a few requests, which brokers work on at the same time; small ones cost less in one.
	goodRequestBytes = 2 << 20
	parallelRequests = 4
)

// Appender gives write access to topic. Append copies the values, so the caller may reuse them when it returns; it makes
// one attempt and leaves retries to the caller, who alone knows whether writing twice does harm. Its error is an
// *AppendError, or one of the layout of the topic or of the caller's batches, after which nothing was sent.
func (k *Client) Appender(topic string) ingest.Appender {
	k.metrics.beginAppender(topic)
	return &topicAppender{k: k, topic: topic}
}

type topicAppender struct {
	k     *Client
	topic string
}

var _ ingest.Appender = (*topicAppender)(nil)

// encodedBatch is one partition's record set, ready to send.
type encodedBatch struct {
	partition int
	leader    int32
	set       []byte
}

// Append implements Appender.
func (a *topicAppender) Append(ctx context.Context, batches []ingest.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	started := time.Now()
	encoded, failed, err := a.encode(ctx, batches)
	if err != nil {
		return err
	}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		sent int
	)
	// A batch that cannot be encoded does not hold up the others: an error promises nothing about any of them.
	for _, request := range splitRequests(encoded) {
		wg.Go(func() {
			errs := a.send(ctx, request)
			mu.Lock()
			defer mu.Unlock()
			for _, b := range request {
				if err := errs[b.partition]; err != nil {
					failed[b.partition] = err
				} else {
					sent += len(b.set)
				}
			}
		})
	}
	wg.Wait()
	m := a.k.metrics
	m.appendedBytes.WithLabelValues(a.topic).Add(float64(sent))
	if len(failed) == 0 {
		m.appendSeconds.WithLabelValues(a.topic).Observe(time.Since(started).Seconds())
		return nil
	}
	for _, err := range failed {
		m.appendFailed(a.topic, err)
	}
	return &ingest.AppendError{Topic: a.topic, Failed: failed}
}

func (a *topicAppender) encode(ctx context.Context, batches []ingest.Batch) ([]encodedBatch, map[int]error, error) {
	leaders, err := a.k.leaders(ctx, a.topic)
	if err != nil {
		return nil, nil, err
	}
	encoded, failed := make([]encodedBatch, 0, len(batches)), make(map[int]error)
	seen, sending := make(map[int]bool, len(batches)), make([]ingest.Batch, 0, len(batches))
	for _, b := range batches {
		switch {
		case b.Partition < 0 || b.Partition >= len(leaders):
			return nil, nil, fmt.Errorf("topic %s has partitions 0 to %d, got a batch for %d", a.topic, len(leaders)-1, b.Partition)
		case seen[b.Partition]:
			return nil, nil, fmt.Errorf("topic %s: two batches for partition %d in one append", a.topic, b.Partition)
		case len(b.Values) == 0:
			continue
		}
		seen[b.Partition] = true
		if leaders[b.Partition] < 0 {
			failed[b.Partition] = &ingest.UnwrittenError{Err: kafka.LeaderNotAvailable}
			continue
		}
		sending = append(sending, b)
	}
	sets, errs := a.pack(sending)
	for i, b := range sending {
		if errs[i] != nil {
			failed[b.Partition] = errs[i]
			continue
		}
		encoded = append(encoded, encodedBatch{partition: b.Partition, leader: leaders[b.Partition], set: sets[i]})
	}
	return encoded, failed, nil
}

// packTogether is how many bytes of values one goroutine packs at least: less is not worth another one.
const packTogether = 256 << 10

// pack encodes batches, many bytes by several goroutines. The sets are copies of their own: a request that was given up
// may still be sending them.
func (a *topicAppender) pack(batches []ingest.Batch) (sets [][]byte, errs []error) {
	sets, errs = make([][]byte, len(batches)), make([]error, len(batches))
	size := 0
	for _, b := range batches {
		for _, v := range b.Values {
			size += len(v)
		}
	}
	var next atomic.Int64
	work := func() {
		p := a.k.packers.get()
		defer a.k.packers.giveBack(p)
		for i := int(next.Add(1)) - 1; i < len(batches); i = int(next.Add(1)) - 1 {
			set, err := p.recordSet(batches[i].Values, time.Now().UnixMilli())
			if err == nil && len(set) > mostRequestBytes {
				err = fmt.Errorf("%w: %d bytes compressed, weir sends up to %d", ingest.ErrBatchTooLarge, len(set), mostRequestBytes)
			}
			sets[i], errs[i] = bytes.Clone(set), err
		}
	}
	var wg sync.WaitGroup
	for range min(len(batches), runtime.GOMAXPROCS(0), 1+size/packTogether) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return sets, errs
}

// packers are those that nobody uses just now.
type packers struct{ pool sync.Pool }

// get gives one that nobody uses.
func (ps *packers) get() *packer {
	if p, ok := ps.pool.Get().(*packer); ok {
		return p
	}
	return &packer{}
}

func (ps *packers) giveBack(p *packer) {
	if cap(p.plain) <= packerKeeps && cap(p.set) <= packerKeeps {
		ps.pool.Put(p)
	}
}

// splitRequests sorts batches into requests: by leader, and each leader's over a few when they are many bytes.
func splitRequests(batches []encodedBatch) [][]encodedBatch {
	slices.SortStableFunc(batches, func(a, b encodedBatch) int { return cmp.Compare(a.leader, b.leader) })
	total := make(map[int32]int)
	for _, b := range batches {
		total[b.leader] += len(b.set)
	}
	var requests [][]encodedBatch
	size := 0
	for i, b := range batches {
		share := max(goodRequestBytes, total[b.leader]/parallelRequests+1)
		limit := min(mostRequestBytes, share)
		if i == 0 || batches[i-1].leader != b.leader || size+len(b.set) > limit {
			requests, size = append(requests, nil), 0
		}
		last := len(requests) - 1
		requests[last] = append(requests[last], b)
		size += len(b.set)
	}
	return requests
}

// send makes one produce request and returns the partitions' errors; nothing for a partition means acknowledged.
func (a *topicAppender) send(ctx context.Context, batches []encodedBatch) map[int]error {
	timeout, asked := a.k.cfg.RequestTimeout, traffic.At(time.Now())
	partitions := make([]rawproduce.RequestPartition, len(batches))
	for i, b := range batches {
		partitions[i] = rawproduce.RequestPartition{
			Partition: int32(b.partition), RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(b.set)},
		}
	}
	answer, err := a.k.roundTrip(ctx, timeout+timeout/2, &rawproduce.Request{
		Acks: int16(kafka.RequireAll), Timeout: int32(timeout.Milliseconds()),
		Topics: []rawproduce.RequestTopic{{Topic: a.topic, Partitions: partitions}},
	})
	errs := make(map[int]error)
	for _, b := range batches {
		errs[b.partition] = errNoAnswer
		if err != nil {
			errs[b.partition] = err
		}
	}
	response, ok := answer.(*produce.Response)
	if err != nil || !ok {
		return errs
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			errs[int(p.Partition)] = produceError(kafka.Error(p.ErrorCode), p.ErrorMessage)
			if p.ErrorCode == 0 && p.LogAppendTime >= 0 {
				a.k.heard.Add(clocks.Reading{Theirs: recordTime(p.LogAppendTime), Asked: asked,
					Answered: traffic.At(time.Now())})
			}
		}
	}
	return errs
}

func produceError(code kafka.Error, message string) error {
	switch code {
	case kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.NotEnoughReplicas:
		return &ingest.UnwrittenError{Err: told(code, message)} // the leader checks these before it appends
	}
	return told(code, message)
}

// told is the error of a partition's answer, with the message that the broker adds to it.
func told(code kafka.Error, message string) error {
	switch {
	case code == 0:
		return nil
	case code == kafka.MessageSizeTooLarge || code == kafka.RecordListTooLarge:
		return fmt.Errorf("%w: %w", ingest.ErrBatchTooLarge, code)
	case message != "":
		return fmt.Errorf("%w: %s", code, message)
	}
	return code
}
