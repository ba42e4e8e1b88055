package ingest

import (
	"context"
	"errors"

	"github.com/weirhq/weir/traffic"
)

// Tail reads the last records of partitions: those at the last n offsets of each log, in the order of partition and
// offset. There are fewer where a log is shorter or holds control records. When ctx ends before all are read, what was
// read comes with ctx's error. Nothing is committed.
func Tail(ctx context.Context, log Log, bounds map[int]Bounds, n int64) ([]traffic.Message, error) {
	next := make(map[int]int64, len(bounds))
	count := 0
	for p, b := range bounds {
		if b.End > b.Start {
			next[p] = max(b.Start, b.End-n)
		}
		count = max(count, p+1)
	}
	read := make([][]traffic.Message, count)
	var err error
	for len(next) > 0 && err == nil {
		err = tailOnce(ctx, log, bounds, next, read)
	}
	var all []traffic.Message
	for _, messages := range read {
		all = append(all, messages...)
	}
	return all, err
}

// tailOnce fetches once and takes what was read to its end out of next.
func tailOnce(ctx context.Context, log Log, bounds map[int]Bounds, next map[int]int64, read [][]traffic.Message) error {
	positions := make([]Position, 0, len(next))
	for p, offset := range next {
		positions = append(positions, Position{Partition: p, Offset: offset})
	}
	answers, err := log.Fetch(ctx, positions, DefaultFetchWait)
	if err != nil {
		return err
	}
	for _, f := range answers {
		if errors.Is(f.Err, ErrOutOfRange) {
			delete(next, f.Partition) // retention has passed over it since
			continue
		}
		if f.Err != nil {
			return f.Err
		}
		for _, m := range f.Messages {
			if m.Offset < bounds[f.Partition].End {
				read[f.Partition] = append(read[f.Partition], m)
			}
		}
		if next[f.Partition] = f.Next; f.Next >= bounds[f.Partition].End {
			delete(next, f.Partition)
		}
	}
	return ctx.Err()
}
