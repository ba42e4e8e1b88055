package rulestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ApplyOptions say what Apply may do.
type ApplyOptions struct {
	Prune  bool   // remove stored rules that are not among the documents
	DryRun bool   // only plan
	Via    string // how who asks came, for the audit trail
	Alone  bool   // leave what is not among the documents out of the plan, too
	// Shown is the plan of a dry run that somebody has agreed to; nil for none. Where the stored rules have changed since, so that another
	// plan would be carried out, nothing is applied: ErrOvertaken.
	Shown *Plan
	// AllowLists are the allow lists of the documents. With Prune, stored ones that are not among them are removed, unless a
	// rule names them.
	AllowLists []rules.AllowList
	// Check is asked within the transaction, also by a dry run, with the owners of all rules and lists that would change, before and
	// afterwards; its error refuses the whole. nil: nothing is asked.
	Check func(owners []string) error
}

// ErrOvertaken says that the stored rules have changed since a plan was shown.
var ErrOvertaken = errors.New("the stored rules have changed since the plan was shown: nothing was applied, look again")

// ChangeKind is the effect of applying on one rule.
type ChangeKind string

const (
	ChangeNew       ChangeKind = "new"       // starts in shadow
	ChangeEdited    ChangeKind = "changed"   // a new version, which acts at once; one that was pending is no more
	ChangePending   ChangeKind = "pending"   // a new version that may block more: counted beside the one that acts, never enforced
	ChangeWithdrawn ChangeKind = "withdrawn" // what is pending is no more: the document is that of the version that acts
	ChangeRestored  ChangeKind = "restored"  // was removed before; starts in shadow
	ChangeUnchanged ChangeKind = "unchanged" // no new version
	ChangeRemoved   ChangeKind = "removed"   // its versions and history stay
	ChangeKept      ChangeKind = "kept"      // not among the documents; Prune would remove it
)

// RuleChange is the plan for one rule.
type RuleChange struct {
	Rule    string     `json:"rule" mask:"name"`
	Kind    ChangeKind `json:"kind"`
	Version int        `json:"version"` // the newest one after applying; of ChangePending the pending one
	Mode    rules.Mode `json:"mode"`    // after applying
	Warming bool       `json:"warming"` // windows start cold: the lineage is a new one
	Diff    []string   `json:"diff,omitempty" mask:"-"`
	// Pending has the reasons for which the version does not act: the rule blocks, and would block more than was promoted.
	Pending []string `json:"pending,omitempty" mask:"-"`
	// Refused has the reasons for which the change is refused: the rule blocks, and would be removed.
	Refused []string `json:"refused,omitempty" mask:"-"`
}

// Plan is the effect of applying documents: planned, of a dry run, or done.
type Plan struct {
	Changes []RuleChange `json:"changes"` // ascending by rule
	// AllowLists is the plan for allow lists, ascending by id.
	AllowLists []AllowChange `json:"allow_lists,omitempty"`
	Routing    int64         `json:"routing"` // the live stream's newest routing version afterwards; 0 for a dry run
}

// Changed reports whether there is anything to do.
func (p *Plan) Changed() bool {
	return slices.ContainsFunc(p.Changes, func(c RuleChange) bool { return c.Kind != ChangeUnchanged && c.Kind != ChangeKept }) ||
		slices.ContainsFunc(p.AllowLists, func(c AllowChange) bool { return c.Kind != ChangeUnchanged && c.Kind != ChangeKept })
}

// RefusedError says that nothing was applied because rules that block would be removed.
type RefusedError struct{ Changes []RuleChange }

func (e *RefusedError) Error() string {
	var b strings.Builder
	for i, c := range e.Changes {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "rule %s blocks and would be removed: demote it first (weir rules demote %s)", c.Rule, c.Rule)
	}
	b.WriteString("\nnothing was applied")
	return b.String()
}

