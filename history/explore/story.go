package explore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Story is all that history knows about one hit.
type Story struct {
	ID    string     `json:"id" mask:"-"` // of the hit
	Rule  string     `json:"rule" mask:"name"`
	Owner string     `json:"owner,omitempty" mask:"name"` // of the rule, now
	Mode  rules.Mode `json:"mode,omitempty"`              // of the rule, now; empty: it was removed
	// FellBack says why the rule's canary ended in shadow by itself; empty: it did not.
	FellBack string `json:"fell_back,omitempty" mask:"line"`
	// Subject is who a block of the hit holds, as blocks keep it; empty: nobody can be, or nothing comes of hits of this kind.
	Subject traffic.Subject      `json:"subject"`
	Hit     *history.RecordedHit `json:"hit"`  // nil: RECORD has not stored it yet, or it is over for longer than history is kept
	Rows    []RowOf              `json:"rows"` // of the same episode, one for each block that it may lead to; Hit's among them
	// Decisions are those about the hit, and later releases of its source: by then the block may have been another episode's. Oldest first.
	Decisions []history.RecordedDecision `json:"decisions"`
	Acts      []audit.Numbered           `json:"acts"` // on blocks of this source and rule since then, newest first
	// Order is who ordered the block, and why, where no hit led to it; nil: a rule's hit did, or it ended longer ago
	// than history is kept.
	Order *orders.Order `json:"order,omitempty"`
	// Refused is what gates refused by the hit's block, and by those of the other rows.
	Refused history.RefusedTotal `json:"refused"`
}

// RowOf names another row of an episode.
type RowOf struct {
	ID           string          `json:"id" mask:"-"`
	BlockSubject traffic.Subject `json:"block_subject"`
}

const (
	leastID = 8  // digits of an id that are worth a look
	wholeID = 32 // digits of a whole one
)

// AmbiguousError says that several hits have an id that begins as was asked.
type AmbiguousError struct {
	ID  string
	IDs []string // of the hits, a few
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("several hits have an id that begins with %s; give more of it: %s", e.ID, strings.Join(e.IDs, ", "))
}

// ParseID reads the id of a hit, or the beginning of one, such as the block id that a client was told.
func ParseID(text string) (string, error) {
	id := strings.ToLower(strings.TrimSpace(text))
	if len(id) < leastID || len(id) > wholeID || strings.Trim(id, "0123456789abcdef") != "" {
		return "", &BadFilterError{Field: "id", Got: text, Allowed: fmt.Sprintf("%d to %d hex digits, such as the 16 of X-Weir-Block", leastID, wholeID)}
	}
	return id, nil
}

// Story tells all about the hit whose id, or the beginning of it, is given. nil: history has neither the hit nor a decision about it.
func (x *Explorer) Story(ctx context.Context, id string) (*Story, error) {
	id, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	st, err := x.recorded(ctx, id)
	if err != nil || st == nil {
		return nil, err
	}
	return st, x.Complete(ctx, st)
}

// Complete adds to a story, of which ID, Rule and Subject are known, what history has beside the hit: the rule's owner and mode, decisions, acts.
func (x *Explorer) Complete(ctx context.Context, st *Story) error {
	all, err := knownRules(ctx, x.store)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(k known) bool { return k.rule == st.Rule }); i >= 0 {
		st.Owner, st.Mode, st.FellBack = all[i].owner, all[i].mode, all[i].fell
	}
	if st.Hit != nil && st.Hit.Stream != history.Live {
		return nil // a replay blocks nobody
	}
	if err := byHand(ctx, x, st); err != nil {
		return err
	}
	if err := x.decided(ctx, st); err != nil {
		return err
	}
	if st.Refused, err = x.store.RefusedIn(ctx, history.RefusalQuery{Stream: history.Live, Rule: st.Rule,
		Blocks: st.blocks()}); err != nil {
		return err
	}
	return x.acted(ctx, st)
}

// blocks are what clients are told who are refused by blocks of the episode: the first digits of its hits.
func (st *Story) blocks() []string {
	const told = 16
	all := []string{st.ID[:min(told, len(st.ID))]}
	for i := range st.Rows {
		all = append(all, st.Rows[i].ID[:min(told, len(st.Rows[i].ID))])
	}
	return all
}

