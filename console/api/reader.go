// Package api is what programs ask an installation over HTTP: rules, blocks, history and audit as JSON below /api/v1, and every act of
// console/acts. The routes are a table: handlers, the OpenAPI document and the authorisation of each route are made from it.
package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// UncountedPeriod is how far back the figures of a Rule go.
const UncountedPeriod = 24 * time.Hour

// WronglyPeriod is how far back the false positives of a Rule go.
const WronglyPeriod = 7 * 24 * time.Hour

// Rule is a stored rule with what it did not count in the live stream during UncountedPeriod.
type Rule struct {
	rulestore.Rule
	Uncounted history.Figures `json:"uncounted_24h"`
	// FalsePositives are those of WronglyPeriod; nil: not asked for, as in lists.
	FalsePositives *history.FalsePositives `json:"false_positives_7d,omitempty"`
}

// RuleStore is what a Reader asks about rules.
type RuleStore interface {
	List(ctx context.Context) ([]rulestore.Rule, error)
	Find(ctx context.Context, id string) (rulestore.Rule, error)
	Names(ctx context.Context, stream string) ([]string, error)
	// AllowLists returns all allow lists that have not been removed, ascending by id.
	AllowLists(ctx context.Context) ([]rulestore.AllowList, error)
	// AllowList returns a version of an allow list, 0 for the newest one, and its versions; postgres.ErrNotFound is
	// wrapped for one that there is not.
	AllowList(ctx context.Context, id string, version int) (rulestore.AllowList, []rulestore.AllowVersion, error)
}

var _ RuleStore = (*rulestore.Store)(nil)

// History is what a Reader asks about what happened; a history.Store is one.
type History interface {
	NotCounted(ctx context.Context, stream string, since traffic.Time) (history.NotCounted, error)
	FalsePositives(ctx context.Context, rule string, since, until traffic.Time) (history.FalsePositives, error)
}

var _ History = (*history.Store)(nil)

// Trail is the audit trail.
type Trail interface {
	// Of returns the newest entries about object, about all where it is empty, newest first; limit 0: all.
	Of(ctx context.Context, object string, limit int) ([]audit.Entry, error)
}

var _ Trail = (*audit.Trail)(nil)

// Blocks is what a Reader asks of Redis.
type Blocks interface {
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
}

var _ Blocks = (*blocklist.Store)(nil)

// Letters is what a Reader asks of Kafka.
type Letters interface {
	Letters(ctx context.Context, f letters.Filter, p explore.Page) (letters.Letters, error)
}

var _ Letters = (*letters.Reader)(nil)

// Reader answers what people ask about an installation: the API and the commands ask the same one. It is safe for concurrent use.
type Reader struct {
	Rules   RuleStore
	History History
	Trail   Trail
	Blocks  Blocks
	Clock   func() traffic.Time

	// Explorer, Teller and Dossiers answer the API alone: commands ask their own.
	Explorer Explorer
	Teller   Teller
	Dossiers Dossiers
	// Letters reads dead letters; nil: the API has none.
	Letters Letters
	// Counts asks what rules have counted; nil: the API has none.
	Counts Counts
}

// whole reports whether r has all that the API asks.
func (r *Reader) whole() bool {
	return r != nil && r.Rules != nil && r.History != nil && r.Trail != nil && r.Blocks != nil && r.Clock != nil && r.Explorer != nil && r.Teller != nil && r.Dossiers != nil
}

// Rulebook is all rules that have not been removed, ascending by id.
func (r *Reader) Rulebook(ctx context.Context) ([]Rule, error) {
	all, err := r.Rules.List(ctx)
	if err != nil {
		return nil, err
	}
	return r.figured(ctx, all...)
}

// Rule is one rule with its versions, also one that was removed; *acts.UnknownName where there is none.
func (r *Reader) Rule(ctx context.Context, id string) (Rule, error) {
	found, err := r.Named(ctx, id)
	if err != nil {
		return Rule{}, err
	}
	figured, err := r.figured(ctx, found)
	if err != nil {
		return Rule{}, err
	}
	wrongly, err := r.History.FalsePositives(ctx, found.Newest.Version.ID, r.Clock().Add(-WronglyPeriod), 0)
	figured[0].FalsePositives = &wrongly
	return figured[0], err
}

// RuleTrail is what was done to a rule, the newest first, at most limit entries; 0: all.
func (r *Reader) RuleTrail(ctx context.Context, id string, limit int) ([]audit.Entry, error) {
	if _, err := r.Named(ctx, id); err != nil {
		return nil, err
	}
	return r.Trail.Of(ctx, "rule "+id, limit)
}

// Blocklist is the blocks in Redis, and the releases where the filter says so.
func (r *Reader) Blocklist(ctx context.Context, filter blocklist.Filter) (blocklist.Listing, error) {
	return r.Blocks.List(ctx, r.Clock(), filter)
}

// Named finds a rule, also one that was removed; *acts.UnknownName, which knows the others, where there is none.
func (r *Reader) Named(ctx context.Context, id string) (rulestore.Rule, error) {
	found, err := r.Rules.Find(ctx, id)
	if !errors.Is(err, postgres.ErrNotFound) {
		return found, err
	}
	names, nerr := r.Rules.Names(ctx, history.Live)
	if nerr != nil {
		return found, errors.Join(err, nerr)
	}
	slices.Sort(names)
	return found, &acts.UnknownName{Thing: "rule", Name: id, Known: names}
}

// figured adds to rules what they did not count.
func (r *Reader) figured(ctx context.Context, all ...rulestore.Rule) ([]Rule, error) {
	missed, err := r.History.NotCounted(ctx, history.Live, r.Clock().Add(-UncountedPeriod))
	if err != nil {
		return nil, err
	}
	out := make([]Rule, len(all))
	for i := range all {
		out[i] = Rule{Rule: all[i], Uncounted: missed.Figures(all[i].Newest.Version.ID)}
	}
	return out, nil
}
