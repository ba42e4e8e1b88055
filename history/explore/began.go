package explore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Began is how many episodes began within a step of time.
type Began struct {
	At       traffic.Time // the step's beginning
	Episodes int64
}

// Began counts the episodes that f selects by when they began, in steps of so long since 1970 (UTC), which are seconds, or hours, or days. Steps in which
// none began are left out; the order is of no meaning. An episode that began before f.Since counts in the step of that. Steps of hours and days
// are read from sums where these are; others are counted from the rows, each of the period.
func (x *Explorer) Began(ctx context.Context, f Filter, step time.Duration) ([]Began, error) {
	ask := grouped{by: byStep, step: step, since: f.Since, limit: math.MaxInt32, untold: true}
	switch {
	case step < time.Second || step%time.Second != 0:
		return nil, &BadFilterError{Field: "step", Got: step.String(), Allowed: "whole seconds"}
	case step%(24*time.Hour) == 0:
		ask.by = ByDay
	case step%time.Hour == 0:
		ask.by = ByHour
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return nil, err
	}
	ask.q = &q
	found, err := x.sumUp(ctx, &ask)
	if err != nil {
		return nil, err
	}
	began := map[traffic.Time]int64{}
	for _, r := range found.Rows {
		began[r.At-r.At%traffic.Time(step/time.Microsecond)] += r.Episodes
	}
	out := make([]Began, 0, len(began))
	for at, episodes := range began {
		out = append(out, Began{at, episodes})
	}
	return out, nil
}

// binned is the step in which a time lies.
func (a *grouped) binned(begun string) string {
	return fmt.Sprintf("date_bin(make_interval(secs => %d), %s, to_timestamp(0))", int64(a.step/time.Second), begun)
}
