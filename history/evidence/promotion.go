package evidence

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

// ForPromotion is the dossier of a version of a rule that somebody thinks of promoting, as the rule store keeps it, with its summary: from
// when something first counted as the version does up to until, of MaxSpan at most. nil, and a line that says why,
// where not a minute has passed in between.
func (s *Store) ForPromotion(ctx context.Context, rule string, version int, until time.Time, by string, never func(traffic.Subject) bool) (*rulestore.Dossier, []string, error) {
	v, err := s.rules.Find(ctx, rule)
	if err != nil {
		return nil, nil, err
	}
	stored := numbered(&v, version)
	if stored == nil {
		return nil, nil, fmt.Errorf("%w: got %d, allowed 1 to %d", ErrNoVersion, version, v.Versions[0].Version.Number)
	}
	since := factsOf(&v, stored, roleOf(stored)).spans[0].since.Std()
	if most := until.Add(-MaxSpan); since.Before(most) {
		since = most
	}
	if until = until.Truncate(time.Minute); !since.Truncate(time.Minute).Before(until) {
		return nil, []string{fmt.Sprintf("no evidence yet: what version %d counts is counted since %s, and what was so until %s is known", version, since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))}, nil
	}
	d, err := s.Gather(ctx, Question{Rule: rule, Version: version, Since: traffic.At(since), Until: traffic.At(until), NeverBlock: never})
	if err != nil {
		return nil, nil, err
	}
	document, err := d.Document()
	if err != nil {
		return nil, nil, err
	}
	return &rulestore.Dossier{
		Rule: rule, Version: version, Since: d.Since.Std(), Until: d.Until.Std(), Made: time.Now(), By: by, Document: document, Evidence: d.figures(),
	}, d.Summary(), nil
}

// figures are those of d that gates ask. One that is known from one side only passes a gate only on that side: it counts where the true
// one is no worse.
func (d *Dossier) figures() promotion.Evidence {
	f := d.Figures()
	part := func(s Share, side Side) *promotion.Part {
		if s.State == Measured || s.State == Bounded && s.Side == side {
			return &promotion.Part{Some: s.Part, All: s.Whole}
		}
		return nil
	}
	return promotion.Evidence{
		Observed: promotion.Span(f.Observed), Coverage: part(f.Coverage, AtLeast), Good: part(f.KnownShare, AtMost), Traffic: part(f.TrafficShare, AtMost),
	}
}
