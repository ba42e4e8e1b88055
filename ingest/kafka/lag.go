package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/retry"
)

// Lag returns, for each partition of topic, how many offsets lie between group's commit and the end of the log. Without
// a commit that is the whole log.
func (k *Client) Lag(ctx context.Context, group, topic string) (map[int]int64, error) {
	n, err := k.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	partitions := numbers(n)
	// The commits first: what is appended in between makes the lag larger than it was, never smaller.
	commits, err := k.FetchCommits(ctx, group, topic, partitions)
	if err != nil {
		return nil, err
	}
	bounds, err := k.bounds(ctx, topic, partitions)
	if err != nil {
		return nil, err
	}
	lag := make(map[int]int64, n)
	for p, b := range bounds {
		from := b.Start
		if commit, ok := commits[p]; ok {
			from = max(from, commit.Offset)
		}
		lag[p] = max(0, b.End-from)
	}
	return lag, nil
}

// AwaitCaughtUp waits until group has committed everything that topic holds. It is for a topic that nobody writes to any
// more, such as a replay's, and for a group that runs a Consumer: what a Consumer has committed is applied.
func (k *Client) AwaitCaughtUp(ctx context.Context, group, topic string) error {
	wait := retry.NewBackoff(50*time.Millisecond, 500*time.Millisecond)
	for {
		lag, err := k.Lag(ctx, group, topic)
		if err != nil {
			return fmt.Errorf("waiting for group %s: %w", group, err)
		}
		left := int64(0)
		for _, n := range lag {
			left += n
		}
		if left == 0 {
			return nil
		}
		if err := wait.Wait(ctx); err != nil {
			return fmt.Errorf("group %s still has %d records of topic %s to apply: %w", group, left, topic, err)
		}
	}
}
