// Package why says what is behind a block: all that history knows of a hit, and whether its source is held now, which Redis knows. The
// command line and the API tell the same.
package why

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// History is what a Teller asks of history.
type History interface {
	Story(ctx context.Context, id string) (*explore.Story, error)
	Complete(ctx context.Context, st *explore.Story) error
	Hits(ctx context.Context, f explore.Filter, p explore.Page) (explore.Hits, error)
	Decisions(ctx context.Context, f explore.DecisionFilter, p explore.Page) (explore.Decisions, error)
	Streams(ctx context.Context) ([]streams.Stream, error)
}

var _ History = (*explore.Explorer)(nil)

// Blocks is what a Teller asks of Redis.
type Blocks interface {
	Get(ctx context.Context, subject traffic.Subject, rule string) (*blocklist.Block, *blocklist.Tombstone, error)
	Modes(ctx context.Context) ([]rules.ModeState, error)
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
	Unheld(subject traffic.Subject, b *blocklist.Block, mode *rules.ModeState, now traffic.Time) string
}

var _ Blocks = (*blocklist.Store)(nil)

// Question is what is asked about: one of its members.
type Question struct {
	ID     string // of a hit, or the beginning of it, see explore.ParseID
	Source string // in any spelling that history.ParseSource reads: told is its newest block, else its newest hit
}

// Answer is what is known about one hit.
type Answer struct {
	explore.Story
	BlockID string  `json:"block_id" mask:"-"` // what clients are told of the hit
	Also    []Other `json:"also,omitempty"`
	// Block is the one that stands for the source by the rule; Holds says whether gates refuse for it, null: not known.
	Block *blocklist.Block `json:"block"`
	Holds *bool            `json:"holds"`
	// Share is the part of the rule's block keys that may be held, while it is in canary: 10%.
	Share string `json:"canary_share,omitempty" mask:"-"`
	// Back is what the block holds back of its source's requests, while one stands and its rule's mode is known.
	Back    string `json:"holds_back,omitempty" mask:"-"`
	Unheld  string `json:"unheld,omitempty" mask:"line"`  // why gates refuse nobody for it
	Unknown string `json:"unknown,omitempty" mask:"line"` // why it is not known
}

// Other is another block, or hit, of a source that was asked about: the newest of a rule.
type Other struct {
	Rule    string          `json:"rule" mask:"name"`
	Subject traffic.Subject `json:"subject"`
	ID      string          `json:"id" mask:"-"`
	At      traffic.Time    `json:"at"`
}

// NothingError says that there is nothing to tell of.
type NothingError struct {
	Looked string // what there is not, and where that was looked for
	Away   error  // why Redis could not be asked, where that might have told more
}

func (e *NothingError) Error() string {
	if e.Away != nil {
		return fmt.Sprintf("%s, and Redis could not be asked: %v", e.Looked, e.Away)
	}
	return e.Looked
}

func (e *NothingError) Unwrap() error { return e.Away }

// Teller answers. It is safe for concurrent use.
type Teller struct {
	History History
	Blocks  Blocks
	Away    error // why Redis cannot be asked; nil: it can
	Clock   func() traffic.Time
}

// Why tells what is behind a hit, or a source; *NothingError where there is nothing.
func (t *Teller) Why(ctx context.Context, q Question) (*Answer, error) {
	c := choice{id: q.ID}
	if q.ID == "" {
		if err := t.choose(ctx, &c, q.Source); err != nil {
			return nil, err
		}
	}
	found, err := t.History.Story(ctx, c.id)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if found, err = t.standing(ctx, c.id); err != nil {
			return nil, err
		}
	}
	a := &Answer{Story: *found, BlockID: gate.BlockID(found.ID)}
	if len(c.also) > 1 {
		a.Also = c.also[1:]
	}
	if a.Hit == nil || a.Hit.Stream == history.Live {
		t.holds(ctx, a)
	}
	return a, nil
}

// choice is the hit that is told of, and the others of its source, it the first.
type choice struct {
	id   string
	also []Other
}

// mostChosen is from how many of the newest decisions, or hits, of a source the one to tell of is chosen.
const mostChosen = 500

