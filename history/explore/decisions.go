package explore

import (
	"context"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/traffic"
)

// DecisionFilter selects decisions about blocks. Its zero value selects all of the live stream; of each member an empty value selects
// everything.
type DecisionFilter struct {
	Stream       string           `json:"stream,omitempty"` // empty: the live one; replay/NAME, which has none
	Rule         string           `json:"rule,omitempty"`
	Source       string           `json:"source,omitempty"` // in any spelling that history.ParseSource reads
	Action       blocklist.Action `json:"action,omitempty"`
	Since, Until traffic.Time     // decided not before, and before
}

// Decisions is a page of decisions about blocks.
type Decisions struct {
	Decisions []history.RecordedDecision `json:"decisions"`
	Total     Total                      `json:"total"`
	Next      string                     `json:"next,omitempty"`
}

// DecisionActions are what DecisionFilter.Action may be.
func DecisionActions() []string {
	return []string{string(blocklist.ActionWritten), string(blocklist.ActionExtended), string(blocklist.ActionWithheld), string(blocklist.ActionReleased)}
}

// Decisions lists what was decided about blocks, newest first.
func (x *Explorer) Decisions(ctx context.Context, f DecisionFilter, p Page) (Decisions, error) {
	limit, place, err := p.begin()
	if err == nil {
		err = oneOf("action", string(f.Action), DecisionActions()...)
	}
	if err != nil {
		return Decisions{}, err
	}
	which := Filter{Stream: f.Stream, Rule: f.Rule, Source: f.Source, Since: f.Since, Until: f.Until}
	source, err := x.check(ctx, &which)
	if err != nil {
		return Decisions{}, err
	}
	q := history.DecisionQuery{
		Stream: which.Stream, Rule: f.Rule, Source: source, Action: f.Action, Since: f.Since, Until: f.Until, After: place, Limit: limit + 1,
	}
	all, err := x.store.Decisions(ctx, q)
	if err != nil {
		return Decisions{}, err
	}
	found := Decisions{Decisions: all}
	if len(all) > limit {
		last := &all[limit-1]
		found.Decisions, found.Next = all[:limit], encodeCursor(int64(last.At), last.ID)
	}
	if place == nil && found.Next == "" {
		found.Total = newTotal(int64(len(all)))
		return found, nil
	}
	counted, err := x.store.CountDecisions(ctx, q)
	found.Total = newTotal(counted)
	return found, err
}

// Streams lists the streams that history has: the live one, and those of replays.
func (x *Explorer) Streams(ctx context.Context) ([]streams.Stream, error) {
	return x.store.Streams.List(ctx)
}
