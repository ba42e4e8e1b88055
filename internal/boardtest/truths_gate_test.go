package boardtest

import (
	"maps"
	"slices"
	"strings"
)

// truthsOfGates say what Gate shows: what the test asked, what gates answered, and what Redis has.
func truthsOfGates() map[string]truth {
	return map[string]truth{
		"Requests": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"requests": f.rates([]value{is(f.checked(""))})}
		}),
		"Refused": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"refused": {is(f.checked("refuse") / f.checked(""))}}
		}),
		"Passed unjudged": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"fail_open": {is(f.checked("fail_open") / f.checked(""))}}
		}),
		"Gates not ready":         atRest(func(*facts, string) panelTruth { return panelTruth{"not ready": {is(1)}} }), // the blind one
		"Gates that only observe": atRest(func(*facts, string) panelTruth { return panelTruth{"observing": {is(1)}} }), // the observer
		"Stalest gate":            atRest(func(f *facts, _ string) panelTruth { return panelTruth{"staleness": {f.blindFor()}} }),
		"Gates gone":              atRest(func(*facts, string) panelTruth { return panelTruth{"gone": {is(0)}} }),
		"Decisions": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{decision}}": f.rates(f.checksBy(func(c *check) []string { return []string{"decision", c.decision} }))}
		}),
		"Requests by protocol": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{protocol}}": f.rates(f.checksBy(func(c *check) []string { return []string{"protocol", c.protocol} }))}
		}),
		"Share refused": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{decision}}": {
				is(f.checked("refuse")/f.checked(""), "decision", "refuse"), is(f.checked("would_refuse")/f.checked(""), "decision", "would_refuse"),
			}}
		}),
		"Share passed unjudged": atRest(func(f *facts, _ string) panelTruth {
			all := f.checksBy(func(c *check) []string { return []string{"protocol", c.protocol} })
			unjudged := f.checksBy(func(c *check) []string {
				if c.decision != "fail_open" {
					return nil
				}
				return []string{"protocol", c.protocol}
			})
			for i := range unjudged {
				at := slices.IndexFunc(all, func(v value) bool { return maps.Equal(v.labels, unjudged[i].labels) })
				unjudged[i].low /= all[at].low
				unjudged[i].high = unjudged[i].low
			}
			return panelTruth{"{{protocol}}": unjudged}
		}),
		// 1 - share / (1 - 0.999), by rates of five minutes that begin before the load, and with it before Prometheus.
		"Error budget left": atRest(func(f *facts, _ string) panelTruth {
			share := f.failedOpen()
			return panelTruth{"left": {between(1-2*share*1000, 1-share/2*1000, "namespace", f.in.schema, "slo", "gate_availability")}}
		}),
		"Refusals by rule": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{rule}}": f.everywhere(f.rates(f.refusals("refuse")))}
		}),
		"Would be refused by rule": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{rule}}": f.everywhere(f.rates(f.refusals("would_refuse")))}
		}),
		"Blocks held by rule": atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{rule}}": f.everywhere(f.copies())} }),
		"Rules": atRest(func(f *facts, _ string) panelTruth {
			var rules []value
			for _, row := range f.sql(`SELECT rule, owner FROM {}.rules_v WHERE NOT removed`) {
				rule := row[0].(string)
				rules = append(rules, is(1, "rule", rule, "owner", row[1].(string), "mode", f.mode(rule)))
			}
			return panelTruth{
				"rules": f.everywhere(rules), "refused": f.everywhere(f.refusals("refuse")),
				"would be refused": f.everywhere(f.refusals("would_refuse")), "blocks held": f.everywhere(f.copies()),
			}
		}),
		"Staleness": atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{instance}}": f.fresh()} }),
		"Behind":    atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{instance}}": f.fresh()} }),
		"Blocks held by gate": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{instance}}": f.byGate(func(role string) (low, high float64) { return f.holds(role) })}
		}),
		// weir dev asks its own gate to read all again once; others have had no reason.
		"Reloads by reason": sinceStart(func(*facts, string) panelTruth { return panelTruth{"{{reason}}": {is(1, "reason", "asked")}} }),
		// Each block is told to the three gates that see Redis.
		"Changes read": atRest(func(f *facts, _ string) panelTruth {
			blocks := f.countTold(f.decisions, func(d *told) bool { return d.Action == "written" || d.Action == "extended" })
			return panelTruth{"{{op}}": f.rates([]value{is(3*blocks, "op", "block")})}
		}),
		// The blind one asks every few seconds at most, and Redis has 16,384 slots.
		"Failures": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"no answer": {between(5, 20*f.s.to.Sub(f.s.from).Seconds())}, "observe file": {is(0)}, "rejected: {{reason}}": nil, "slots missing": {is(16384)}}
		}),
		"Time of a check": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"p50": {between(0, 0.01)}, "p90": {between(0, 0.01)}, "p99": {between(0, 0.01)}}
		}),
		"Time of a check, all of them": atRest(func(f *facts, _ string) panelTruth {
			all := f.timed()
			buckets := []value{between(all.low, all.high, "le", "+Inf")}
			for _, le := range []string{"1e-07", "2.5e-07", "5e-07", "1e-06", "2.5e-06", "5e-06", "1e-05", "0.0001", "0.001", "0.01"} {
				buckets = append(buckets, between(0, all.high, "le", le))
			}
			return panelTruth{"{{le}}": f.perStep(buckets)}
		}),
		"Client address unknown": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{reason}}": f.rates(f.oddly("address", "reason"))}
		}),
		"Fields that say nobody": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{field}} {{reason}}": f.rates(f.oddly("field", "field", "reason"))}
		}),
		"Malformed": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{reason}}": f.rates(f.oddly("malformed", "reason")), "request not told": f.rates([]value{is(float64(f.load.odd["untold"]))})}
		}),
		"Spared": onStage(),
		"Gates": atRest(func(f *facts, _ string) panelTruth {
			one := func(is func(role string) bool) []value {
				return f.byGate(func(role string) (low, high float64) {
					if is(role) {
						return 1, 1
					}
					return 0, 0
				})
			}
			builds := f.byGate(func(string) (low, high float64) { return 1, 1 })
			for i := range builds {
				builds[i].labels["version"] = f.in.version
			}
			return panelTruth{
				"ready": one(func(role string) bool { return role != "blind" }), "build": builds, "observes": one(func(role string) bool { return role == "observer" }),
				"staleness": f.fresh(), "blocks": f.byGate(f.holds),
				"requests": f.rates(f.checksBy(func(c *check) []string { return []string{"instance", f.in.metrics[c.role]} })),
			}
		}),
	}
}

