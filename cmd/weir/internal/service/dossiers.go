package service

import (
	"context"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// dossiersPort gathers the evidence of promotions from history. Whom a block never holds the configuration says.
type dossiersPort struct {
	config  *config.Config
	history *history.Store
}

var _ acts.Dossiers = (*dossiersPort)(nil)

// ForPromotion is that of evidence.Store.
func (p *dossiersPort) ForPromotion(ctx context.Context, rule string, version int, until time.Time, by string) (*rulestore.Dossier, []string, error) {
	never := blocklist.NewNeverBlock(p.config.NeverBlock)
	stored := evidence.New(p.history.DB, p.history.Rules)
	return stored.ForPromotion(Weighing(ctx), rule, version, until, by, never.Holds)
}

// Grown is that of evidence.Store.
func (p *dossiersPort) Grown(ctx context.Context, rule string, version int, since, until time.Time) (acts.Grown,
	error) {
	stored := evidence.New(p.history.DB, p.history.Rules)
	sources, events, err := stored.Grown(Weighing(ctx), rule, version, traffic.At(since), traffic.At(until))
	return acts.Grown{Sources: sources, Events: events}, err
}

// knowsPort tells who is behind a source.
type knowsPort struct{ asked *explore.Explorer }

var _ acts.Knows = (*knowsPort)(nil)

// Behind is that of explore.Explorer.
func (p *knowsPort) Behind(ctx context.Context, source string, since traffic.Time) (explore.Behind, error) {
	return p.asked.Behind(Weighing(ctx), source, since)
}

// Dossiers makes dossiers from history. Whom a block never holds the configuration says.
type Dossiers struct {
	never  blocklist.NeverBlock
	stored *evidence.Store
}

// NewDossiers returns those of an installation.
func NewDossiers(c *config.Config, h *history.Store) *Dossiers {
	return &Dossiers{blocklist.NewNeverBlock(c.NeverBlock), evidence.New(h.DB, h.Rules)}
}

// Gather is that of evidence.Store.
func (d *Dossiers) Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error) {
	q.NeverBlock = d.never.Holds
	return d.stored.Gather(ctx, q)
}
