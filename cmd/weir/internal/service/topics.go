package service

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
)

// decisionLog is the blocks topic as ENFORCE sees it. A decision lies in the partition that its hit lay in.
type decisionLog struct {
	appender   ingest.Appender
	partitions int
}

var _ blocklist.DecisionLog = (*decisionLog)(nil)

// Append returns nil after Kafka has acknowledged all decisions.
func (l *decisionLog) Append(ctx context.Context, partition int, decisions []blocklist.Decision) error {
	b := ingest.Batch{Partition: partition % l.partitions}
	for i := range decisions {
		value, err := blocklist.EncodeDecision(&decisions[i])
		if err != nil {
			return err
		}
		b.Values = append(b.Values, value)
	}
	return l.appender.Append(ctx, []ingest.Batch{b})
}

// AppendRelease appends a release to the hits topic of the live stream, to the partition that the hits of its block are in:
// ENFORCE reads it after all hits that it answers.
func AppendRelease(ctx context.Context, k *kafka.Client, namespace string, release *detectors.Hit) error {
	topic := ingest.Live.Topics(namespace).Hits
	n, err := k.Partitions(ctx, topic)
	if err != nil {
		return fmt.Errorf("%w: run weir migrate", err)
	}
	value, err := detectors.EncodeHit(release)
	if err != nil {
		return err
	}
	return k.Appender(topic).Append(ctx, []ingest.Batch{{Partition: release.Partition(n), Values: [][]byte{value}}})
}
