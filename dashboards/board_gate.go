package dashboards

// gate is for who has weir's answer between clients and an API: what is decided, by which rule, on how fresh a copy, how fast.
func gate() board {
	return board{
		uid: uidGate, title: "Gate",
		description: "For operators of gateways. From top to bottom: is anything wrong now, what gates decide, which rules refuse, whether every gate knows " +
			"every block, what it costs a request, and which requests cannot be judged.",
		from: "now-3h", refresh: "30s",
		variables: []variable{namespaces(), anyRules()},
		rows: []row{
			{"Is anything wrong now?", []line{{4, gateNow()[:3]}, {4, gateNow()[3:]}}},
			{"What do gates decide?", []line{{8, gateDecisions()}, {7, gateShares()}}},
			{"Which rules refuse?", []line{{8, gateRules()}, {9, gateRuleTable()}}},
			{"Does every gate know every block?", []line{{8, gateFreshness()}, {7, gateReloads()}}},
			{"What does it cost a request?", []line{{8, gateLatency()}}},
			{"Which requests cannot be judged?", []line{{7, gateUnjudged()}}},
			{"Which gates are there?", []line{{8, gateInstances()}}},
		},
	}
}

const decisions = "weir_gate_decisions_total"

func gateNow() []panel {
	return []panel{
		stat("Requests", "Requests that gates are asked about, a second.", unitRequestsPerSecond, prom(rate("", decisions), "requests")),
		stat("Refused", "Share of requests that are refused.", unitShare,
			prom(orZero(rate("", decisions, `decision="refuse"`))+" / ("+rate("", decisions)+" > 0)", "refused")).ifEmpty("no request told"),
		stat("Passed unjudged", "Share of requests that gates let pass since they had no blocklist yet. Above 0, blocks do not hold.", unitShare,
			prom(orZero(rate("", decisions, `decision="fail_open"`))+" / ("+rate("", decisions)+" > 0)", "fail_open")).
			thresholds(step{1e-9, colourBad}).ifEmpty("no request told"),
		stat("Gates not ready", "Gates without a blocklist: they pass everybody.", unitCount,
			prom("count ("+of("weir_blocklist_ready")+") - sum ("+of("weir_blocklist_ready")+")", "not ready")).thresholds(step{1, colourBad}),
		stat("Stalest gate", "Longest time since Redis last answered a gate. It goes on with the blocks it has.", unitSeconds,
			prom(worst("", "weir_blocklist_staleness_seconds"), "staleness")).thresholds(step{5, colourWarn}, step{30, colourBad}),
		stat("Gates that only observe", "They refuse nobody, and count whom they would have refused.", unitCount,
			prom(sum("", of("weir_gate_observing")), "observing")).thresholds(step{1, colourWarn}),
		processesGone("Gates gone", "weir_blocklist_ready"),
	}
}

func gateDecisions() []panel {
	return []panel{
		timeseries("Decisions", "Requests by what the gate decided. would_refuse: refused, were the gate not observing; fail_open: passed without a blocklist.", unitRequestsPerSecond,
			prom(rate("decision", decisions), "{{decision}}")).stacked().painted(byDecision()),
		timeseries("Requests by protocol", "How proxies and servers ask.", unitRequestsPerSecond, prom(rate("protocol", decisions), "{{protocol}}")).stacked(),
	}
}

func gateShares() []panel {
	all := " / ignoring (decision) group_left () (" + rate("", decisions) + " > 0)"
	return []panel{
		timeseries("Share refused", "Of all requests: refused, and would be refused by gates that observe.", unitShare,
			prom(rate("decision", decisions, `decision=~"refuse|would_refuse"`)+all, "{{decision}}")).painted(byDecision()),
		timeseries("Share passed unjudged", "Of all requests, by protocol: the gate had no blocklist yet.", unitShare,
			prom("("+rate("protocol", decisions, `decision="fail_open"`)+" or 0 * "+rate("protocol", decisions)+") / ("+rate("protocol", decisions)+" > 0)", "{{protocol}}")),
		stat("Error budget left", "Of the objective for gates: 100 % is untouched, below 0 % more requests passed unjudged than it allows. By weir's recording rules.", unitShare,
			prom(`namespace_slo:weir_slo_error_budget:remaining_ratio{`+inNamespace+`, slo="gate_availability"}`, "left")).
			thresholds(always(colourBad), step{0, colourWarn}, step{0.25, colourGood}).wide(4).ifEmpty("no rules loaded"),
	}
}

func gateRules() []panel {
	return []panel{
		timeseries("Refusals by rule", "The ten rules that refuse most requests in the time range.", unitRequestsPerSecond,
			prom(orNone(busiest(decisions, `decision="refuse"`, theRules), "rule"), "{{rule}}")).stacked().linkedToRule(),
		timeseries("Would be refused by rule", "By gates that observe: the ten rules that would refuse most requests in the time range.", unitRequestsPerSecond,
			prom(orNone(busiest(decisions, `decision="would_refuse"`, theRules), "rule"), "{{rule}}")).stacked().linkedToRule(),
		timeseries("Blocks held by rule", "Blocks in a gate's copy; the fullest copy. All gates hold the same but for a moment.", unitCount,
			prom(orNone(worst("namespace, rule", "weir_blocklist_blocks", theRules), "rule"), "{{rule}}")).linkedToRule(),
	}
}

// theRules are those that the board's variables choose.
const theRules = `rule=~"$rule"`

