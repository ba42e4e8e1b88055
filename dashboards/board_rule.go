package dashboards

// ruleDetail is one rule from all sides: what it counts, whom it finds, what it does about them, and when somebody changed it.
func ruleDetail() board {
	return board{
		uid: uidRule, title: "Rule detail",
		description: "One rule: what it counts and leaves out, which sources are over its limit, what it holds or would hold. Its versions and changes of mode are marked.",
		from:        "now-6h", refresh: "1m",
		variables:   []variable{oneNamespace(), oneRule(), consoleAddress()},
		annotations: []annotation{changesOfMode(), versions()},
		rows: []row{
			{"The rule", []line{{4, ruleSummary()}}},
			{"Who is over", []line{{12, []panel{sourceTable()}}, {10, []panel{sampleTable()}}}},
			{"Over time", []line{
				{8, []panel{sourcesOverTime(), episodesByPhase()}},
				{8, []panel{peaks(), eventsOver()}},
				{7, []panel{beside()}},
			}},
			{"What it does about them", []line{{8, []panel{decisionsOverTime(), decisionRates()}},
				{8, []panel{holding(), gateAnswers()}}, {8, []panel{refusedOverTime(), falsePositives()}}}},
			{"What it counts, and does not", []line{{8, []panel{routed(), uncounted()}}, {8, []panel{uncountedByMinute(), missing()}}}},
			{"Decisions and versions", []line{{10, []panel{decisionTable()}}, {8, []panel{changeTable()}}}},
		},
	}
}

const ofRule = `rule = ${rule:sqlstring}`

func changesOfMode() annotation {
	return annotation{name: "Changes of mode", colour: colourBlock, query: views(`SELECT a.at AS time,
  concat_ws(' ', a.action, 'by', a.actor) || CASE WHEN a.reason = '' THEN '' ELSE ': ' || a.reason END AS text, a.action AS tags
FROM weir.audit_v a
WHERE a.object = 'rule ' || ${rule:sqlstring} AND a.action IN ('promote', 'demote', 'disable', 'enable', 'remove') AND $__timeFilter(a.at)
ORDER BY a.at`)}
}

func versions() annotation {
	return annotation{name: "Versions", colour: colourNeutral, query: views(`SELECT v.created_at AS time,
  'version ' || v.version || ' by ' || v.author || CASE WHEN v.reason = '' THEN '' ELSE ': ' || v.reason END AS text, 'version' AS tags
FROM weir.rule_versions_v v
WHERE v.` + ofRule + ` AND $__timeFilter(v.created_at)
ORDER BY v.created_at`)}
}

func ruleSummary() []panel {
	return []panel{
		stat("Mode", "Whether the rule only watches (shadow), blocks a share (canary), blocks, or is off, and the version that is in force.", unitText,
			views(`SELECT r.mode, 'version ' || r.version AS version FROM weir.rules_v r WHERE r.`+ofRule)).
			modesNamed().wide(4),
		stat("Owner", "The team that answers for the rule.", unitText, views(`SELECT r.owner FROM weir.rules_v r WHERE r.`+ofRule)).wide(4),
		stat("Limit", "How many may come in one window before a source is over.", unitWhole,
			views(`SELECT r.rule_limit AS "limit" FROM weir.rules_v r WHERE r.`+ofRule)).wide(4),
		stat("Window and block", "How long a window is, and how long a block would hold; none: the rule names no block.", unitDuration,
			views(`SELECT extract(epoch FROM r.window_length)::float8 AS "window", extract(epoch FROM r.block_ttl)::float8 AS block
FROM weir.rules_v r WHERE r.`+ofRule)).wide(4).ifEmpty("none"),
		stat("Over limit now", "Sources whose episode is open.", unitWhole, prom(orZero(sum("", sumOpenEpisodes)), "over limit")).wide(4),
		stat("Holds, or would", "Blocks in force, of a rule in shadow would-be blocks; of a canary both.", unitWhole,
			prom(orNone(`sum by (mode) (weir_blocks{`+ofRules+`})`, "mode"), "{{mode}}")).painted(byMode()).wide(4),
	}
}

