package route

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

// turnedAway is a rule whose match an event meets but for match.when: it does not hold, or could not be judged.
type turnedAway struct {
	rule  int
	fault condition.Fault // Fine: it does not hold
}

// compileConditions compiles the conditions of a version's rules. One that does not compile makes the version unfit: without
// it other events would be counted than its owner wrote. A condition that before has is the same one here.
func (v *routingVersion) compileConditions(before *routingVersion, all []rules.Version) error {
	v.conditions = map[string]*condition.Condition{}
	var language *condition.Language
	compile := func(expr string) (c *condition.Condition, err error) {
		if c = v.conditions[expr]; c != nil {
			return c, nil
		}
		if before != nil {
			c = before.conditions[expr]
		}
		if c == nil && language == nil {
			if language, err = condition.New(); err != nil {
				return nil, err
			}
		}
		if c == nil {
			if c, err = language.Compile(expr); err != nil {
				return nil, err
			}
		}
		v.conditions[expr] = c
		return c, nil
	}
	owners := map[string]int{}
	for i := range all {
		d, rule := &all[i].Document, &v.rules[i]
		if d.Match.When != "" {
			var err error
			if rule.when, err = compile(d.Match.When); err != nil {
				return fmt.Errorf("rule %s: match.when: %w", d.ID, err)
			}
		}
		for n, t := range d.Tiers {
			c, err := compile(t.When)
			if err != nil {
				return fmt.Errorf("rule %s: tiers[%d].when: %w", d.ID, n, err)
			}
			rule.tiers = append(rule.tiers, c)
		}
		if rule.when == nil && rule.tiers == nil {
			continue
		}
		owner, known := owners[d.Owner]
		if !known {
			owner = len(owners)
			owners[d.Owner] = owner
		}
		rule.owner = owner
		w := rule.weight()
		v.weight.Steps, v.weight.Reads = v.weight.Steps+w.Steps, v.weight.Reads+w.Reads
	}
	v.owners = len(owners)
	return nil
}

// judge leaves those of the matched rules whose conditions hold. What the rest of a match says was asked before, by the
// index: conditions cost more.
func (r *eventRouter) judge(v *routingVersion) {
	out := &r.out
	r.admission.admit(v, r.matched, &r.event)
	kept := r.matched[:0]
	for _, i := range r.matched {
		if when := v.rules[i].when; when != nil {
			if r.admission.beyond(i) {
				out.turned = append(out.turned, turnedAway{i, condition.FaultBudget})
				continue
			}
			if holds, fault := when.Holds(&r.event); !holds {
				out.turned = append(out.turned, turnedAway{i, fault})
				continue
			}
		}
		kept = append(kept, i)
	}
	r.matched = kept
}

// tierOf decides by whose limit an event is judged. Clients choose much of what conditions read, so a condition that cannot be
// judged must neither keep the event from the rule nor give it a lower limit than any value would have given: of the limits
// that it may have the greatest counts.
func (r *eventRouter) tierOf(rule *routedRule, w *watching) {
	may := rules.TierSet(0)
	beyond := r.admission.beyond(w.rule)
	for n, c := range rule.tiers {
		holds, fault := false, condition.FaultBudget
		if !beyond {
			holds, fault = c.Holds(&r.event)
		}
		switch {
		case fault != condition.Fine:
			may = may.With(n + 1)
			if w.fault == condition.Fine {
				w.fault = fault
			}
		case holds:
			w.settle(rule.document, may, n+1)
			return
		}
	}
	w.settle(rule.document, may, 0)
}

// settle judges the event by the limit of a tier, or by a greater one of those whose conditions could not be judged.
func (w *watching) settle(d *rules.Document, unjudged rules.TierSet, tier int) {
	if w.tier = tier; unjudged == 0 {
		return
	}
	w.may = unjudged.With(tier)
	w.tier = d.Greatest(w.may)
}

// admission is the rules whose conditions the budget of an event has no room for (condition.Budget).
type admission struct {
	over   []int // ascending
	shares []condition.Share
	budget condition.Budget
}

// beyond reports whether the conditions of a rule are not judged of the event.
func (a *admission) beyond(rule int) bool {
	if len(a.over) == 0 {
		return false
	}
	_, found := slices.BinarySearch(a.over, rule)
	return found
}

// admit decides which of the matched rules' conditions are judged.
func (a *admission) admit(v *routingVersion, matched []int, e *condition.Event) {
	a.over = a.over[:0]
	if v.format < rules.BudgetRecordFormat || v.weight.Steps+v.weight.Reads*e.Units() <= condition.MaxEventCost {
		return
	}
	a.shares = a.shares[:0]
	for _, i := range matched {
		if rule := &v.rules[i]; rule.when != nil || rule.tiers != nil {
			a.shares = append(a.shares, condition.Share{Rule: i, Owner: rule.owner, Cost: rule.weight().Steps})
		}
	}
	// First without texts: to find the values of attrs costs something, too.
	a.shares, a.over = a.budget.Divide(a.shares, v.owners, a.over)
	for i := range a.shares {
		a.shares[i].Cost = v.rules[a.shares[i].Rule].cost(e)
	}
	a.shares, a.over = a.budget.Divide(a.shares, v.owners, a.over)
	slices.Sort(a.over)
}

// weight is what the rule's conditions cost whatever the event is.
func (r *routedRule) weight() (of condition.Cost) {
	add := func(c *condition.Condition) {
		w := c.Weight()
		of.Steps, of.Reads = of.Steps+w.Steps, of.Reads+w.Reads
	}
	if r.when != nil {
		add(r.when)
	}
	for _, c := range r.tiers {
		add(c)
	}
	return of
}

// cost is what judging an event by the rule's conditions costs, whether or not all of them have to be asked.
func (r *routedRule) cost(e *condition.Event) (units int64) {
	if r.when != nil {
		units = r.when.Cost(e)
	}
	for _, c := range r.tiers {
		units += c.Cost(e)
	}
	return units
}
