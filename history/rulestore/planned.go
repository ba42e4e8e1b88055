package rulestore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/rules"
)

// same reports whether p, which was shown, changes the same as other. They are compared as JSON, in which p may have
// been shown. Clients of a build before leave out what a change binds of texts; a change of a text alone is nothing
// without. What they say of the entries of allow lists is left out: it follows from the document and the version
// before it, and whoever may not see whom a list names was shown less.
func (p *Plan) same(other *Plan) (bool, error) {
	changes := slices.Clone(other.Changes)
	for i := range min(len(changes), len(p.Changes)) {
		if p.Changes[i].Text == nil && p.Changes[i].Kind != ChangeText {
			changes[i].Text = nil
		}
	}
	other = &Plan{Changes: changes, AllowLists: other.AllowLists}
	var texts [2][]byte
	for i, plan := range []*Plan{p, other} {
		lists := slices.Clone(plan.AllowLists)
		for j := range lists {
			lists[j].Diff, lists[j].Refused = nil, nil
		}
		var err error
		if texts[i], err = json.Marshal(Plan{Changes: plan.Changes, AllowLists: lists}); err != nil {
			return false, err
		}
	}
	return bytes.Equal(texts[0], texts[1]), nil
}

// take makes the steps those of the plan, and returns those that are refused.
func (p *Plan) take(steps []step) *RefusedError {
	refused := &RefusedError{}
	for _, step := range steps {
		p.Changes = append(p.Changes, step.RuleChange)
		if len(step.Refused) > 0 {
			refused.Changes = append(refused.Changes, step.RuleChange)
		}
	}
	return refused
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
			Rule: d.ID, Kind: ChangeNew, Version: next.Number, Mode: rules.ModeShadow, Warming: true,
			Diff: rules.Diff(nil, &d.Document)}}
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
		st.Kind, st.ends, st.Diff = ChangeWithdrawn, OutcomeWithdrawn, rules.Diff(&r.Pending.Version.Document,
			&prev.Document)
	}
	return st
}

// planPending plans for a rule whose pending version is what its document says. Where the rule does not block any
// more, that version may act as any other.
func planPending(r *Rule, source string) step {
	v := r.Pending.Version
	st := step{next: v, source: source, RuleChange: RuleChange{Rule: v.ID, Kind: ChangeUnchanged, Version: v.Number,
		Mode: r.Mode}}
	if r.Mode.Blocks() {
		st.beside = &r.Newest.Version
	} else {
		st.Kind, st.adopts, st.Diff = ChangeEdited, r, rules.Diff(&r.Newest.Version.Document, &v.Document)
	}
	return st
}

// mayBlockMore gives the reasons why next must not act at once in the place of the version that acts, of a rule that
// blocks. A limit that is raised for a time, and comes down again, must not lead to a block under next either.
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

// setShadow also brings a removed rule back. The generation rises, so no block of the rule's former life holds again.
const setShadow = `
	INSERT INTO rule_modes AS m (rule, mode, generation, changed_by, reason) VALUES ($1, 'shadow',
		(SELECT floor FROM rule_numbers) + 1, $2, $3)
	ON CONFLICT (rule) DO UPDATE SET mode = 'shadow', generation = greatest(m.generation, excluded.generation - 1) +
		1, removed = false, changed_at = now(),
		changed_by = excluded.changed_by, reason = excluded.reason`

const setRemoved = `
	UPDATE rule_modes SET mode = 'off', generation = greatest(generation, (SELECT floor FROM rule_numbers)) + 1,
		removed = true, changed_at = now(), changed_by = $2, reason = $3
	WHERE rule = $1`
