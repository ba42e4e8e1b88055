package explore

import (
	"context"

	"github.com/weirhq/weir/history"
)

// Hits is a page of episodes: a row for each block that one may lead to, as in hits_v.
type Hits struct {
	Hits  []history.RecordedHit `json:"hits"`
	Total Total                 `json:"total"`
	// cursor of the next page; empty: this is the last one
	Next string `json:"next,omitempty" mask:"cursor"`
	// LeftOut is in no row, and not in Total.
	LeftOut LeftOut `json:"left_out"`
}

// Hits lists episodes, those with the newest last over event first.
func (x *Explorer) Hits(ctx context.Context, f Filter, p Page) (Hits, error) {
	limit, place, err := p.begin()
	if err != nil {
		return Hits{}, err
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return Hits{}, err
	}
	q.Limit, q.After, q.Merged = limit+1, place, f.Merged
	rows, err := x.store.Hits(ctx, q)
	if err != nil {
		return Hits{}, err
	}
	found := Hits{Hits: rows}
	if found.LeftOut, err = x.leftOut(ctx, &q); err != nil {
		return Hits{}, err
	}
	if len(rows) > limit {
		last := &rows[limit-1]
		found.Hits, found.Next = rows[:limit], encodeCursor(int64(last.Last), last.ID)
	}
	if place == nil && found.Next == "" {
		found.Total = newTotal(int64(len(rows)))
		return found, nil
	}
	counted, err := x.store.CountHitsTo(ctx, q, countCap)
	found.Total = newTotal(counted)
	return found, err
}
