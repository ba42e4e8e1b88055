package service

import (
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
)

var _ consume.Positions = (*streams.Positions)(nil)

// RecordHits makes the half of RECORD that stores hits.
func (in *Installation) RecordHits() (*consume.Consumer, error) {
	sink, err := history.NewHitRecorder(in.History, in.Stream.Name, in.Names.Hits, in.DeadLetters, in.days(),
		in.registry)
	if err != nil {
		return nil, err
	}
	h := &in.Config.History
	if err := sink.Bound(history.Caps{Rows: h.RowsPerMinute, Samples: h.SamplesPerMinute,
		Partitions: in.HitsPartitions}, in.registry); err != nil {
		return nil, err
	}
	return in.consumer(ingest.StageRecord, in.Names.Hits, sink, nil, positions(in, ingest.StageRecord))
}

// recordDecisions makes the half of RECORD that stores block decisions.
func (in *Installation) recordDecisions() (*consume.Consumer, error) {
	sink, err := history.NewDecisionRecorder(in.History, in.Stream.Name, in.Names.Blocks, in.DeadLetters, in.days(),
		in.registry)
	if err != nil {
		return nil, err
	}
	return in.consumer(ingest.StageRecordBlocks, in.Names.Blocks, sink, nil, positions(in, ingest.StageRecordBlocks))
}

// positions are how far history has what a stage has read: of the live stream, which is kept for as long as to come
// back older than it was.
func positions(in *Installation, stage string) consume.Positions {
	if in.Stream.Name != history.Live {
		return nil
	}
	return in.History.Streams.PositionsOf(in.Stream.Name, stage)
}
