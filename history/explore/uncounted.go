package explore

import (
	"context"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// UncountedFilter selects sums of events that rules did not count. Its zero value selects all of the live stream; of each member an empty value
// selects everything.
type UncountedFilter struct {
	Stream       string       `json:"stream,omitempty"` // empty: the live one; replay/NAME
	Rule         string       `json:"rule,omitempty"`
	Reason       string       `json:"reason,omitempty"` // of UncountedReasons; late sums have but one
	Since, Until traffic.Time // minutes not before, and before
}

// UncountedReasons are what UncountedFilter.Reason may be.
func UncountedReasons() []string {
	var names []string
	for _, r := range []detectors.Uncounted{
		detectors.UncountedLate, detectors.UncountedOutOfOrder, detectors.UncountedMissingField, detectors.UncountedMissingValue,
		detectors.UncountedBudget,
	} {
		names = append(names, r.String())
	}
	return names
}

// LateSums is a page of sums of late events.
type LateSums struct {
	Sums  []history.LateSum `json:"sums"`
	Total Total             `json:"total"`
	Next  string            `json:"next,omitempty"`
}

// UncountedSums is a page of sums of events that were not counted.
type UncountedSums struct {
	Sums  []history.UncountedSum `json:"sums"`
	Total Total                  `json:"total"`
	Next  string                 `json:"next,omitempty"`
}

// Late lists how many events came too late to count, the newest minute first. The filter's reason is not looked at.
func (x *Explorer) Late(ctx context.Context, f UncountedFilter, p Page) (found LateSums, err error) {
	limit, place, err := x.uncounted(ctx, &f, &p)
	if err != nil {
		return found, err
	}
	q := history.LateQuery{Stream: f.Stream, Rule: f.Rule, Since: f.Since, Until: f.Until, After: place, Limit: limit + 1}
	if found.Sums, err = x.store.Late(ctx, q); err != nil {
		return found, err
	}
	found.Sums, found.Next = sumsPage(found.Sums, limit, (*history.LateSum).Place)
	if place == nil && found.Next == "" {
		found.Total = newTotal(int64(len(found.Sums)))
		return found, nil
	}
	n, err := x.store.CountLate(ctx, q)
	found.Total = newTotal(n)
	return found, err
}

// Uncounted lists how many events rules did not count, and why, the newest minute first.
func (x *Explorer) Uncounted(ctx context.Context, f UncountedFilter, p Page) (found UncountedSums, err error) {
	if err := oneOf("reason", f.Reason, UncountedReasons()...); err != nil {
		return found, err
	}
	limit, place, err := x.uncounted(ctx, &f, &p)
	if err != nil {
		return found, err
	}
	q := history.UncountedQuery{Stream: f.Stream, Rule: f.Rule, Reason: f.Reason, Since: f.Since, Until: f.Until, After: place, Limit: limit + 1}
	if found.Sums, err = x.store.Uncounted(ctx, q); err != nil {
		return found, err
	}
	found.Sums, found.Next = sumsPage(found.Sums, limit, (*history.UncountedSum).Place)
	if place == nil && found.Next == "" {
		found.Total = newTotal(int64(len(found.Sums)))
		return found, nil
	}
	n, err := x.store.CountUncounted(ctx, q)
	found.Total = newTotal(n)
	return found, err
}

// uncounted checks a filter, and gives what of the list is asked for.
func (x *Explorer) uncounted(ctx context.Context, f *UncountedFilter, p *Page) (limit int, place *history.Place, err error) {
	if limit, place, err = p.begin(); err != nil {
		return 0, nil, err
	}
	which := Filter{Stream: f.Stream, Rule: f.Rule, Since: f.Since, Until: f.Until}
	_, err = x.check(ctx, &which)
	f.Stream = which.Stream
	return limit, place, err
}

// sumsPage cuts a list that was read with one row more than limit.
func sumsPage[T any](all []T, limit int, place func(*T) *history.Place) (page []T, next string) {
	if len(all) <= limit {
		return all, ""
	}
	last := place(&all[limit-1])
	return all[:limit], encodeCursor(int64(last.At), last.ID)
}
