package rulestore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	// Check is asked within the transaction, also by a dry run, with all that would change; its error refuses the
	// whole. nil: nothing is asked.
	Check func(touched *Touched) error
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
	ChangeText      ChangeKind = "text"      // no new version: comments, notation or tests of the one that there is
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
	// Text binds a plan to the texts that it was shown for; nil: none is stored, or a build made the plan that binds
	// none.
	Text *TextChange `json:"text,omitempty"`
	// Pending has the reasons for which the version does not act: the rule blocks, and would block more than was promoted.
	Pending []string `json:"pending,omitempty" mask:"-"`
	// Refused has the reasons for which the change is refused: the rule blocks, and would be removed.
	Refused []string `json:"refused,omitempty" mask:"-"`
}

// TextChange names the text of a document that is stored, and those whose place it takes, by the SHA-256 of each in
// hex digits.
type TextChange struct {
	// Was is of the version that acts and, behind a +, of the pending one, where both end or go on as others; of a text
	// alone of that whose text it is. Empty: the rule is new.
	Was     string `json:"was,omitempty" mask:"-"`
	Becomes string `json:"becomes" mask:"-"` // empty: no text is stored
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

// Differs reports whether anything that acts would be changed: a text alone does not.
func (p *Plan) Differs() bool {
	return (&Plan{Changes: slices.DeleteFunc(slices.Clone(p.Changes),
		func(c RuleChange) bool { return c.Kind == ChangeText }),
		AllowLists: p.AllowLists}).Changed()
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
		if err == nil {
			err = bindTexts(ctx, tx, steps)
		}
		if err != nil {
			return err
		}
		refused := plan.take(steps)
		takenBack := &AllowRefusedError{}
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
			if err := opts.Check(touchedBy(&plan, stored, docs, lists, opts.AllowLists)); err != nil {
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
	// rewrites: source takes the place of a text that is stored, and the document stays
	rewrites bool
	adopts   *Rule   // whose pending version is to act: the rule does not block any more
	ends     Outcome // of what was pending; empty where nothing was, or goes on
	// of the rule too afterwards: what acts while next is pending, or what stays pending; nil for none
	beside *rules.Version
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

func (s *Store) applySteps(ctx context.Context, b *batch, steps []step, by audit.Entry) (routing int64, err error) {
	by.Actor, by.Reason = traffic.Printable(by.Actor), traffic.Printable(by.Reason)
	changed := false
	for i := range steps {
		st := &steps[i]
		b.object = "rule " + st.Rule
		st.keepText(b, by)
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
	if st.Kind == ChangeText {
		by.Before, by.After = st.texts()
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
