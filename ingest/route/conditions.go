package route

import (
	"fmt"

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
	}
	return nil
}

// judge leaves those of the matched rules whose conditions hold. What the rest of a match says was asked before, by the
// index: conditions cost more.
func (r *eventRouter) judge(v *routingVersion) {
	out := &r.out
	kept := r.matched[:0]
	for _, i := range r.matched {
		if when := v.rules[i].when; when != nil {
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
	for n, c := range rule.tiers {
		holds, fault := c.Holds(&r.event)
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
