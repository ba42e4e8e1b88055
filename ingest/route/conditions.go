package route

import (
	"fmt"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
)

// turnedAway is a rule whose match an event meets but for its conditions: they do not hold, or could not be judged.
type turnedAway struct {
	rule  int
	fault condition.Fault // Fine: match.when does not hold
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
	r.event.Reset(&r.request, &out.identity)
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

// tierOf is the tier whose limit an event is judged by: 0 for the rule's own, else n for the n-th. A condition that cannot
// be judged may be the one that would have given the event a higher limit, so then there is none.
func (r *eventRouter) tierOf(rule *routedRule) (tier int, fault condition.Fault) {
	for n, c := range rule.tiers {
		switch holds, fault := c.Holds(&r.event); {
		case fault != condition.Fine:
			return 0, fault
		case holds:
			return n + 1, condition.Fine
		}
	}
	return 0, condition.Fine
}
