package acts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// File is a file of rule documents.
type File struct {
	Name string `json:"name"` // for messages about it
	Text string `json:"text"`
}

// ApplyRequest asks to make the stored rules and allow lists those of files.
type ApplyRequest struct {
	Files  []File `json:"files"`
	Prune  bool   `json:"prune,omitempty"`   // remove stored rules and lists that are not among the documents
	DryRun bool   `json:"dry_run,omitempty"` // only plan
	Alone  bool   `json:"alone,omitempty"`   // leave what is not among the documents out of the plan; not with prune
	// Shown is the plan of a dry run that somebody has agreed to; nil for none. Where the stored rules have changed since, nothing is applied.
	Shown  *rulestore.Plan `json:"shown,omitempty"`
	Reason string          `json:"reason"` // may be empty
}

// RollbackRequest asks to apply an older document of a rule as a new version.
type RollbackRequest struct {
	Rule string `json:"rule"`
	// To is the version whose document is to be applied; 0 is the one before the newest or, where a version is pending, the one that acts.
	To     int             `json:"to,omitempty"`
	DryRun bool            `json:"dry_run,omitempty"`
	Shown  *rulestore.Plan `json:"shown,omitempty"`
	Reason string          `json:"reason"` // may be empty
}

// ApplyDone is what became of documents: planned, of a dry run, or done.
type ApplyDone struct {
	*rulestore.Plan
	*Publication // nil of a dry run
	// Warnings tell what is probably not meant in the documents.
	Warnings []rules.Problem `json:"warnings,omitempty"`
}

// Apply makes the stored rules and allow lists those of documents, in one step.
func (s *Service) Apply(ctx context.Context, actor access.Actor, r ApplyRequest) (ApplyDone, error) {
	if err := access.MayAny(actor, access.Apply); err != nil {
		return ApplyDone{}, err
	}
	lists, err := s.o.Rules.AllowLists(ctx)
	if err != nil {
		return ApplyDone{}, err
	}
	names := make([]string, len(lists))
	for i := range lists {
		names[i] = lists[i].List.ID
	}
	set, warnings, err := s.o.Documents.Read(r.Files, names)
	if err == nil {
		err = s.o.Masking.mayList(actor, set)
	}
	if err != nil {
		return ApplyDone{Warnings: warnings}, err
	}
	opts := rulestore.ApplyOptions{Prune: r.Prune, DryRun: r.DryRun, Alone: r.Alone, Shown: r.Shown,
		AllowLists: set.AllowLists}
	if r.Alone && r.Prune {
		return ApplyDone{Warnings: warnings}, &Invalid{Field: "alone", Got: "true",
			Allowed: "false with prune, which is about the others"}
	}
	if opts.Prune && len(set.Rules) == 0 {
		return ApplyDone{Warnings: warnings}, errors.New("--prune with allow lists alone would remove all rules: give the rules, too")
	}
	done, err := s.carry(ctx, actor, access.Apply, rulestore.WithSources(set), r.Reason, opts)
	done.Warnings = warnings
	return done, err
}

// Rollback applies an older document of a rule as a new version, which is an edit like any other.
func (s *Service) Rollback(ctx context.Context, actor access.Actor, r RollbackRequest) (ApplyDone, error) {
	if r.To < 0 {
		return ApplyDone{}, &Invalid{Field: "to", Got: fmt.Sprint(r.To), Allowed: "a version of the rule, from 1 on"}
	}
	if err := access.MayAny(actor, access.Rollback); err != nil {
		return ApplyDone{}, err
	}
	rule, err := s.named(ctx, r.Rule)
	if err != nil {
		return ApplyDone{}, err
	}
	if err := access.May(actor, access.Rollback, rule.Newest.Version.Owner); err != nil { // also where nothing would change
		return ApplyDone{}, err
	}
	old, err := rollbackTarget(&rule, r.To)
	if err != nil {
		return ApplyDone{}, err
	}
	within := bounded{s.o.Bounds, actor, access.Rollback}
	if err := within.rules(&old.Version.Document); err != nil { // likewise
		return ApplyDone{}, err
	}
	docs := []rulestore.Document{{Document: old.Version.Document, Source: old.Source}}
	return s.carry(ctx, actor, access.Rollback, docs, r.Reason, rulestore.ApplyOptions{DryRun: r.DryRun, Alone: true, Shown: r.Shown})
}

// carry applies documents. Whoever may not change one of the rules or lists that they change, changes none.
func (s *Service) carry(ctx context.Context, actor access.Actor, act access.Act, docs []rulestore.Document, reason string, opts rulestore.ApplyOptions) (ApplyDone, error) {
	opts.Via = actor.Via
	within := bounded{s.o.Bounds, actor, act}
	opts.Check = func(touched *rulestore.Touched) error {
		for _, owner := range touched.Owners {
			if err := access.May(actor, act, owner); err != nil {
				return err
			}
		}
		return within.touched(touched)
	}
	plan, err := s.o.Rules.Apply(ctx, docs, actor.Name, reason, opts)
	if err != nil {
		return ApplyDone{}, unprefixed(err)
	}
	if opts.DryRun {
		return ApplyDone{Plan: &plan}, nil
	}
	if plan.Changed() {
		s.log(actor, act, fmt.Sprintf("routing version %d", plan.Routing))
	}
	p := s.publish(ctx, actor, "")
	return ApplyDone{Plan: &plan, Publication: &p}, nil
}

// unprefixed is an error of documents without what the store says of itself before it.
func unprefixed(err error) error {
	if cause := errors.Unwrap(err); cause != nil && strings.HasPrefix(err.Error(), "history: ") {
		return cause
	}
	return err
}

// rollbackTarget is the version to go back to.
func rollbackTarget(r *rulestore.Rule, to int) (*rulestore.StoredVersion, error) {
	id := r.Newest.Version.ID
	switch {
	case r.Removed:
		return nil, fmt.Errorf("rule %s was removed on %s by %s: weir rules apply brings it back", id, r.Changed.Format("2006-01-02"), r.ChangedBy)
	case to != 0:
		if v := versionOf(r, to); v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("version: got %d, allowed 1 to %d, the versions of rule %s: weir rules show %[3]s", to, r.Versions[0].Version.Number, id)
	case r.Pending != nil:
		return &r.Newest, nil
	}
	for i := range r.Versions {
		if v := &r.Versions[i]; v.Version.Number < r.Newest.Version.Number && !v.Version.Pending {
			return v, nil
		}
	}
	return nil, fmt.Errorf("rule %s has one version that ever acted, and none to go back to", id)
}
