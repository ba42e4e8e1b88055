package dashboards

// overLimit is for those who answer for an API: who is over the limits of my rules, and what would happen, or happens, to them?
func overLimit() board {
	return board{
		uid: uidOverLimit, title: "Over-limit review",
		description: "For API owners: which sources are over the limits of my rules, since when, what they asked for, and what rules in shadow " +
			"would hold beside what blocking rules do hold. A click on a rule or a source leads on.",
		from: "now-6h", refresh: "1m",
		variables: []variable{oneNamespace(), owners(), modes(), chosenRules(), consoleAddress()},
		rows: []row{
			{"Now: shadow beside blocking", []line{{4, overNow()}}},
			{"Rules", []line{{10, []panel{ruleTable(), ownersNow()}}}},
			{"Who is over", []line{{13, []panel{sourceTable()}}, {11, []panel{sampleTable()}}}},
			{"Over time: shadow beside blocking", []line{
				{8, []panel{openEpisodes("shadow"), openEpisodes("block")}},
				{8, []panel{openings("shadow"), openings("block")}},
			}},
			{"Would-be blocks beside blocks", []line{
				{8, []panel{blocksInForce("shadow"), blocksInForce("block")}},
				{8, []panel{blockDecisions("shadow"), blockDecisions("block")}},
			}},
		},
	}
}

// ruleOfMode limits a sum by rule to rules of a mode.
func ruleOfMode(mode string) string {
	return ` and on (rule) ` + eachRuleIn(mode)
}

const sumOpenEpisodes = `sum by (rule) (weir_detect_open_episodes{stream="live", ` + ofRules + `})`

func overNow() []panel {
	return []panel{
		stat("Over limit now, rules in shadow", "Episodes that are open now: sources over the limit of a rule that only watches.", unitWhole,
			prom(orZero(`sum(`+sumOpenEpisodes+ruleOfMode("shadow")+`)`), "shadow")).painted(byMode()),
		stat("Would-be blocks", "Whom the rules in shadow would hold now, had they been promoted, and canaries with all of their sources. At most: what ENFORCE would withhold is left out as far as "+
			"it can be known.", unitWhole,
			prom(orZero(`sum(weir_blocks{`+ofRules+`, mode="shadow"})`), "shadow")).painted(byMode()),
		stat("Over limit now, blocking rules", "Episodes that are open now: sources over the limit of a rule that blocks, a canary too.", unitWhole,
			prom(orZero(`sum(`+sumOpenEpisodes+ruleOfMode("block")+`)`), "block")).painted(byMode()),
		stat("Blocks", "Blocks of the chosen rules that are in force now.", unitWhole,
			prom(orZero(`sum(weir_blocks{`+ofRules+`, `+ofMode("block")+`})`), "block")).painted(byMode()),
		processesGone("Processes gone", "weir_build_info").wide(4),
	}
}

// sqlRules gives each rule what it found, and how many blocks it holds or would.
func sqlRules() string {
	return `WITH rule AS MATERIALIZED ( -- its columns are read from a document, which is done here once and not for each row
  SELECT r.* FROM weir.rules_v r WHERE NOT r.removed AND r.rule = ` + anyRule + `
), episode AS (
  SELECT h.rule, h.subject, max(h.events) AS events, max(h.last) AS last, bool_or(h.over) AS over
  FROM ` + begun(`SELECT h.rule, h.lineage, h.subject, `+closed+` AS closed, h.first, max(h.last + h.window_length) AS ends,
      max(h.events) AS events, max(h.last) AS last, bool_or(`+stillOver+`) AS over
    FROM weir.hits_v h
    JOIN rule r ON r.rule = h.rule
    WHERE `+overInRange+` AND `+ofChosenRules+`
    GROUP BY h.rule, h.lineage, h.subject, `+closed+`, h.first`) + `
  GROUP BY h.rule, h.lineage, h.subject, h.closed, h.began
), source AS (
  SELECT e.rule, e.subject, count(*) AS episodes, sum(e.events) AS events, max(e.last) AS last, bool_or(e.over) AS over
  FROM episode e
  GROUP BY e.rule, e.subject
), found AS (
  SELECT s.rule, count(*) AS sources, sum(s.episodes)::bigint AS episodes, sum(s.events)::bigint AS events, max(s.last) AS last, count(*) FILTER (WHERE s.over) AS over
  FROM source s
  GROUP BY s.rule
), would AS (
  SELECT w.rule, count(*) AS blocks
  FROM (
    SELECT DISTINCT h.rule, h.block_subject
    FROM weir.hits_v h
    JOIN rule r ON r.rule = h.rule AND r.mode = 'shadow'
    WHERE ` + overInRange + ` AND ` + ofChosenRules + ` AND ` + wouldHold + ` > now() AND ` + against + ` IS NULL
  ) w
  GROUP BY w.rule
), held AS (
  SELECT b.rule, count(*) AS blocks FROM weir.blocks_v b WHERE b.stream = 'live' AND b.rule = ` + anyRule + ` GROUP BY b.rule
)
SELECT r.rule, r.owner, r.mode, r.rule_limit AS "limit", extract(epoch FROM r.window_length)::float8 AS "window",
  coalesce(found.over, 0) AS "over now", coalesce(found.sources, 0) AS sources, coalesce(found.episodes, 0) AS episodes,
  coalesce(found.events, 0) AS "events over", coalesce(would.blocks, 0) AS "would hold now", coalesce(held.blocks, 0) AS "holds now", found.last AS "last over"
FROM rule r
LEFT JOIN found ON found.rule = r.rule
LEFT JOIN would ON would.rule = r.rule
LEFT JOIN held ON held.rule = r.rule
ORDER BY sources DESC, r.rule`
}

