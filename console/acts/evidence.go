package acts

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// Dossiers gathers the evidence that a promotion is judged by.
type Dossiers interface {
	// ForPromotion is the dossier of a rule's version, from when the version began up to until, made for who asks; and what to show of it,
	// in lines. nil where there is nothing to tell of yet, which the lines say.
	ForPromotion(ctx context.Context, rule string, version int, until time.Time, by string) (*rulestore.Dossier, []string, error)
}

// EvidenceRequest asks what a promotion would be judged by.
type EvidenceRequest struct {
	Rule    string `json:"rule"`
	Version int    `json:"version,omitempty"` // 0: the one that acts, or with Pending the pending one
	Pending bool   `json:"pending,omitempty"`
	// Until is the end of the time that it is about; zero: evidenceSettles ago.
	Until time.Time `json:"until,omitzero"`
}

// EvidenceShown is what who promotes looks at before he says yes.
type EvidenceShown struct {
	Rule    string              `json:"rule"`
	Version int                 `json:"version"`
	Hash    string              `json:"dossier,omitempty"` // empty: there is no evidence
	Until   time.Time           `json:"until"`
	Summary []string            `json:"summary"`
	Gates   []promotion.Verdict `json:"gates"` // of the version, in the order of documents

	dossier *rulestore.Dossier
}

// evidenceSettles is how far behind now a dossier ends: by then the stages have told of what happened before.
const evidenceSettles = 3 * time.Minute

// Evidence gathers what a promotion would be judged by. It changes nothing.
func (s *Service) Evidence(ctx context.Context, actor access.Actor, q EvidenceRequest) (EvidenceShown, error) {
	if err := access.MayAny(actor, access.View); err != nil {
		return EvidenceShown{}, err
	}
	r, err := s.named(ctx, q.Rule)
	if err != nil {
		return EvidenceShown{}, err
	}
	v := &r.Newest
	if p := r.Pending; p != nil && (q.Pending || q.Version == p.Version.Number) {
		v = p
	}
	if q.Until.IsZero() {
		q.Until = s.o.Clock().Std().Add(-evidenceSettles).Truncate(time.Minute)
	}
	shown := EvidenceShown{Rule: q.Rule, Version: v.Version.Number, Until: q.Until.UTC()}
	if shown.dossier, shown.Summary, err = s.o.Dossiers.ForPromotion(ctx, q.Rule, shown.Version, q.Until, actor.Name); err != nil {
		return EvidenceShown{}, fmt.Errorf("evidence of rule %s: %w", q.Rule, err)
	}
	var figures *promotion.Evidence
	if shown.dossier != nil {
		shown.Hash, figures = shown.dossier.Hash(), &shown.dossier.Evidence
	}
	shown.Gates = rules.GatesOf(&v.Version.Document).Judge(figures)
	return shown, nil
}