func gateRuleTable() []panel {
	const each = "namespace, rule"
	none := " or 0 * " + worst(each, "weir_rule_info", theRules)
	return []panel{
		table("Rules", "What each rule did at the gates over the time range, and how many it blocks now.", unitWhole,
			prom(eachRule(), "rules"),
			prom(inRange(each, decisions, `decision="refuse"`, theRules)+none, "refused"),
			prom(inRange(each, decisions, `decision="would_refuse"`, theRules)+none, "would be refused"),
			prom(worst(each, "weir_blocklist_blocks", theRules)+none, "blocks held")).
			without("rules").largestFirst("refused").
			with(column{name: "rule", link: &link{"Rule detail", toBoard(uidRule, map[string]string{variableRule: "${__value.text}"}, variablePrometheus, variableNamespace)}}),
	}
}

func gateFreshness() []panel {
	return []panel{
		timeseries("Staleness", "Time since Redis last answered a gate.", unitSeconds, prom(worst("instance", "weir_blocklist_staleness_seconds"), "{{instance}}")).
			thresholds(step{5, colourWarn}, step{30, colourBad}),
		timeseries("Behind", "Age of the newest moment of which a gate knows every change: so late may a block, or a release, be there.", unitSeconds,
			prom(worst("instance", "weir_blocklist_behind_seconds"), "{{instance}}")).thresholds(step{5, colourWarn}, step{30, colourBad}),
		timeseries("Blocks held by gate", "A gate that holds fewer than the others misses some.", unitCount,
			prom(sum("instance", of("weir_blocklist_blocks")), "{{instance}}")),
	}
}

func gateReloads() []panel {
	return []panel{
		timeseries("Reloads by reason", "Reasons to read all blocks again that came up, in five minutes. The first reading after a start is not among them.", unitCount,
			prom(sum("reason", "increase("+of("weir_blocklist_reloads_total")+"[5m])"), "{{reason}}")).asBars(),
		timeseries("Changes read", "Changes of blocks and modes that gates were told, by what they change.", unitPerSecond,
			prom(rate("op", "weir_blocklist_deltas_total"), "{{op}}")),
		timeseries("Failures", "Times that Redis did not answer a gate, and blocks in Redis that it did not take over, in five minutes; looks at the file that makes a gate observe which could not tell; hash slots that are not read yet.", unitCount,
			prom(orZero(sum("", "increase("+of("weir_blocklist_failures_total")+"[5m])")), "no answer"),
			prom(orZero(sum("", "increase("+of("weir_gate_observe_file_failures_total")+"[5m])")), "observe file"),
			prom(orNone(sum("reason", "increase("+of("weir_blocklist_rejected_total")+"[5m])"), "reason"), "rejected: {{reason}}"),
			prom(sum("", of("weir_blocklist_missing_slots")), "slots missing")),
	}
}

func gateLatency() []panel {
	return []panel{
		timeseries("Time of a check", "Of one check in 64: looking up in memory, without the network.", unitSeconds,
			prom(quantile(0.5, "weir_gate_check_seconds"), "p50"), prom(quantile(0.9, "weir_gate_check_seconds"), "p90"),
			prom(quantile(0.99, "weir_gate_check_seconds"), "p99")),
		heatmap("Time of a check, all of them", "How many checks took how long.", unitSeconds,
			prom(perStep("le", of("weir_gate_check_seconds_bucket")), "{{le}}")),
	}
}

func gateUnjudged() []panel {
	return []panel{
		timeseries("Client address unknown", "Requests whose client could not be told by address, by reason: the proxy sends no header for it, or is not among the trusted ones.", unitRequestsPerSecond,
			prom(orNone(rate("reason", "weir_gate_no_address_total"), "reason"), "{{reason}}")),
		timeseries("Fields that say nobody", "Requests that carry a field that blocks are by, such as a device or a user, in a way that says nobody's: its header has several lines.", unitRequestsPerSecond,
			prom(orNone(rate("field, reason", "weir_gate_missing_total"), "field"), "{{field}} {{reason}}")),
		timeseries("Malformed", "Checks that gates did not understand, by reason, and those of nginx that do not say which request it is about: only blocks of scope all can hold these.", unitRequestsPerSecond,
			prom(orNone(rate("reason", "weir_gate_malformed_total"), "reason"), "{{reason}}"),
			prom(orZero(rate("", "weir_gate_untold_total")), "request not told")),
		timeseries("Spared", "Requests of the never-block list that a block by another field would have held.", unitRequestsPerSecond,
			prom(orZero(rate("", "weir_blocklist_spared_total")), "spared")),
	}
}

func gateInstances() []panel {
	return []panel{
		table("Gates", "Every gate that Prometheus asks, with its build.", unitWhole,
			prom(worst("instance", "weir_blocklist_ready"), "ready"),
			prom(aggregate("max", "instance, version", of("weir_build_info")+" and on (job, instance) "+of("weir_blocklist_ready")), "build"),
			prom(worst("instance", "weir_gate_observing"), "observes"),
			prom(worst("instance", "weir_blocklist_staleness_seconds"), "staleness"),
			prom(sum("instance", of("weir_blocklist_blocks")), "blocks"),
			prom(rate("instance", decisions), "requests")).
			without("build").
			with(column{name: "ready", unit: unitYesNo}, column{name: "observes", unit: unitYesNo},
				column{name: "staleness", unit: unitSeconds}, column{name: "requests", unit: unitRequestsPerSecond}),
	}
}