// sqlSourcesOverTime counts a source in each step of the time range that one of its episodes touches.
const sqlSourcesOverTime = `SELECT step.time, count(DISTINCT h.subject) AS sources
FROM weir.hits_v h
CROSS JOIN LATERAL generate_series(
  to_timestamp(floor(extract(epoch FROM greatest(h.first, $__timeFrom()::timestamptz)) / ($__interval_ms / 1000.0)) * ($__interval_ms / 1000.0)),
  least(h.last, $__timeTo()::timestamptz), make_interval(secs => $__interval_ms / 1000.0)) AS step (time)
WHERE ` + overInRange + ` AND h.` + ofRule + `
GROUP BY step.time
ORDER BY step.time`

func sourcesOverTime() panel {
	return timeseries("Sources over limit", "Distinct sources with an over-limit episode at the time, from its first to its last over event.", unitWhole, views(sqlSourcesOverTime)).asBars()
}

func episodesByPhase() panel {
	return timeseries("Episodes", "Records about episodes by phase: open, a source went over; update, it is still over; closed, it stayed below for a whole window; "+
		"merged, a late event joined two.", unitWhole,
		prom(perStep("phase", `weir_detect_hits_total{stream="live", kind="hit", `+ofRules+`}`), "{{phase}}")).asBars().stacked()
}

func beside() panel {
	return timeseries("Beside the limit", "Records about what is never enforced: sources that came near the limit (near), and those over the limit of a candidate or a pending version "+
		"(candidate), by phase; and sources near the limit of which no warning was sent, since too many came in a minute.", unitWhole,
		prom(happened("kind, phase", `weir_detect_hits_total{stream="live", kind=~"near|candidate", `+ofRules+`}`, "kind"), "{{kind}} {{phase}}"),
		prom(orZero(perStep("", `weir_detect_near_left_out_total{stream="live", `+ofRules+`}`)), "near, not warned of")).asBars().stacked().
		painted([]paint{{"near, not warned of", colourWarn}}).ifEmpty("None: no near, candidate or pending version")
}

func peaks() panel {
	return timeseries("Peaks against the limit", "The greatest number that one window of a source was seen to hold, by the time of its last over event; and the limit. "+
		"Of a source that is over no more is kept than is needed, so the peak is a lower bound.", unitWhole,
		views(`SELECT $__timeGroupAlias(h.last,$__interval), max(h.peak) AS "highest peak", max(h.rule_limit) AS "limit"
FROM `+episodes(overInRange+` AND h.`+ofRule)+`
WHERE $__timeFilter(h.last)
GROUP BY 1
ORDER BY 1`)).painted([]paint{{"limit", colourWarn}})
}

