package boardtest

import (
	"github.com/weirhq/weir/internal/oracle"
)

// truthsOfRule say what Rule detail shows of one rule.
func truthsOfRule() map[string]truth {
	return map[string]truth{
		"Over limit now": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"over limit": {is(f.number(`SELECT count(*) FROM {}.hits_v WHERE rule = '` + rule + `' AND phase IN ('open', 'update')`))}}
		}),
		"Holds, or would": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"{{mode}}": {f.held(rule)}}
		}),
		"Episodes": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"{{phase}}": f.perStep(f.by(f.hits, func(h *told) []string {
				if h.Rule != rule || h.Kind != "hit" {
					return nil
				}
				return []string{"phase", h.Phase}
			}))}
		}),
		"Beside the limit": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{
				"{{kind}} {{phase}}": f.perStep(f.by(f.hits, func(h *told) []string {
					if h.Rule != rule || h.Kind != "near" && h.Kind != "candidate" {
						return nil
					}
					return []string{"kind", h.Kind, "phase", h.Phase}
				})),
				"near, not warned of": {is(0)}, // a hundred a minute are told of
			}
		}),
		"Events over the limit": atRest(func(f *facts, rule string) panelTruth {
			counted, over := f.judge(rule)
			return panelTruth{"{{outcome}}": f.rates([]value{is(counted, "outcome", "counted"), is(over, "outcome", "over")})}
		}),
		"Decisions, and what shadow would decide": atRest(func(f *facts, rule string) panelTruth {
			made := f.by(f.decisions, func(d *told) []string {
				if d.Rule != rule {
					return nil
				}
				return withoutEmpty("mode", "block", "action", d.Action, "reason", d.Reason)
			})
			if f.mode(rule) == "shadow" { // nothing stands in the way of a block in this test, so each episode would have one
				made = append(made, is(f.countTold(f.hits, func(h *told) bool { return h.Rule == rule && h.Kind == "hit" && h.Phase == "open" }), "mode", "shadow", "action", "would_write"))
			}
			return panelTruth{"{{mode}}: {{action}} {{reason}}": f.perStep(made)}
		}),
		"Blocks": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"{{mode}}": {f.held(rule)}, "gate": {f.copied(rule, "rule", rule)}}
		}),
		"Refused at gates": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"{{decision}}": f.rates(f.checksBy(func(c *check) []string {
				if c.rule != rule {
					return nil
				}
				return []string{"decision", c.decision}
			}))}
		}),
		"What became of matching events": atRest(func(f *facts, rule string) panelTruth {
			n := func(outcome string, wanted func(*request) bool) value {
				return is(f.countRequests(func(r *request) bool { return f.watches(rule, r) && wanted(r) }), "outcome", outcome)
			}
			return panelTruth{"{{outcome}}": f.rates([]value{
				n("matched", func(*request) bool { return true }),
				n("behind", (*request).old),
				n("behind_complete", func(r *request) bool { return r.old() && f.keyOf(rule, r) != "" }),
				n("skipped", func(r *request) bool { return f.keyOf(rule, r) == "" }),
				is(0, "outcome", "grouped"),
			}), "let pass: {{list}}": f.rates(f.letPass(rule))}
		}),
		"Not counted, by reason": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"{{reason}}": f.rates(f.leftOut(func(of, reason string) []string {
				if of != rule {
					return nil
				}
				return []string{"reason", reason}
			}))}
		}),
		"What events lack": atRest(func(f *facts, rule string) panelTruth {
			return panelTruth{"key: {{field}}": f.rates(f.lacking(func(of, field string) []string {
				if of != rule {
					return nil
				}
				return []string{"field", field}
			})), "value: {{reason}}": nil, "condition: {{reason}}": nil, "tier: {{reason}}": nil} // no rule here counts values, or has a condition
		}),
	}
}

// rule is a rule's document.
func (f *facts) rule(id string) *oracle.Rule {
	for i := range f.rules {
		if f.rules[i].ID == id {
			return &f.rules[i]
		}
	}
	f.g.prometheus.t.Fatalf("PostgreSQL has no rule %s", id)
	return nil
}

// watches says whether an event is one that a rule is about.
func (f *facts) watches(rule string, r *request) bool {
	return !r.bad && !r.Refused && f.rule(rule).Watches(r.Method, r.Path)
}

// keyOf is whom a rule counts an event for; empty: it lacks a field.
func (f *facts) keyOf(rule string, r *request) string {
	return f.rule(rule).Subject(r.Client, r.Device)
}

