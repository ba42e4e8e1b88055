package explore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// RefusedSums is a page of sums of requests that gates refused.
type RefusedSums struct {
	Sums  []history.RefusedSum `json:"sums"`
	Total Total                `json:"total"`
	Next  string               `json:"next,omitempty"`
}

// Refused lists how many requests gates really refused, by rule, block and minute, the newest minute first. The
// filter's reason is not looked at.
func (x *Explorer) Refused(ctx context.Context, f UncountedFilter, p Page) (found RefusedSums, err error) {
	limit, place, err := x.uncounted(ctx, &f, &p)
	if err != nil {
		return found, err
	}
	q := history.RefusalQuery{Stream: f.Stream, Rule: f.Rule, Since: f.Since, Until: f.Until, After: place,
		Limit: limit + 1}
	if found.Sums, err = x.store.Refused(ctx, q); err != nil {
		return found, err
	}
	found.Sums, found.Next = sumsPage(found.Sums, limit, (*history.RefusedSum).Place)
	if place == nil && found.Next == "" {
		found.Total = newTotal(int64(len(found.Sums)))
		return found, nil
	}
	n, err := x.store.CountRefused(ctx, q)
	found.Total = newTotal(n)
	return found, err
}

// refusedBy is how refused requests are summed up beside the episodes of a question.
func (a *grouped) refusedBy() history.RefusedBy {
	switch a.by {
	case ByHour:
		return history.RefusedBy{Step: time.Hour}
	case ByDay:
		return history.RefusedBy{Step: 24 * time.Hour}
	case BySource:
		return history.RefusedBy{Source: true}
	}
	return history.RefusedBy{Rule: true}
}

// lookForRefused leaves refused requests out of a question where there are none, as in shadow: then it costs what it
// did without them.
func (a *grouped) lookForRefused(ctx context.Context, tx pgx.Tx) (err error) {
	if a.refused == nil {
		return nil
	}
	var w postgres.Where
	some := false
	query := a.refused.AnyRefused(&w)
	if err = tx.QueryRow(ctx, query, w.Args...).Scan(&some); err == nil && !some {
		a.refused = nil
	}
	return err
}

// besides are sums of episodes, each with what gates refused of its group, and a row for each group that has only that.
// Its arguments are added to those of w.
func (a *grouped) besides(w *postgres.Where, sums string) string {
	return "gated AS (" + a.refused.RefusedSums(w, a.refusedBy()) + "), episodes AS (" + sums + `),
		sums AS (SELECT rule, subject, at, coalesce(episodes, 0) AS episodes, coalesce(sources, 0) AS sources,
				coalesce(events, 0) AS events, coalesce(refused, 0) AS refused, coalesce(gated, 0) AS gated,
					coalesce(peak, 0) AS peak,
				coalesce(first, gated_first) AS first, coalesce(last, gated_last) AS last, coalesce(several,
					false) AS several
			FROM episodes FULL JOIN gated USING (rule, subject, at))`
}

// addRefused adds what gates refused to sums that were made of sums of hours.
func (a *grouped) addRefused(ctx context.Context, tx pgx.Tx, groups map[groupID]*GroupRow) error {
	if a.refused == nil {
		return nil
	}
	var w postgres.Where
	rows, err := tx.Query(ctx, a.refused.RefusedSums(&w, a.refusedBy()), w.Args...)
	if err != nil {
		return err
	}
	parts, err := pgx.CollectRows(rows, history.ScanRefused)
	for i := range parts {
		p := &parts[i]
		id := groupID{rule: p.Rule, at: p.At}
		r := groups[id]
		if r == nil {
			r = &GroupRow{Rule: p.Rule, At: p.At, First: p.First, Last: p.Last}
			groups[id] = r
		}
		r.Refused = history.Figure(p.Events)
	}
	return err
}

// tellRefused says of rows how much gates refused, as far as that is known: where the log does not tell, none is not
// known to be none.
func tellRefused(ctx context.Context, store *history.Store, rows []GroupRow) error {
	told, err := store.Rules.TellsRefusals(ctx)
	for i := range rows {
		if r := &rows[i]; !told && r.Refused == 0 {
			r.Refused = history.UnknownFigure
		}
	}
	return err
}

// Requests are what came of requests by the time of the requests themselves, in steps.
type Requests struct {
	Steps []RequestStep // in no order; steps with nothing are left out
	// RefusedUntold: nothing is known of what gates refused, since the log does not tell.
	RefusedUntold bool
	// WouldUntold: what blocks would have refused is kept by rule and minute, and not by source.
	WouldUntold bool
}

// RequestStep is one step of Requests. No request is of both: a minute is of the mode in which it began.
type RequestStep struct {
	At          traffic.Time // the step's beginning
	Refused     int64        // by gates
	WouldRefuse int64        // by the rules' blocks, in minutes in which the rules refused nobody
}

// Requests sums up what gates refused, and what rules that refused nobody would have, in steps of so long since 1970
// (UTC), of whole minutes. Of f, the kind is not looked at.
func (x *Explorer) Requests(ctx context.Context, f Filter, step time.Duration) (Requests, error) {
	var out Requests
	if step < time.Minute || step%time.Minute != 0 {
		return out, &BadFilterError{Field: "step", Got: step.String(), Allowed: "whole minutes"}
	}
	h, err := x.hitQuery(ctx, &f)
	if err != nil {
		return out, err
	}
	q := refusalsOf(&h)
	refused, err := x.store.RefusedBy(ctx, *q, history.RefusedBy{Step: step})
	if err != nil {
		return out, err
	}
	steps := map[traffic.Time]RequestStep{}
	for i := range refused {
		steps[refused[i].At] = RequestStep{At: refused[i].At, Refused: refused[i].Events}
	}
	if out.WouldUntold = q.Source != nil || q.Field != "" || q.State != ""; !out.WouldUntold {
		would, err := x.store.WouldRefuse(ctx, *q, step)
		if err != nil {
			return out, err
		}
		for _, w := range would {
			steps[w.At] = RequestStep{At: w.At, Refused: steps[w.At].Refused, WouldRefuse: w.Events}
		}
	}
	if len(refused) == 0 {
		told, err := x.store.Rules.TellsRefusals(ctx)
		if err != nil {
			return out, err
		}
		out.RefusedUntold = !told
	}
	for _, s := range steps {
		out.Steps = append(out.Steps, s)
	}
	return out, nil
}

// refusalsOf selects what gates refused by blocks of the episodes that q selects, whenever these were.
func refusalsOf(q *history.HitQuery) *history.RefusalQuery {
	return &history.RefusalQuery{
		Stream: q.Stream, Rule: q.Rule, Rules: q.Rules, Source: q.Source, Field: q.Field, State: q.State,
		Since: q.Since, Until: q.Until,
	}
}