func eventsOver() panel {
	return timeseries("Events over the limit", "Events that the rule counted, and those among them that were over the limit.", unitEventsPerSecond,
		prom(`sum by (outcome) (rate(weir_detect_rule_events_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "{{outcome}}")).
		painted([]paint{{"over", colourWarn}}).logarithmic()
}

func decisionsOverTime() panel {
	return timeseries("Decisions", "What ENFORCE did, and what it withheld and why, as history has it. A rule in shadow has none.", unitWhole, views(sqlDecisions)).
		asBars().stacked().ifEmpty("None: a rule in shadow has no decisions")
}

func decisionRates() panel {
	return timeseries("Decisions, and what shadow would decide", "By mode: written and extended are blocks, would_write and would_withhold what a rule in shadow would do.", unitWhole,
		prom(happened("mode, action, reason", `weir_enforce_decisions_total{`+ofRules+`}`, "mode"), "{{mode}}: {{action}} {{reason}}")).
		asBars().stacked()
}

func holding() panel {
	return timeseries("Blocks", "Blocks in force by ENFORCE's decisions (block), would-be blocks (shadow), and the blocks of the rule that gates have in their copies (gate).",
		unitWhole, prom(orNone(`sum by (mode) (weir_blocks{`+ofRules+`})`, "mode"), "{{mode}}"), prom(`max by (rule) (weir_blocklist_blocks{`+ofRules+`})`, "gate")).painted(byMode())
}

func gateAnswers() panel {
	return timeseries("Refused at gates", "Requests that gates refused because of the rule, or would have refused (gates that only observe).", unitRequestsPerSecond,
		prom(orNone(`sum by (decision) (rate(weir_gate_decisions_total{`+ofRules+`}[$__rate_interval]))`, "decision"), "{{decision}}")).painted(byDecision())
}

func routed() panel {
	return timeseries("What became of matching events", "Events that match the rule, by outcome at ROUTE. Those that go on are counted in a window; allow lists "+
		"let the others pass, by list.", unitEventsPerSecond,
		prom(`sum by (outcome) (rate(weir_route_rule_events_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "{{outcome}}"),
		prom(orNone(`sum by (list) (rate(weir_route_allowed_events_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "list"), "let pass: {{list}}"))
}

func uncounted() panel {
	return timeseries("Not counted, by reason", "Events that match the rule and were left out: too late, out of order where order matters, without a field of the key, "+
		"without the value that is counted.", unitEventsPerSecond,
		prom(orNone(`sum by (reason) (rate(weir_rule_uncounted_events_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "reason"), "{{reason}}"))
}

func uncountedByMinute() panel {
	return timeseries("Not counted, from history", "The same, by the minute of arrival as history keeps it: sums of events.", unitWhole,
		views(`SELECT $__timeGroupAlias(u.minute,$__interval), u.reason AS metric, sum(u.events)::float8 AS value
FROM weir.uncounted_v u
WHERE u.stream = 'live' AND $__timeFilter(u.minute) AND u.`+ofRule+`
GROUP BY 1, 2
ORDER BY 1, 2`)).asBars().stacked().ifEmpty("All was counted")
}

func missing() panel {
	return timeseries("What events lack", "Events without a field of the rule's key, without the value it counts, those that a condition could not judge, and those judged by a greater limit since that of a tier could not, by field and reason. Fix the gateway's log, or the rule.",
		unitEventsPerSecond,
		prom(orNone(`sum by (field) (rate(weir_route_rule_key_missing_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "field"), "key: {{field}}"),
		prom(orNone(`sum by (reason) (rate(weir_route_rule_value_missing_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "reason"), "value: {{reason}}"),
		prom(orNone(`sum by (reason) (rate(weir_route_rule_condition_errors_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "reason"), "condition: {{reason}}"),
		prom(orNone(`sum by (reason) (rate(weir_route_rule_tier_errors_total{stream="live", `+ofRules+`}[$__rate_interval]))`, "reason"), "tier: {{reason}}"))
}

func decisionTable() panel {
	return table("Newest decisions", "What ENFORCE did or withheld, newest first: whom, why, since when the source was over, until when the block lasts.", unitText,
		views(`SELECT h.at, h.action, h.reason, coalesce(weir.subject_text(h.subject), 'all that matches') AS source, h.since AS "over since", h.until, h.decided_by AS "by", h.hit AS id
FROM weir.block_decisions_v h
WHERE h.stream = 'live' AND $__timeFilter(h.at) AND h.`+ofRule+`
ORDER BY h.at DESC, h.id
LIMIT 100`)).with(
		column{name: "at", unit: unitTime}, column{name: "over since", unit: unitTime}, column{name: "until", unit: unitTime},
		column{name: "source", link: toSource(), width: 260}).without("id")
}

func changeTable() panel {
	return table("Changes", "Everything that people did to the rule, newest first, whatever the time range.", unitText,
		views(`SELECT a.at, a.actor, a.action, a.reason, a.detail
FROM weir.audit_v a
WHERE a.object = 'rule ' || ${rule:sqlstring}
ORDER BY a.at DESC
LIMIT 100`)).with(column{name: "at", unit: unitTime, width: 190}, column{name: "detail", wrapped: true})
}
