package consume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// DeadLetterOptions says where dead letters go.
type DeadLetterOptions struct {
	Appender   ingest.Appender       // of the dead-letter topic; required
	Partitions int                   // of that topic; default 1
	Reasons    map[string][]string   // by stage, those that its letters have: their counts begin at 0
	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: counted but not published
}

// deadLetterLog implements DeadLetters over a topic.
type deadLetterLog struct {
	appender   ingest.Appender
	partitions int
	log        *slog.Logger
	letters    *prometheus.CounterVec
	trouble    retry.Trouble
}

var _ ingest.DeadLetters = (*deadLetterLog)(nil)

// NewDeadLetters writes dead letters as JSON (traffic.DeadLetter), one record each, and counts them by stage and reason.
// Put tries until Kafka has acknowledged or ctx is done, so a letter may be written twice, and is never lost while the
// caller keeps it.
func NewDeadLetters(opts DeadLetterOptions) (ingest.DeadLetters, error) {
	letters := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "weir", Name: "dead_letters_total", Help: "Records put to the dead-letter topic.",
	}, []string{"stage", "reason"})
	for stage, reasons := range opts.Reasons {
		for _, reason := range reasons {
			letters.WithLabelValues(stage, reason)
		}
	}
	var err error
	d := &deadLetterLog{
		appender: opts.Appender, partitions: max(1, opts.Partitions), log: opts.Logger,
		letters: ingest.Published(opts.Registerer, letters, &err),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d, err
}

const (
	// deadLetterDetail bounds the explanation of a letter: a parser's message may quote what it could not read.
	deadLetterDetail = 4 << 10
	// deadLetterBatchBytes bounds the JSON of one append to a partition, far below what the topic takes.
	deadLetterBatchBytes = 4 << 20
)

// Put implements DeadLetters.
func (d *deadLetterLog) Put(ctx context.Context, letters []traffic.DeadLetter) error {
	byPartition := make(map[int][][]byte)
	for i := range letters {
		value, err := encodeDeadLetter(letters[i])
		if err != nil {
			return err
		}
		// Letters of one source partition stay together, in order.
		p := max(0, letters[i].Partition) % d.partitions
		byPartition[p] = append(byPartition[p], value)
	}
	for len(byPartition) > 0 {
		if err := d.append(ctx, takeBatches(byPartition)); err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
	}
	for i := range letters {
		d.letters.WithLabelValues(letters[i].Stage, letters[i].Reason).Inc()
	}
	return nil
}

func encodeDeadLetter(letter traffic.DeadLetter) ([]byte, error) {
	if len(letter.Detail) > deadLetterDetail {
		letter.Detail = strings.ToValidUTF8(letter.Detail[:deadLetterDetail], "") + "…"
	}
	if len(letter.Value) > traffic.DeadLetterBytes {
		letter.Value = letter.Value[:traffic.DeadLetterBytes]
	}
	value, err := json.Marshal(letter)
	if err != nil {
		return nil, fmt.Errorf("encoding a dead letter of stage %s: %w", letter.Stage, err)
	}
	return value, nil
}

// takeBatches takes a batch of each partition out of byPartition.
func takeBatches(byPartition map[int][][]byte) []ingest.Batch {
	var batches []ingest.Batch
	for p, values := range byPartition {
		n, size := 0, 0
		for n < len(values) && (n == 0 || size+len(values[n]) <= deadLetterBatchBytes) {
			size += len(values[n])
			n++
		}
		batches = append(batches, ingest.Batch{Partition: p, Values: values[:n]})
		if byPartition[p] = values[n:]; n == len(values) {
			delete(byPartition, p)
		}
	}
	return batches
}

// append tries until everything is acknowledged, halving batches that the topic refuses for their size.
func (d *deadLetterLog) append(ctx context.Context, batches []ingest.Batch) error {
	wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
	for {
		err := d.appender.Append(ctx, batches)
		if err == nil {
			d.trouble.Over(d.log, "dead letters are written again")
			return nil
		}
		var partly *ingest.AppendError
		if errors.As(err, &partly) {
			batches = slices.DeleteFunc(batches, func(b ingest.Batch) bool { return partly.Failed[b.Partition] == nil })
		}
		if errors.Is(err, ingest.ErrBatchTooLarge) {
			return d.appendHalves(ctx, batches, err)
		}
		d.trouble.Failed(d.log, "cannot write dead letters, trying again", err)
		if wait.Wait(ctx) != nil {
			return err
		}
	}
}

func (d *deadLetterLog) appendHalves(ctx context.Context, batches []ingest.Batch, refused error) error {
	for _, b := range batches {
		if len(b.Values) == 1 && len(batches) == 1 {
			return ingest.Advise(fmt.Errorf("one letter of %d bytes: %w", len(b.Values[0]), refused), "raise max.message.bytes of the dead-letter topic")
		}
		half := (len(b.Values) + 1) / 2
		for _, values := range [][][]byte{b.Values[:half], b.Values[half:]} {
			if len(values) == 0 {
				continue
			}
			if err := d.append(ctx, []ingest.Batch{{Partition: b.Partition, Values: values}}); err != nil {
				return err
			}
		}
	}
	return nil
}
