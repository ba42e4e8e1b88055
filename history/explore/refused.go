package explore

import (
	"context"

	"github.com/weirhq/weir/history"
)

// RefusedSums is a page of sums of requests that gates refused.
type RefusedSums struct {
	Sums  []history.RefusedSum `json:"sums"`
	Total Total                `json:"total"`
	Next  string               `json:"next,omitempty"`
}

// Refused lists how many requests gates really refused, by rule, block and minute, the newest minute first. The filter's reason is not looked at.
func (x *Explorer) Refused(ctx context.Context, f UncountedFilter, p Page) (found RefusedSums, err error) {
	limit, place, err := x.uncounted(ctx, &f, &p)
	if err != nil {
		return found, err
	}
	q := history.RefusalQuery{Stream: f.Stream, Rule: f.Rule, Since: f.Since, Until: f.Until, After: place, Limit: limit + 1}
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