// recorded finds the hit; nil where there is none.
func (x *Explorer) recorded(ctx context.Context, id string) (*Story, error) {
	const most = 20
	hits, err := x.store.HitsByID(ctx, id, most)
	if err != nil {
		return nil, err
	}
	if len(hits) == 0 {
		if st, err := ordered(ctx, x, id); err != nil || st != nil {
			return st, err
		}
		return x.onlyDecided(ctx, id)
	}
	var ids []string
	for i := range hits {
		if !slices.Contains(ids, hits[i].ID) {
			ids = append(ids, hits[i].ID)
		}
	}
	if len(ids) > 1 {
		return nil, &AmbiguousError{ID: id, IDs: ids}
	}
	h := &hits[0] // the live stream's, if it has it
	st := &Story{ID: h.ID, Rule: h.Rule, Hit: h, Rows: []RowOf{}, Decisions: []history.RecordedDecision{}, Acts: []audit.Numbered{}}
	if h.Kind == detectors.KindHit {
		st.Subject = h.BlockSubject.Stored()
	}
	rows, err := x.store.RowsOfEpisode(ctx, h)
	for i := range rows {
		st.Rows = append(st.Rows, RowOf{rows[i].ID, rows[i].BlockSubject})
	}
	return st, err
}

// ordered finds the order of a block; nil where there is none.
func ordered(ctx context.Context, x *Explorer, id string) (*Story, error) {
	const most = 20
	found, err := x.store.Orders.Find(ctx, id, most)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) > 1 {
		several := &AmbiguousError{ID: id}
		for i := range found {
			several.IDs = append(several.IDs, found[i].ID)
		}
		return nil, several
	}
	o := &found[0]
	return &Story{ID: o.ID, Rule: o.Rule, Subject: o.Subject, Order: o, Rows: []RowOf{},
		Decisions: []history.RecordedDecision{}, Acts: []audit.Numbered{}}, nil
}

// byHand adds to the story of a block that somebody ordered what the order says.
func byHand(ctx context.Context, x *Explorer, st *Story) error {
	if !rules.IsByHand(st.Rule) {
		return nil
	}
	st.Mode = rules.ModeBlock // as long as there is an order
	if st.Order != nil {
		return nil
	}
	found, err := x.store.Orders.Find(ctx, st.ID, 1)
	if err == nil && len(found) == 1 {
		st.Order = &found[0]
	}
	return err
}

// onlyDecided finds a decision about a hit that history does not have.
func (x *Explorer) onlyDecided(ctx context.Context, id string) (*Story, error) {
	decided, err := x.store.DecisionsByHit(ctx, id, 1)
	if err != nil || len(decided) == 0 {
		return nil, err
	}
	d := &decided[0]
	return &Story{ID: d.Hit, Rule: d.Rule, Subject: d.Subject, Rows: []RowOf{}, Decisions: []history.RecordedDecision{}, Acts: []audit.Numbered{}}, nil
}

// decided gathers the decisions about the hit, and the later releases of its source.
func (x *Explorer) decided(ctx context.Context, st *Story) error {
	all, err := x.store.Decisions(ctx, history.DecisionQuery{Stream: history.Live, Hit: st.ID})
	if err != nil {
		return err
	}
	if len(all) > 0 {
		st.Subject = all[len(all)-1].Subject
	}
	if source := history.SourceOf(st.Subject); st.Subject != "" {
		since := st.began()
		released, err := x.store.Decisions(ctx, history.DecisionQuery{
			Stream: history.Live, Rule: st.Rule, Source: &source, Action: blocklist.ActionReleased, Since: since,
		})
		if err != nil {
			return err
		}
		for _, d := range released {
			if d.Subject.Stored() == st.Subject.Stored() && d.Hit != st.ID {
				all = append(all, d)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b history.RecordedDecision) int { return cmp.Compare(a.At, b.At) })
	st.Decisions = append(st.Decisions, all...)
	return nil
}

// began is when what the story is of began; 0: it is not known.
func (st *Story) began() traffic.Time {
	switch {
	case st.Hit != nil:
		return st.Hit.First
	case st.Order != nil:
		return st.Order.Since
	}
	return 0
}

func (x *Explorer) acted(ctx context.Context, st *Story) error {
	if st.Subject == "" {
		return nil // nobody is blocked: there is nothing to act on
	}
	source, f := history.SourceOf(st.Subject), Filter{Rule: st.Rule, Since: st.began()}
	acts, err := x.actsOn(ctx, &source, &f)
	st.Acts = acts
	return err
}
