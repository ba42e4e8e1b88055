package acts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// Dossiers gathers the evidence that a promotion is judged by.
type Dossiers interface {
	// ForPromotion is the dossier of a rule's version, from when the version began up to until, made for who asks; and what to show of it,
	// in lines. nil where there is nothing to tell of yet, which the lines say.
	ForPromotion(ctx context.Context, rule string, version int, until time.Time, by string) (*rulestore.Dossier, []string, error)
	// Grown is how much more sources over the limit of a version had by until than by since.
	Grown(ctx context.Context, rule string, version int, since, until time.Time) (Grown, error)
}

// Grown is what has come since somebody looked.
type Grown struct {
	Since   time.Time `json:"since"`
	Sources int64     `json:"sources"` // that had more
	Events  int64     `json:"events"`  // that they had more
}

// Words are a sentence without its stop; empty where nothing came.
func (g Grown) Words() string {
	if g.Events <= 0 {
		return ""
	}
	return fmt.Sprintf("%s had %s since %s", plural.Of(g.Sources, "source"), plural.Of(g.Events, "more event"),
		g.Since.UTC().Format("15:04 UTC"))
}

// EvidenceRequest asks what a promotion would be judged by.
type EvidenceRequest struct {
	Rule    string `json:"rule"`
	Version int    `json:"version,omitempty"` // 0: the one that acts, or with Pending the pending one
	Pending bool   `json:"pending,omitempty"`
	// Until is the end of the time that it is about; zero: evidenceSettles ago.
	Until time.Time `json:"until,omitzero"`

	any bool // also of a version that neither acts nor is pending, in place of which the one that acts is judged
}

// EvidenceShown is what who promotes looks at before he says yes.
type EvidenceShown struct {
	Rule    string              `json:"rule" mask:"name"`
	Version int                 `json:"version"`
	Hash    string              `json:"dossier,omitempty" mask:"hash"` // empty: there is no evidence
	Until   time.Time           `json:"until"`
	Summary []string            `json:"summary" mask:"line"`
	Gates   []promotion.Verdict `json:"gates"` // of the version, in the order of documents

	dossier *rulestore.Dossier
}

// Document is the whole dossier as JSON, with the values that it names; nil where there is no evidence, or where a
// server has answered without it.
func (e *EvidenceShown) Document() []byte {
	if e.dossier == nil {
		return nil
	}
	return e.dossier.Document
}

// SinceLooked says, of a promotion, what has come since its evidence was looked at.
type SinceLooked struct {
	Grown Grown    `json:"grown,omitzero"`
	News  []string `json:"since_looked,omitempty" mask:"text"` // in sentences
}

const (
	// evidenceSettles is how far behind now a dossier ends, and a minute more: by then the stages have told of what
	// happened before.
	evidenceSettles = 3 * time.Minute
	// evidenceHolds is how old the end of a dossier may be by which somebody promotes: he has a quarter of an hour to
	// look at it.
	evidenceHolds = 15*time.Minute + evidenceSettles + time.Minute
)

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
	if q.Version != 0 && q.Version != v.Version.Number && !q.any {
		return EvidenceShown{}, &Invalid{Field: "version", Got: strconv.Itoa(q.Version),
			Allowed: fmt.Sprintf("%d, which acts, or the one that is pending", r.Newest.Version.Number)}
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

// decided is the evidence that a promotion is made by, as it was looked at, and what is to be said of what has come
// since.
func (s *Service) decided(ctx context.Context, actor access.Actor, r *PromoteRequest) (looked EvidenceShown,
	since SinceLooked, err error) {
	if strings.Trim(r.Dossier, "0123456789abcdef") != "" || len(r.Dossier) > sha256.Size*2 {
		return looked, since, &Invalid{Field: "dossier", Got: r.Dossier[:min(len(r.Dossier), 100)],
			Allowed: "the hash of a dossier, in hex digits"}
	}
	// That another version is the newest is told beside all else.
	asked := EvidenceRequest{Rule: r.Rule, Version: r.Version, Pending: r.Pending, Until: r.Until, any: true}
	// What is so now decides.
	if r.Until.IsZero() {
		looked, err = s.Evidence(ctx, actor, asked)
		return looked, since, err
	}
	if now := s.o.Clock().Std(); now.Sub(r.Until) > evidenceHolds || r.Until.After(now) {
		return looked, since, &Invalid{Field: "until", Got: r.Until.UTC().Format(time.RFC3339),
			Allowed: fmt.Sprintf("a time of the last %s: look again", duration.Format(evidenceHolds))}
	}
	if looked, err = s.Evidence(ctx, actor, asked); err != nil {
		return looked, since, err
	}
	asked.Until = time.Time{}
	now, err := s.Evidence(ctx, actor, asked)
	if err != nil {
		return looked, since, err
	}
	if turned := looked.turned(&now); turned != nil {
		return looked, since, turned
	}
	// Whoever promotes would else choose a time of which nothing is known, and so predict nothing.
	if looked.knowsLess(&now) {
		since.News = append(since.News, fmt.Sprintf("of the time until %s less was known than by now: the evidence until %s decides", r.Until.UTC().Format("15:04 UTC"), now.Until.Format("15:04 UTC")))
		return now, since, nil
	}
	mask := s.o.Masking.Masker.For(actor)
	if r.Dossier != "" && r.Dossier != mask.Hash(looked.Hash) {
		news := fmt.Sprintf("of the time until %s more has been told since: what was looked at is ",
			r.Until.UTC().Format("15:04 UTC"))
		if mask.Any() { // it is the hash of none that is kept, and was shown to nobody else
			since.News = append(since.News, news+"another dossier")
		} else {
			since.News = append(since.News, news+"dossier "+r.Dossier)
		}
	}
	since.Grown, err = s.o.Dossiers.Grown(ctx, r.Rule, looked.Version, looked.Until, s.o.Clock().Std())
	since.Grown.Since = looked.Until
	if words := since.Grown.Words(); words != "" {
		since.News = append(since.News, words)
	}
	return looked, since, err
}

// knowsLess reports whether a gate that passes now had no answer when somebody looked.
func (e *EvidenceShown) knowsLess(now *EvidenceShown) bool {
	for i := range e.Gates {
		if e.Gates[i].Outcome == promotion.NotMeasurable && now.Gates[i].Outcome == promotion.Passed {
			return true
		}
	}
	return false
}

// turned are the gates that passed when somebody looked and do not now, and those of which it is known only now that
// they do not; nil: none.
func (e *EvidenceShown) turned(now *EvidenceShown) error {
	out := &TurnedError{Rule: e.Rule, Since: e.Until}
	for i := range e.Gates {
		was, is := e.Gates[i].Outcome, now.Gates[i].Outcome
		if was == promotion.Passed && is != promotion.Passed || was == promotion.NotMeasurable &&
			is == promotion.Failed {
			out.Then, out.Now = append(out.Then, e.Gates[i]), append(out.Now, now.Gates[i])
		}
	}
	if out.Then == nil {
		return nil
	}
	return out
}
