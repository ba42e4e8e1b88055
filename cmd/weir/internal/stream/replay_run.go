package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// run runs the stages, sends the events, and waits until all that they caused is recorded. The summary says what is
// known also when it fails.
func (p *replay) run(parent context.Context, c *config.Config) (Summary, error) {
	router, err := p.Installation.Router()
	if err != nil {
		return p.summary(parent, err), err
	}
	p.router = router
	detector, err := p.Detector()
	if err != nil {
		return p.summary(parent, err), err
	}
	recorder, err := p.RecordHits()
	if err != nil {
		return p.summary(parent, err), err
	}
	decode := p.often(p.reading.replayDecode(replayFormat(c).MaxEventBytes))
	p.reading.into(p.Kafka.Appender(p.Names.Requests), p.DeadLetters, p.RequestsPartitions, decode, true)

	ctx, over := context.WithCancel(parent)
	defer over()
	sent := make(chan error, 1)
	feed := service.Part{Name: "sending", Run: func(ctx context.Context) error {
		sent <- p.feed(ctx, detector)
		over() // done or failed: either way the stages may stop
		<-ctx.Done()
		return nil
	}}
	err = outcome(p.Log, sent, service.Serve(ctx, p.Log, service.StageTimeout,
		[]service.Part{feed, {Name: "watch", Run: p.watch}}, []service.Part{{Name: ingest.StageRoute, Run: router.Run}}, []service.Part{{Name: ingest.StageDetect, Run: detector.Run}}, []service.Part{{Name: ingest.StageRecord, Run: recorder.Run}}))
	return p.summary(parent, err), err
}

// outcome is the error of a replay whose parts have ended with err. Once everything is recorded, stages that are slow to end have nothing under
// way that could be missing.
func outcome(log *slog.Logger, sent <-chan error, err error) error {
	var sending error
	select {
	case sending = <-sent:
	default:
		return err // it names what is still sending
	}
	var stuck *service.StuckError
	switch {
	case sending == nil && errors.As(err, &stuck) && stuck.Unwrap() == nil:
		log.Warn("everything is recorded", "error", stuck)
		return nil
	case sending != nil && !(errors.Is(sending, context.Canceled) && err != nil):
		return errors.Join(sending, err)
	}
	return err
}

// often counts what decode reads, for the summary.
func (p *replay) often(decode archive.Decode) archive.Decode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		value, err := decode(line, r)
		if err == nil {
			p.frequent.add(r)
		}
		return value, err
	}
}

// feed sends the events and the end marks, and waits until they have had their effect.
func (p *replay) feed(ctx context.Context, d *detect.Detector) error {
	if err := p.reading.All(ctx); err != nil {
		return err
	}
	if err := p.endMarks(ctx); err != nil {
		return err
	}
	select {
	case <-d.Ended():
	case <-ctx.Done():
		return fmt.Errorf("stopped before all windows were closed: %w", ctx.Err())
	}
	return p.Kafka.AwaitCaughtUp(ctx, p.Group(ingest.StageRecord), p.Names.Hits)
}

// endMarks closes each partition of requests. A mark that is written twice does no harm, so it is simply tried again.
func (p *replay) endMarks(ctx context.Context) error {
	batches := make([]ingest.Batch, p.RequestsPartitions)
	for q := range batches {
		batches[q] = ingest.Batch{Partition: q, Values: [][]byte{format.EndMark()}}
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	to := p.Kafka.Appender(p.Names.Requests)
	return retry.Do(bounded, p.Log, "cannot write the end marks, trying again", func(ctx context.Context) error { return to.Append(ctx, batches) })
}

// watchEvery is how often a replay looks for a partition that stopped: nobody would accept its gap, so it would wait for
// ever.
const watchEvery = 2 * time.Second

func (p *replay) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		states, err := p.History.Partitions.PartitionStates(ctx, string(p.streamName))
		if err != nil {
			continue // the stages say so, and wait
		}
		for _, s := range states {
			if s.State != ingest.Running {
				return fmt.Errorf("partition %s/%d is %s: %s", s.Side, s.Partition, s.State, s.Reason)
			}
		}
	}
}

// deadCount counts dead letters on their way, whichever stage writes them, and keeps the first few explanations.
type deadCount struct {
	next ingest.DeadLetters

	mu      sync.Mutex
	reasons map[string]int64
	first   []string
	noTime  []byte // the first line that was refused because it has no time
}

var _ ingest.DeadLetters = (*deadCount)(nil)

// deadExamples is how many explanations a summary shows.
const deadExamples = 5

// Put passes letters on and counts those that were acknowledged.
func (d *deadCount) Put(ctx context.Context, letters []traffic.DeadLetter) error {
	if err := d.next.Put(ctx, letters); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range letters {
		d.reasons[letters[i].Reason]++
		d.keepTimeless(&letters[i])
		if len(d.first) < deadExamples {
			d.first = append(d.first, letters[i].Reason+": "+letters[i].Detail)
		}
	}
	return nil
}