// allChecks are those that the test asked for, and those of the demo's gateway, which reports each request with what its gate said.
func (f *facts) allChecks() []check {
	return slices.DeleteFunc(f.everyCheck(), func(c check) bool { return !f.within(c.at) })
}

// everyCheck is all checks, those before the load too.
func (f *facts) everyCheck() []check {
	all := slices.Clone(f.load.checks)
	for i := range f.requests {
		r := &f.requests[i]
		if !r.gateway {
			continue
		}
		c := check{r.at, "run", "http", "pass", r.refused}
		if r.refused != "" {
			c.decision = "refuse"
		}
		all = append(all, c)
	}
	return all
}

// checksBy counts them by the labels that key gives; nil: it is none of them.
func (f *facts) checksBy(key func(*check) []string) (counts []value) {
	for _, c := range f.allChecks() {
		if labels := key(&c); labels != nil {
			counts = add(counts, 1, labels...)
		}
	}
	return counts
}

// checked is the number of checks with a decision; empty: with any.
func (f *facts) checked(decision string) float64 {
	n := 0.0
	for _, c := range f.allChecks() {
		if decision == "" || c.decision == decision {
			n++
		}
	}
	return n
}

// failedOpen is the share of checks that failed open, as the mean over rates of five minutes has it: a check counts in each rate from
// then on, so with the time that has passed since.
func (f *facts) failedOpen() float64 {
	failed, all := 0.0, 0.0
	for _, c := range f.everyCheck() {
		passed := f.s.to.Sub(c.at).Seconds()
		all += passed
		if c.decision == "fail_open" {
			failed += passed
		}
	}
	return failed / all
}

func (f *facts) refusals(decision string) []value {
	return f.checksBy(func(c *check) []string {
		if c.decision != decision {
			return nil
		}
		return []string{"rule", c.rule}
	})
}

// gateRoles are the processes with a gate: weir dev has the demo's.
func gateRoles() []string { return []string{"run", "gate", "observer", "blind"} }

func (f *facts) byGate(of func(role string) (low, high float64)) (values []value) {
	for _, role := range gateRoles() {
		low, high := of(role)
		values = append(values, between(low, high, "instance", f.in.metrics[role]))
	}
	return values
}

// blindFor is how long the blind gate has been there, at its last scrape: Redis has not answered it since.
func (f *facts) blindFor() value {
	p := f.in.processes["blind"]
	return between(f.s.to.Sub(p.serves).Seconds()-mostOld-1, f.s.to.Sub(p.after).Seconds())
}

// fresh is the age of what gates know: Redis answers all but one within moments.
func (f *facts) fresh() []value {
	return f.byGate(func(role string) (low, high float64) {
		if role != "blind" {
			return 0, mostStale
		}
		v := f.blindFor()
		return v.low, v.high
	})
}

// holds is how many blocks a gate has in its copy.
func (f *facts) holds(role string) (low, high float64) {
	if role == "blind" {
		return 0, 0
	}
	for _, v := range f.copies() {
		low, high = low+v.low, high+v.high
	}
	return low, high
}

func (f *facts) copies() (values []value) {
	for i := range f.rules {
		values = append(values, f.copied(f.rules[i].ID, "rule", f.rules[i].ID))
	}
	return values
}

// timed is how many checks were timed, one in 64 of each gate.
func (f *facts) timed() value {
	var v value
	for _, c := range f.checksBy(func(c *check) []string { return []string{"role", c.role} }) {
		v.low, v.high = v.low+float64(int(c.low)/64), v.high+float64(int(c.low)/64+1)
	}
	return v
}

// oddly is how often the test asked oddly in a way; the words that tell more are the values of labels.
func (f *facts) oddly(way string, labels ...string) (values []value) {
	for kind, n := range f.load.odd {
		words := strings.Fields(kind)
		if words[0] != way {
			continue
		}
		var pairs []string
		for i, label := range labels {
			pairs = append(pairs, label, words[i+1])
		}
		values = append(values, is(float64(n), pairs...))
	}
	return values
}