// Apply makes the stored rules those of docs, in one transaction, and publishes them to the live stream. New rules
// start in shadow; a document that says what the version says that acts, or the pending one, gives no new version. An edit of a rule
// whose mode is block becomes its pending version where it may block more than the version that acts, with which it is compared; any
// other edit acts at once. Either way it takes the place of what was pending before. The removal of a rule that blocks refuses the
// whole with *RefusedError; a dry run puts the reasons into its plan instead.
func (s *Store) Apply(ctx context.Context, docs []Document, author, reason string, opts ApplyOptions) (Plan, error) {
	var plan Plan
	err := s.db.Transact(ctx, "applying rules", func(tx pgx.Tx) error {
		floor, err := begin(ctx, tx)
		if err != nil {
			return err
		}
		stored, err := loadRules(ctx, tx, "true")
		if err != nil {
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		steps, err := planRules(stored, docs, opts, floor, now)
		if err != nil {
			return err
		}
		refused, takenBack := &RefusedError{}, &AllowRefusedError{}
		for _, step := range steps {
			plan.Changes = append(plan.Changes, step.RuleChange)
			if len(step.Refused) > 0 {
				refused.Changes = append(refused.Changes, step.RuleChange)
			}
		}
		lists, err := loadAllow(ctx, tx)
		if err != nil {
			return err
		}
		allowed, err := (&allowPlanner{tx: tx, stored: stored, before: lists}).planApply(ctx, opts.AllowLists, steps, opts.Prune)
		if err != nil {
			return err
		}
		for _, st := range allowed {
			if opts.Alone && st.Kind == ChangeKept {
				continue
			}
			plan.AllowLists = append(plan.AllowLists, st.AllowChange)
			if len(st.Refused) > 0 {
				takenBack.Changes = append(takenBack.Changes, st.AllowChange)
			}
		}
		if opts.Check != nil {
			if err := opts.Check(changedOwners(stored, docs, lists, &opts, &plan)); err != nil {
				return err
			}
		}
		if opts.DryRun {
			return nil
		}
		if opts.Shown != nil {
			if same, err := opts.Shown.same(&plan); err != nil || !same {
				return errors.Join(err, ErrOvertaken)
			}
		}
		if len(refused.Changes) > 0 {
			return refused
		}
		if len(takenBack.Changes) > 0 {
			return takenBack
		}
		b, by := &batch{tx: tx}, audit.Entry{Actor: author, Via: opts.Via, Reason: reason}
		for i := range allowed {
			b.object, by.Action = "allow list "+allowed[i].List, "apply"
			if allowed[i].Kind == ChangeRemoved {
				by.Action = "remove"
			}
			if err := storeAllow(b, &allowed[i].AllowChange, &allowed[i].next, allowOf(lists, allowed[i].List), by); err != nil {
				return err
			}
			if err := b.sendFull(ctx); err != nil {
				return err
			}
		}
		plan.Routing, err = s.applySteps(ctx, b, steps, by)
		return err
	})
	return plan, err
}

// step is a planned change with all that is needed to carry it out.
type step struct {
	RuleChange
	was    *Rule // before; nil: there was none
	next   rules.Version
	edited bool // next is to be stored
	source string
	adopts *Rule          // whose pending version is to act: the rule does not block any more
	ends   Outcome        // of what was pending; empty where nothing was, or goes on
	beside *rules.Version // of the rule too afterwards: what acts while next is pending, or what stays pending; nil for none
}

// names are the allow lists that the rule's versions name afterwards.
func (st *step) names() []string {
	if st.Kind == ChangeRemoved {
		return nil
	}
	list := slices.Clone(st.next.Allow)
	if st.beside != nil {
		list = append(list, st.beside.Allow...)
	}
	return list
}

func planRules(stored []Rule, docs []Document, opts ApplyOptions, floor int64, now time.Time) ([]step, error) {
	byID := make(map[string]*Rule, len(stored))
	for i := range stored {
		byID[stored[i].Newest.Version.ID] = &stored[i]
		stored[i].used = stored[i].used.Above(floor)
	}
	seen := make(map[string]bool, len(docs))
	steps := make([]step, 0, len(docs)+len(stored))
	for _, d := range docs {
		if seen[d.ID] {
			return nil, fmt.Errorf("rule %s is given twice", d.ID)
		}
		seen[d.ID] = true
		st := planRule(byID[d.ID], d, floor, now)
		st.was = byID[d.ID]
		steps = append(steps, st)
	}
	for id, r := range byID {
		if seen[id] || r.Removed || opts.Alone && !opts.Prune {
			continue
		}
		st := planAbsent(r, opts.Prune)
		st.was = r
		steps = append(steps, st)
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.Rule, b.Rule) })
	return steps, nil
}

// planRule plans for a rule that is among the documents; r is nil for a new one.
func planRule(r *Rule, d Document, floor int64, now time.Time) step {
	if r == nil {
		next, _ := rules.Used{}.Above(floor).Next(nil, d.Document)
		return step{next: next, edited: true, source: d.Source, RuleChange: RuleChange{
			Rule: d.ID, Kind: ChangeNew, Version: next.Number, Mode: rules.ModeShadow, Warming: true, Diff: rules.Diff(nil, &d.Document)}}
	}
	if r.Pending != nil && r.Pending.Version.Equal(&d.Document) {
		return planPending(r, d.Source)
	}
	prev := r.Newest.Version
	next, edited := r.used.Next(&prev, d.Document)
	st := step{next: next, edited: edited, source: d.Source, RuleChange: RuleChange{Rule: d.ID, Kind: ChangeUnchanged,
		Version: next.Number, Mode: r.Mode, Warming: next.Lineage != prev.Lineage}}
	if edited {
		st.Kind, st.Diff = ChangeEdited, rules.Diff(&prev.Document, &next.Document)
	}
	switch {
	case r.Removed:
		st.Kind, st.Mode, st.Warming = ChangeRestored, rules.ModeShadow, true
	case edited && r.Mode.Blocks():
		if st.Pending = r.mayBlockMore(&next.Document, now); len(st.Pending) > 0 {
			st.next, st.Kind, st.Warming = r.used.Pending(d.Document), ChangePending, true
			st.Version, st.beside = st.next.Number, &r.Newest.Version
		}
	}
	switch {
	case edited:
		st.ends = OutcomeReplaced // also of one that a build has left which knows of none
	case r.Pending != nil:
		st.Kind, st.ends, st.Diff = ChangeWithdrawn, OutcomeWithdrawn, rules.Diff(&r.Pending.Version.Document, &prev.Document)
	}
	return st
}

