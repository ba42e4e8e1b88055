package explore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/traffic"
)

// What an Entry of a timeline is.
const (
	WhatEpisode  = "episode"
	WhatDecision = "decision"
	WhatAct      = "act"
)

// Entry is something that happened to a source.
type Entry struct {
	At       traffic.Time              `json:"at"`            // of an episode: its last over event
	What     string                    `json:"what" mask:"-"` // WhatEpisode, WhatDecision or WhatAct
	Hit      *history.RecordedHit      `json:"hit,omitempty"`
	Decision *history.RecordedDecision `json:"decision,omitempty"`
	Act      *audit.Numbered           `json:"act,omitempty"`

	key string // tells entries of one instant apart
}

// Timeline is a page of what happened to a source.
type Timeline struct {
	Entries []Entry `json:"entries"`
	Next    string  `json:"next,omitempty"`
}

// Timeline lists what happened to a source, newest first: episodes, decisions about blocks, and what people did to them. Of f, Rule, Kind, Since,
// Until and Stream count.
func (x *Explorer) Timeline(ctx context.Context, source string, f Filter, p Page) (Timeline, error) {
	limit, place, err := p.begin()
	if err != nil {
		return Timeline{}, err
	}
	f.Source, f.Field, f.State, f.Owner, f.Mode = source, "", "", "", ""
	if source == "" {
		return Timeline{}, &BadFilterError{Field: "source", Allowed: "an address, a prefix, field=value, a value of any field, or a canonical subject"}
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return Timeline{}, err
	}
	q.Limit = limit + 1
	decisions := history.DecisionQuery{Stream: f.Stream, Rule: f.Rule, Source: q.Source, Since: f.Since, Until: f.Until, Limit: limit + 1}
	if place != nil {
		// Of the instant of the cursor all entries are read again: their keys say which were shown.
		q.After = &history.Place{At: place.At, ID: lastKey}
		decisions.After = q.After
	}
	entries, err := x.happened(ctx, q, decisions, &f)
	if err != nil {
		return Timeline{}, err
	}
	order := func(a, b Entry) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.key, a.key)) }
	slices.SortFunc(entries, order)
	if place != nil {
		entries = slices.DeleteFunc(entries, func(e Entry) bool { return order(e, Entry{At: place.At, key: place.ID}) <= 0 })
	}
	found := Timeline{Entries: entries}
	if len(entries) > limit {
		last := &entries[limit-1]
		found.Entries, found.Next = entries[:limit], encodeCursor(int64(last.At), last.key)
	}
	return found, nil
}

// lastKey comes after every id.
const lastKey = "~"

func (x *Explorer) happened(ctx context.Context, q history.HitQuery, d history.DecisionQuery, f *Filter) ([]Entry, error) {
	hits, err := x.store.Hits(ctx, q)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(hits))
	for i := range hits {
		entries = append(entries, Entry{At: hits[i].Last, What: WhatEpisode, Hit: &hits[i], key: "e" + hits[i].ID})
	}
	if f.Stream != history.Live {
		return entries, nil // a replay blocks nobody
	}
	decided, err := x.store.Decisions(ctx, d)
	if err != nil {
		return nil, err
	}
	for i := range decided {
		entries = append(entries, Entry{At: decided[i].At, What: WhatDecision, Decision: &decided[i], key: "d" + decided[i].ID})
	}
	acts, err := x.actsOn(ctx, q.Source, f)
	if err != nil {
		return nil, err
	}
	for i := range acts {
		entries = append(entries, Entry{At: traffic.At(acts[i].At), What: WhatAct, Act: &acts[i], key: fmt.Sprintf("a%020d", acts[i].Seq)})
	}
	return entries, nil
}