// passes says whether an allow list of a rule lets an event pass, which the rule watches.
func (f *facts) passes(rule string, r *request) bool {
	return rule == "watched-trailers" && r.Client.String() == officeAddress
}

// letPass counts the events that allow lists of a rule let pass.
func (f *facts) letPass(rule string) []value {
	if n := f.countRequests(func(r *request) bool { return f.watches(rule, r) && f.passes(rule, r) }); n > 0 {
		return []value{is(n, "list", officeList)}
	}
	return nil
}

// judge counts the events of the span that a rule counts, and those of them that are over its limit.
func (f *facts) judge(rule string) (counted, over float64) {
	doc := f.rule(rule)
	steps := map[string][]oracle.Step{}
	for i := range f.requests {
		r := &f.requests[i]
		key := f.keyOf(rule, r)
		if !f.watches(rule, r) || f.passes(rule, r) || key == "" || r.old() || r.at.After(f.s.to) {
			continue
		}
		steps[key] = append(steps[key], oracle.Step{Time: r.Time, Units: 1, Limit: int64(doc.Limit)})
		if f.within(r.at) {
			counted++
		}
	}
	for _, of := range steps {
		for _, j := range (oracle.Definition{Algorithm: "sliding", Window: doc.Window}).Judge(of) {
			if j.Over && j.Time > f.s.from.UnixMicro() {
				over++
			}
		}
	}
	return counted, over
}

// leftOut counts the events that rules watch and count in no window, by the labels that key gives for a rule and a reason.
func (f *facts) leftOut(key func(rule, reason string) []string) (counts []value) {
	for i := range f.rules {
		rule := f.rules[i].ID
		late, without := key(rule, "late"), key(rule, "missing_field")
		for j := range f.requests {
			r := &f.requests[j]
			switch {
			case !f.within(r.at) || !f.watches(rule, r):
			case f.keyOf(rule, r) == "" && without != nil:
				counts = add(counts, 1, without...)
			case f.keyOf(rule, r) != "" && r.old() && late != nil:
				counts = add(counts, 1, late...)
			}
		}
	}
	return counts
}

// lacking counts the events that lack a field of the key of a rule that watches them, likewise.
func (f *facts) lacking(key func(rule, field string) []string) (counts []value) {
	for i := range f.rules {
		rule := &f.rules[i]
		for j := range f.requests {
			r := &f.requests[j]
			if !f.within(r.at) || !f.watches(rule.ID, r) {
				continue
			}
			if labels := key(rule.ID, "ip"); !r.Client.IsValid() && labels != nil {
				counts = add(counts, 1, labels...)
			}
			if labels := key(rule.ID, "device"); rule.Device && r.Device == "" && labels != nil {
				counts = add(counts, 1, labels...)
			}
		}
	}
	return counts
}

func (f *facts) mode(rule string) string {
	return f.sql(`SELECT CASE mode WHEN 'off' THEN 'disabled' ELSE mode END FROM {}.rules_v WHERE rule = '` + rule + `'`)[0][0].(string)
}

// number is the one that a query finds.
func (f *facts) number(sql string) float64 {
	n, isNumber := f.sql(sql)[0][0].(int64)
	if !isNumber {
		f.g.prometheus.t.Fatalf("no number: %s", sql)
	}
	return float64(n)
}

// held is what a rule blocks, by Redis, or would block, by its episodes.
func (f *facts) held(rule string) value {
	if f.mode(rule) == "shadow" {
		return is(f.number(`SELECT count(DISTINCT h.block_subject) FROM {}.rules_v r JOIN {}.hits_v h ON h.rule = r.rule AND h.last + r.block_ttl > now()
			WHERE r.rule = '`+rule+`'`), "mode", "shadow")
	}
	return is(float64(f.blocks[rule]), "mode", "block")
}

// copied is how many blocks of a rule the fullest gate has: those in Redis, and maybe some that have just expired.
func (f *facts) copied(rule string, labels ...string) value {
	v := between(float64(f.blocks[rule]), float64(f.blocks[rule]), labels...)
	v.high += f.number(`SELECT count(DISTINCT d.subject) FROM {}.block_decisions_v d WHERE d.rule = '` + rule + `' AND d.until BETWEEN now() - interval '1 minute' AND now()`)
	return v
}

func withoutEmpty(labels ...string) (kept []string) {
	for i := 0; i < len(labels); i += 2 {
		if labels[i+1] != "" {
			kept = append(kept, labels[i], labels[i+1])
		}
	}
	return kept
}