// planPending plans for a rule whose pending version is what its document says. Where the rule does not block any more, that version
// may act as any other.
func planPending(r *Rule, source string) step {
	v := r.Pending.Version
	st := step{next: v, source: source, RuleChange: RuleChange{Rule: v.ID, Kind: ChangeUnchanged, Version: v.Number, Mode: r.Mode}}
	if r.Mode.Blocks() {
		st.beside = &r.Newest.Version
	} else {
		st.Kind, st.adopts, st.Diff = ChangeEdited, r, rules.Diff(&r.Newest.Version.Document, &v.Document)
	}
	return st
}

// mayBlockMore gives the reasons why next must not act at once in the place of the version that acts, of a rule that blocks. A limit that
// is raised for a time, and comes down again, must not lead to a block under next either.
func (r *Rule) mayBlockMore(next *rules.Document, now time.Time) []string {
	reasons := rules.MayBlockMore(&r.Newest.Version.Document, next)
	if r.Raised.In(now) && r.Raised.Limit > next.Limit {
		for _, reason := range raiseMayBlockMore(next, r.Raised.Limit) {
			reasons = append(reasons, "while the limit is raised, "+reason)
		}
	}
	return reasons
}

// planAbsent plans for a stored rule that is not among the documents.
func planAbsent(r *Rule, prune bool) step {
	v := r.Newest.Version
	st := step{next: v, RuleChange: RuleChange{Rule: v.ID, Kind: ChangeKept, Version: v.Number, Mode: r.Mode}}
	if r.Pending != nil {
		st.beside = &r.Pending.Version
	}
	if prune {
		st.Kind, st.Diff = ChangeRemoved, rules.Diff(&v.Document, nil)
		if r.Mode.Blocks() {
			st.Refused = []string{"it blocks"}
		} else {
			st.Mode, st.ends = rules.ModeOff, OutcomeRemoved
		}
	}
	return st
}

func (s *Store) applySteps(ctx context.Context, b *batch, steps []step, by audit.Entry) (routing int64, err error) {
	by.Actor, by.Reason = traffic.Printable(by.Actor), traffic.Printable(by.Reason)
	changed := false
	for i := range steps {
		st := &steps[i]
		b.object = "rule " + st.Rule
		st.keepSource(b)
		if st.Kind != ChangeUnchanged && st.Kind != ChangeKept {
			changed = true
			if err := st.apply(b, by); err != nil {
				return 0, fmt.Errorf("rule %s: %w", st.Rule, err)
			}
		}
		if err := b.sendFull(ctx); err != nil {
			return 0, err
		}
	}
	if err := b.send(ctx); err != nil {
		return 0, err
	}
	if changed {
		if err := s.db.Notify(ctx, b.tx, modesTopic(), ""); err != nil {
			return 0, err
		}
	}
	return s.publishRules(ctx, b.tx)
}

// apply queues what stores the change.
func (st *step) apply(b *batch, by audit.Entry) (err error) {
	by.Action, by.Object = "apply", "rule "+st.Rule
	if by.Before, by.After, err = st.change(); err != nil {
		return err
	}
	switch st.Kind {
	case ChangeNew, ChangeRestored:
		b.queue(setShadow, st.Rule, by.Actor, by.Reason)
	case ChangeRemoved:
		by.Action = "remove"
		b.queue(setRemoved, st.Rule, by.Actor, by.Reason)
		b.queue("DELETE FROM raised_limits WHERE rule = $1", st.Rule)
	}
	switch {
	case st.adopts != nil:
		st.adopts.act(b, OutcomeAdopted)
	case st.ends != "":
		endPending(b, st.Rule, st.ends)
	}
	if st.edited {
		if err := st.insertVersion(b, by.Actor, by.Reason); err != nil {
			return err
		}
	}
	by.Detail = fmt.Sprintf("%s, version %d: %s", st.Kind, st.Version, strings.Join(st.Diff, "; "))
	b.audit(by)
	return nil
}

func (st *step) insertVersion(b *batch, author, reason string) error {
	document, err := json.Marshal(st.next.Document)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(document)
	b.queue("INSERT INTO "+st.table()+` (rule, version, lineage, document, source, hash, author, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp())`, st.Rule, st.next.Number, st.next.Lineage, string(document),
		traffic.Printable(st.source), hash[:], author, reason)
	return nil
}

func (st *step) table() string {
	if st.next.Pending {
		return "pending_versions"
	}
	return "rule_versions"
}
