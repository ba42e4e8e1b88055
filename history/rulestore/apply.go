package rulestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Document is a rule to apply: the document, and the YAML that it was read from, kept for people; it may be empty.
type Document struct {
	rules.Document
	Source string
}

// ApplyOptions say what Apply may do.
type ApplyOptions struct {
	Prune  bool // remove stored rules that are not among the documents
	DryRun bool // only plan
}

// ChangeKind is the effect of applying on one rule.
type ChangeKind string

const (
	ChangeNew       ChangeKind = "new"       // starts in shadow
	ChangeEdited    ChangeKind = "changed"   // a new version
	ChangeRestored  ChangeKind = "restored"  // was removed before; starts in shadow
	ChangeUnchanged ChangeKind = "unchanged" // no new version
	ChangeRemoved   ChangeKind = "removed"   // its versions and history stay
	ChangeKept      ChangeKind = "kept"      // not among the documents; Prune would remove it
)

// RuleChange is the plan for one rule.
type RuleChange struct {
	Rule    string     `json:"rule"`
	Kind    ChangeKind `json:"kind"`
	Version int        `json:"version"` // the newest one after applying
	Mode    rules.Mode `json:"mode"`    // after applying
	Warming bool       `json:"warming"` // windows start cold: the lineage is a new one
	Diff    []string   `json:"diff,omitempty"`
	// Refused has the reasons for which the change is refused: the rule blocks, and would block more than was promoted.
	Refused []string `json:"refused,omitempty"`
}

// Plan is the effect of applying documents: planned, of a dry run, or done.
type Plan struct {
	Changes []RuleChange `json:"changes"` // ascending by rule
	Routing int64        `json:"routing"` // the live stream's newest routing version afterwards; 0 for a dry run
}

// Changed reports whether there is anything to do.
func (p *Plan) Changed() bool {
	return slices.ContainsFunc(p.Changes, func(c RuleChange) bool { return c.Kind != ChangeUnchanged && c.Kind != ChangeKept })
}

// RefusedError says that nothing was applied because rules that block would block more or be removed.
type RefusedError struct{ Changes []RuleChange }

func (e *RefusedError) Error() string {
	var b strings.Builder
	for i, c := range e.Changes {
		if i > 0 {
			b.WriteString("\n")
		}
		if c.Kind == ChangeRemoved {
			fmt.Fprintf(&b, "rule %s blocks and would be removed: demote it first (weir rules demote %s)", c.Rule, c.Rule)
			continue
		}
		fmt.Fprintf(&b, "rule %s blocks, and the edit may block more (%s): ", c.Rule, strings.Join(c.Refused, "; "))
		fmt.Fprintf(&b, "demote it (weir rules demote %s), apply, watch it in shadow, promote it again", c.Rule)
	}
	b.WriteString("\nnothing was applied")
	return b.String()
}

// Apply makes the stored rules those of docs, in one transaction, and publishes them to the live stream. New rules
// start in shadow; a document that says what the newest version says gives no new version. An edit that may block more
// of a rule whose mode is block, and the removal of such a rule, refuse the whole with *RefusedError; a dry run puts the
// reasons into its plan instead.
func (s *Store) Apply(ctx context.Context, docs []Document, author, reason string, opts ApplyOptions) (Plan, error) {
	var plan Plan
	err := s.db.Transact(ctx, "applying rules", func(tx pgx.Tx) error {
		if err := streams.Lock(ctx, tx, streams.Live); err != nil {
			return err
		}
		stored, err := loadRules(ctx, tx, "true")
		if err != nil {
			return err
		}
		steps, err := planRules(stored, docs, opts.Prune)
		if err != nil {
			return err
		}
		refused := &RefusedError{}
		for _, step := range steps {
			plan.Changes = append(plan.Changes, step.RuleChange)
			if len(step.Refused) > 0 {
				refused.Changes = append(refused.Changes, step.RuleChange)
			}
		}
		if opts.DryRun {
			return nil
		}
		if len(refused.Changes) > 0 {
			return refused
		}
		plan.Routing, err = s.applySteps(ctx, tx, steps, author, reason)
		return err
	})
	return plan, err
}

// step is a planned change with all that is needed to carry it out.
type step struct {
	RuleChange
	next   rules.Version
	edited bool // next is to be stored
	source string
}

func planRules(stored []Rule, docs []Document, prune bool) ([]step, error) {
	byID := make(map[string]*Rule, len(stored))
	for i := range stored {
		byID[stored[i].Newest.Version.ID] = &stored[i]
	}
	seen := make(map[string]bool, len(docs))
	steps := make([]step, 0, len(docs)+len(stored))
	for _, d := range docs {
		if seen[d.ID] {
			return nil, fmt.Errorf("rule %s is given twice", d.ID)
		}
		seen[d.ID] = true
		steps = append(steps, planRule(byID[d.ID], d))
	}
	for id, r := range byID {
		if seen[id] || r.Removed {
			continue
		}
		steps = append(steps, planAbsent(r, prune))
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.Rule, b.Rule) })
	return steps, nil
}