func ruleTable() panel {
	return table("Rules, shadow beside blocking", "Each rule in the time range: distinct sources that were over its limit, their episodes and the events "+
		"from the first to the last over event; over now: those whose episode is open. Would hold now: whom a rule in shadow would hold, of the "+
		"sources of the range; at most, since history does not know the never_block list of the configuration. Holds now: its blocks in force.", unitWhole, views(sqlRules())).
		with(column{name: "rule", link: toRule(variablePrometheus)}, column{name: "last over", unit: unitTime}, column{name: "window", unit: unitDuration},
			column{name: "mode", tinted: true}).
		modesNamed()
}

func ownersNow() panel {
	return timeseries("Over limit by owner", "Open episodes of the rules that each owner answers for, by mode.", unitWhole,
		prom(orNone(`sum by (owner, mode) (`+sumOpenEpisodes+` * on (rule) group_left (owner, mode) `+eachRule()+`)`, "owner"), "{{owner}}, {{mode}}")).stacked().wide(7)
}

func sourceTable() panel {
	return table("Top sources", "The 50 sources with the most events over the limit in the time range, by rule. Peak: the greatest number that one window of "+
		"theirs was seen to hold. Over since: when its newest episode began. Asked for: requests of that episode, the first ones over the limit. "+
		"A block holds: whom it would keep out, or does; where it is narrower than the rule, the newest three of them. Outcome, blocks and until: how many "+
		"hold the source now, or would at most were the rule promoted, and until when; withheld says why ENFORCE did not block, or would not as far as history "+
		"knows: it does not know the never_block list of the configuration. Was held without until: the block ended before its time.", unitWhole, views(sqlSources())).
		with(columnsOfSources()...).without("id").modesNamed().outcomesNamed()
}

func sampleTable() panel {
	return table("What they asked for", "Sample events of the 50 newest episodes: of each up to three from before the limit, and the first three over it, as the gateway logged them. Of API keys "+
		"only the end is kept.", unitText, views(sqlSamples())).
		with(columnsOfSamples(variablePrometheus)...).without("id")
}

// inMode is how titles name a mode.
func inMode(mode string) string {
	if mode == "shadow" {
		return "rules in shadow"
	}
	return "blocking rules"
}

func openEpisodes(mode string) panel {
	return timeseries("Sources over limit, "+inMode(mode), "Episodes open at a time, by rule: sources that were over the limit and have not been below it for a whole window since.",
		unitWhole, prom(orNone(sumOpenEpisodes+ruleOfMode(mode), "rule"), "{{rule}}")).stacked().linkedToRule(variablePostgres, variableConsole)
}

func openings(mode string) panel {
	return timeseries("Episodes that began, "+inMode(mode), "How many sources went over the limit, by rule. One that comes back after a whole window below it counts again.",
		unitWhole, prom(orNone(perStep("rule", `weir_detect_episodes_total{stream="live", `+ofRules+`}`)+ruleOfMode(mode), "rule"), "{{rule}}")).
		asBars().stacked().linkedToRule(variablePostgres, variableConsole)
}

func blocksInForce(mode string) panel {
	title, description := "Blocks in force by rule", "Blocks that hold somebody."
	if mode == "shadow" {
		title, description = "Would-be blocks by rule", "Whom a rule in shadow would hold, had it been promoted: until when, its ttl and extend say."
	}
	return timeseries(title, description, unitWhole, prom(orNone(`sum by (rule) (weir_blocks{`+ofRules+`, `+ofMode(mode)+`})`, "rule"), "{{rule}}")).stacked().linkedToRule(variablePostgres, variableConsole)
}

func blockDecisions(mode string) panel {
	title, description := "Decisions about blocks", "What ENFORCE did with the hits of blocking rules, canaries too, and what it withheld, by reason."
	if mode == "shadow" {
		title, description = "Would-be decisions", "What ENFORCE would have done with the hits of rules in shadow, and what it would have withheld, by reason."
	}
	return timeseries(title, description, unitWhole, prom(
		happened("rule, action, reason", `weir_enforce_decisions_total{`+ofRules+`, mode="`+mode+`"}`, "rule"),
		"{{rule}} {{action}} {{reason}}")).
		asBars().stacked().linkedToRule(variablePostgres, variableConsole)
}
