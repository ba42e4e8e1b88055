package exactness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Gap is a part of the hits topic that history says it has never read: all that a partition held from an offset on
// when it lost its end.
type Gap struct {
	Partition int32
	From      int64
}

// Gaps reads what history says it has never read of the hits topic, since that lost its end.
func (s *Stream) Gaps(ctx context.Context) ([]Gap, error) {
	var all []Gap
	err := s.Query(ctx, `SELECT substring(reason FROM ', partition ([0-9]+): ')::int,
			substring(reason FROM 'it was read up to offset ([0-9]+),')::bigint
		FROM {ns}.losses_v WHERE stream = 'live'
			AND reason LIKE 'stage record, topic {ns}.hits, partition %: the log lost its end or was made anew: %'`,
		func(rows pgx.Rows) error {
			var g Gap
			err := rows.Scan(&g.Partition, &g.From)
			all = append(all, g)
			return err
		})
	return all, err
}

// HitRecord is a record of the hits topic that tells of an episode.
type HitRecord struct {
	Partition int32
	Offset    int64
	Hit       Hit
}

// ReadHitRecord reads a record of the hits topic; ok is false for one that tells of something else.
func ReadHitRecord(r *kgo.Record) (h HitRecord, ok bool, err error) {
	var value struct {
		Kind    string    `json:"kind"`
		ID      string    `json:"id"`
		Rule    string    `json:"rule"`
		Lineage int       `json:"lineage"`
		Subject string    `json:"subject"`
		Phase   string    `json:"phase"`
		First   time.Time `json:"first"`
		Last    time.Time `json:"last"`
		Count   int64     `json:"count"`
		AtLeast bool      `json:"at_least"`
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(r.Value, &kind); err != nil {
		return h, false, fmt.Errorf("record %d of partition %d of hits: %w", r.Offset, r.Partition, err)
	}
	if !slices.Contains([]string{"hit", "near", "candidate"}, kind.Kind) {
		return h, false, nil
	}
	if err := json.Unmarshal(r.Value, &value); err != nil {
		return h, false, fmt.Errorf("record %d of partition %d of hits: %w", r.Offset, r.Partition, err)
	}
	source := sourceName(value.Rule, value.Lineage, value.Subject)
	if value.Kind != "hit" {
		source += " " + value.Kind
	}
	return HitRecord{Partition: r.Partition, Offset: r.Offset, Hit: Hit{
		ID: value.ID, Source: source, Closed: value.Phase == "closed", First: value.First, Last: value.Last,
		Events: value.Count, AtLeast: value.AtLeast, Merged: value.Phase == "merged",
	}}, true, nil
}

// Complete gives what history would say if it had read, too, those of the records that a topic has lost which lie in
// its gaps. To judge that forgives what the gaps name, and nothing else: an episode whose records lay elsewhere stays
// lost, and what the gaps held must be right. named counts the events that history lacks for them, one at least of each
// episode that they change.
func Complete(history []Hit, lost []HitRecord, gaps []Gap) (all []Hit, named int) {
	all = slices.Clone(history)
	at := map[string]int{}
	for i := range all {
		at[all[i].ID] = i
	}
	for i := range lost {
		r := &lost[i]
		if !slices.ContainsFunc(gaps, func(g Gap) bool { return g.Partition == r.Partition && g.From <= r.Offset }) {
			continue
		}
		if n, ok := at[r.Hit.ID]; ok {
			all[n].join(&r.Hit)
			continue
		}
		at[r.Hit.ID] = len(all)
		all = append(all, r.Hit)
	}
	for i, h := range all {
		switch {
		case i >= len(history):
			named += int(max(1, h.Events))
		case h != history[i]:
			named += int(max(1, h.Events-history[i].Events))
		}
	}
	return all, named
}

// join takes in what another record says of the episode. Counts only grow, first only falls, and phases only go forward
// (docs/history.md).
func (h *Hit) join(other *Hit) {
	h.Merged, h.AtLeast = h.Merged || other.Merged, h.AtLeast || other.AtLeast
	h.Closed = (h.Closed || other.Closed) && !h.Merged
	h.Events = max(h.Events, other.Events)
	if other.First.Before(h.First) {
		h.First = other.First
	}
	if other.Last.After(h.Last) {
		h.Last = other.Last
	}
}