// choose finds the hit that the newest block of a source is about, or its newest hit.
func (t *Teller) choose(ctx context.Context, c *choice, source string) error {
	decided, err := t.History.Decisions(ctx, explore.DecisionFilter{Source: source}, explore.Page{Limit: mostChosen})
	if err != nil {
		return err
	}
	for i := range decided.Decisions {
		if d := &decided.Decisions[i]; d.Action != blocklist.ActionWithheld && d.Hit != "" {
			c.name(Other{Rule: d.Rule, Subject: d.Subject, ID: d.Hit, At: d.At})
		}
	}
	if c.id != "" {
		return nil
	}
	found, err := t.History.Hits(ctx, explore.Filter{Source: source}, explore.Page{Limit: mostChosen})
	if err != nil {
		return err
	}
	for i := range found.Hits {
		h := &found.Hits[i]
		c.name(Other{Rule: h.Rule, Subject: h.Subject, ID: h.ID, At: h.Last})
	}
	if c.id == "" {
		looked := "history has no block and no hit of " + source
		if text := found.LeftOut.OfAnyone(); text != "" {
			looked += " (" + text + ")"
		}
		return &NothingError{Looked: looked}
	}
	return nil
}

// name takes the first of a rule and source, and notes those that come after it.
func (c *choice) name(o Other) {
	if c.id == "" {
		c.id = o.ID
	}
	if !slices.ContainsFunc(c.also, func(other Other) bool { return other.Rule == o.Rule && other.Subject == o.Subject }) {
		c.also = append(c.also, o)
	}
}

// standing finds a block or a release in Redis whose hit is not in history: RECORD may be behind. If there is none, the error
// says what was looked at.
func (t *Teller) standing(ctx context.Context, id string) (*explore.Story, error) {
	all, err := t.History.Streams(ctx)
	if err != nil {
		return nil, err
	}
	looked := fmt.Sprintf("no hit of %s in history has an id that begins with %s", plural.Of(len(all), "stream"), id)
	away := t.Away
	var found blocklist.Listing
	if away == nil {
		found, away = t.Blocks.List(ctx, t.Clock(), blocklist.Filter{Hit: id, Tombstones: true})
	}
	if away != nil {
		return nil, &NothingError{Looked: looked, Away: away}
	}
	if len(found.Items) > 0 {
		item := &found.Items[0]
		return t.unrecorded(ctx, item.Hit(), item.Rule, item.Subject)
	}
	looked += ", nor has a block or a release in Redis"
	if found.Cut {
		looked += ", of those that were read: there are more"
	}
	return nil, &NothingError{Looked: looked}
}

// unrecorded is the story of a hit that RECORD has not stored.
func (t *Teller) unrecorded(ctx context.Context, id, rule string, of traffic.Subject) (*explore.Story, error) {
	st := &explore.Story{
		ID: id, Rule: rule, Subject: of, Rows: []explore.RowOf{}, Decisions: []history.RecordedDecision{}, Acts: []audit.Numbered{},
	}
	return st, t.History.Complete(ctx, st)
}

// holds finds out whether the source is held now.
func (t *Teller) holds(ctx context.Context, a *Answer) {
	holds := false
	if a.Subject == "" {
		a.Holds = &holds
		return
	}
	err := t.Away
	var modes []rules.ModeState
	if err == nil {
		a.Block, _, err = t.Blocks.Get(ctx, a.Subject, a.Rule)
	}
	if err == nil && (a.Block != nil || a.Mode == rules.ModeCanary) {
		modes, err = t.Blocks.Modes(ctx)
	}
	if err != nil {
		a.Unknown = err.Error()
		return
	}
	var mode *rules.ModeState
	if i := slices.IndexFunc(modes, func(m rules.ModeState) bool { return m.Rule == a.Rule }); i >= 0 {
		mode = &modes[i]
		if mode.Mode == rules.ModeCanary {
			a.Share = promotion.Share(mode.Share).String()
		}
	}
	if a.Block != nil {
		if mode != nil {
			a.Back = rules.Match(mode.Match).String()
		}
		a.Unheld = t.Blocks.Unheld(a.Subject, a.Block, mode, t.Clock())
		holds = a.Unheld == ""
	}
	a.Holds = &holds
}