// planRule plans for a rule that is among the documents; r is nil for a new one.
func planRule(r *Rule, d Document) step {
	if r == nil {
		next, _ := rules.NextVersion(nil, d.Document)
		return step{next: next, edited: true, source: d.Source, RuleChange: RuleChange{
			Rule: d.ID, Kind: ChangeNew, Version: next.Number, Mode: rules.ModeShadow, Warming: true, Diff: rules.Diff(nil, &d.Document)}}
	}
	prev := r.Newest.Version
	next, edited := rules.NextVersion(&prev, d.Document)
	st := step{next: next, edited: edited, source: d.Source, RuleChange: RuleChange{Rule: d.ID, Kind: ChangeUnchanged,
		Version: next.Number, Mode: r.Mode, Warming: next.Lineage != prev.Lineage}}
	if edited {
		st.Kind = ChangeEdited
		st.Diff = rules.Diff(&prev.Document, &next.Document)
	}
	switch {
	case r.Removed:
		st.Kind, st.Mode, st.Warming = ChangeRestored, rules.ModeShadow, true
	case edited && r.Mode == rules.ModeBlock:
		st.Refused = rules.MayBlockMore(&prev.Document, &next.Document)
	}
	return st
}

// planAbsent plans for a stored rule that is not among the documents.
func planAbsent(r *Rule, prune bool) step {
	v := r.Newest.Version
	st := step{next: v, RuleChange: RuleChange{Rule: v.ID, Kind: ChangeKept, Version: v.Number, Mode: r.Mode}}
	if prune {
		st.Kind, st.Diff = ChangeRemoved, rules.Diff(&v.Document, nil)
		if r.Mode == rules.ModeBlock {
			st.Refused = []string{"it blocks"}
		} else {
			st.Mode = rules.ModeOff
		}
	}
	return st
}

func (s *Store) applySteps(ctx context.Context, tx pgx.Tx, steps []step, author, reason string) (routing int64, err error) {
	author, reason = traffic.Printable(author), traffic.Printable(reason)
	changed := false
	for i := range steps {
		st := &steps[i]
		if st.Kind == ChangeUnchanged || st.Kind == ChangeKept {
			continue
		}
		changed = true
		if err := st.apply(ctx, tx, author, reason); err != nil {
			return 0, fmt.Errorf("rule %s: %w", st.Rule, err)
		}
	}
	if changed {
		if err := s.db.Notify(ctx, tx, modesTopic(), ""); err != nil {
			return 0, err
		}
	}
	return s.publishRules(ctx, tx)
}

// setShadow also brings a removed rule back. The generation rises, so no block of the rule's former life holds again.
const setShadow = `
	INSERT INTO rule_modes AS m (rule, mode, generation, changed_by, reason) VALUES ($1, 'shadow', 1, $2, $3)
	ON CONFLICT (rule) DO UPDATE SET mode = 'shadow', generation = m.generation + 1, removed = false, changed_at = now(),
		changed_by = excluded.changed_by, reason = excluded.reason`

const setRemoved = `
	UPDATE rule_modes SET mode = 'off', generation = generation + 1, removed = true, changed_at = now(), changed_by = $2, reason = $3
	WHERE rule = $1`

func (st *step) apply(ctx context.Context, tx pgx.Tx, author, reason string) error {
	action := "apply"
	switch st.Kind {
	case ChangeNew, ChangeRestored:
		if _, err := tx.Exec(ctx, setShadow, st.Rule, author, reason); err != nil {
			return err
		}
	case ChangeRemoved:
		action = "remove"
		if _, err := tx.Exec(ctx, setRemoved, st.Rule, author, reason); err != nil {
			return err
		}
	}
	if st.edited {
		if err := st.insertVersion(ctx, tx, author, reason); err != nil {
			return err
		}
	}
	return audit.Write(ctx, tx, audit.Entry{Actor: author, Action: action, Object: "rule " + st.Rule, Reason: reason,
		Detail: fmt.Sprintf("%s, version %d: %s", st.Kind, st.Version, strings.Join(st.Diff, "; "))})
}

func (st *step) insertVersion(ctx context.Context, tx pgx.Tx, author, reason string) error {
	document, err := json.Marshal(st.next.Document)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(document)
	_, err = tx.Exec(ctx, `INSERT INTO rule_versions (rule, version, lineage, document, source, hash, author, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())`, st.Rule, st.next.Number, st.next.Lineage, string(document),
		traffic.Printable(st.source), hash[:], author, reason)
	return err
}
