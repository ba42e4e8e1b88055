package explore

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
)

// LeftOut is what history has left out of what was asked for, because a rule had more in a minute than it keeps
// (history.rows_per_minute, history.samples_per_minute). Whose episodes they were is not known: of a source, they are those of its rules.
type LeftOut struct {
	Rows           int64 `json:"rows"`            // an episode has one, or more where it may lead to several blocks; those joined to others are not among them
	Running        int64 `json:"running"`         // of those, that have not ended
	Events         int64 `json:"events"`          // of those that have ended
	Peak           int64 `json:"peak"`            // the greatest of those that have ended
	WithoutSamples int64 `json:"without_samples"` // rows that are there, without their samples
}

// String says it in a sentence; it is empty where nothing was left out.
func (l LeftOut) String() string {
	text := ""
	if l.Rows > 0 {
		text = fmt.Sprintf("%d more were left out by history.rows_per_minute, with %d events and a peak of %d", l.Rows, l.Events, l.Peak)
		if l.Running > 0 {
			text += fmt.Sprintf(" in those that have ended; %d run", l.Running)
		}
	}
	if l.WithoutSamples > 0 {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("the samples of %d were left out by history.samples_per_minute", l.WithoutSamples)
	}
	return text
}

// OfAnyone says it to who has asked for one source, or for some: of what was left out it is not known whose it was.
func (l LeftOut) OfAnyone() string {
	if text := l.String(); text != "" {
		return "of all sources, " + text + "; some may be of those asked for"
	}
	return ""
}

// leftOut sums up what was left out of what q selects, by the minutes in which the episodes began.
func (x *Explorer) leftOut(ctx context.Context, q *history.HitQuery) (l LeftOut, err error) {
	w := new(postgres.Where)
	w.Add("stream = ?", q.Stream)
	kind := q.Kind
	if kind == "" {
		kind = detectors.KindHit
	}
	w.Add("kind = ?", string(kind))
	if q.Rule != "" {
		w.Add("rule = ?", q.Rule)
	}
	if q.Rules != nil {
		w.Add("rule = ANY (?)", q.Rules)
	}
	if q.Since != 0 {
		w.Add("minute >= date_trunc('minute', ?::timestamptz)", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("minute < ?", postgres.Timestamp(q.Until))
	}
	err = x.store.QueryRow(ctx, `SELECT coalesce(sum(rows - merged), 0)::bigint, coalesce(sum(rows - merged - ended), 0)::bigint, coalesce(sum(events), 0)::bigint,
		coalesce(max(peak), 0)::bigint, coalesce(sum(without_samples), 0)::bigint FROM hits_left_out`+w.String(), w.Args...).
		Scan(&l.Rows, &l.Running, &l.Events, &l.Peak, &l.WithoutSamples)
	if err != nil {
		return LeftOut{}, x.store.Fail("summing up what was left out", err)
	}
	return l, nil
}
