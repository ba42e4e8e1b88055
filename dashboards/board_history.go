package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// history is for analysts: who was over when, from which networks, and who comes again.
func history() board {
	return board{
		uid: uidHistory, title: "History",
		description: "For analysts: over-limit sources by day, by rule and by network, repeat offenders and long episodes, and what was decided about them. " +
			"All of it is SQL on the views that docs/history.md describes.",
		from: "now-7d",
		variables: []variable{
			oneNamespace(),
			sqlVariable(variableOwner, "Owner", "Whose rules", schemaIn(`SELECT DISTINCT r.owner FROM weir.rules_v r ORDER BY 1`)),
			sqlVariable(variableRule, "Rule", "Which rules, of those of the owners chosen; rules that were removed are among them",
				schemaIn(`SELECT r.rule FROM weir.rules_v r WHERE `+ofOwners+` ORDER BY 1`)),
			sourceFilter(), consoleAddress(),
		},
		rows: []row{
			{"In the time range", []line{{4, historyTotals()}}},
			{"By day", []line{{9, []panel{sourcesByDay(), episodesByDay()}}, {9, []panel{decisionsByDay(), eventsByDay()}}}},
			{"By rule and network", []line{{11, []panel{byRule(), byNetwork()}}}},
			{"Who comes again, and who stays", []line{{11, []panel{repeatOffenders(), longestEpisodes()}}}},
			{"What they asked for", []line{{11, []panel{requestsOver(), sampleOfSource()}}}},
			{"Episodes", []line{{13, []panel{episodeTable()}}, {10, []panel{decisionsOfSource()}}}},
		},
	}
}

func sourceFilter() variable {
	return dashboard.NewTextBoxVariableBuilder(variableSource).Label("Source").
		Description("An address, a prefix, a device, a user, or the id of an episode, which stands for its source. Empty: all sources").
		DefaultValue(words("")).Current(option("", ""))
}

// theSource is what was typed: newer versions of Grafana make \" of a double quote, whose backslash PostgreSQL takes for a part of the value.
const theSource = `replace(${source:sqlstring}, '\"', '"')`

// ofOwners limits rules r to those of the owners chosen. Names of owners are free text.
const ofOwners = `(r.owner = ` + anyOwner + ` OR replace(r.owner, '"', '\"') = ` + anyOwner + `)`

// ofSource limits rows of h, which have a subject and its values, to the source that the variable names; empty: all of them. Rows about
// blocks have long values as digests.
const ofSource = `(` + theSource + ` = ''
    OR ARRAY[h.subject, h.device, h.user_id, h.api_key, h.session] && weir.source_forms(` + theSource + `)
    OR h.ip <<= weir.parse_address(` + theSource + `) OR h.ip >>= weir.parse_address(` + theSource + `)
    OR h.subject IN (SELECT unnest(weir.source_forms(o.subject) || weir.source_forms(nullif(o.block_subject, ''))) ` + ofEpisode + `)
      AND (h.subject <> '' OR h.rule IN (SELECT o.rule ` + ofEpisode + `)))`

// ofEpisode is after a SELECT: the row o whose id is typed. All that matches a rule without a key is a source of that rule alone.
const ofEpisode = `FROM weir.hits_v o WHERE o.stream = 'live' AND o.id = ` + theSource

// chosenEpisodes is the condition of all panels that are about episodes.
const chosenEpisodes = overInRange + ` AND ` + ofChosenRules + ` AND ` + ofSource

// network is the /24 or, of IPv6, /48 that an address or a prefix lies in.
const network = `set_masklen(h.ip, least(masklen(h.ip), CASE family(h.ip) WHEN 4 THEN 24 ELSE 48 END))`

func historyTotals() []panel {
	total := func(title, description, value string) panel {
		return stat(title, description, unitWhole, views(`SELECT `+value+` AS value FROM `+episodes(chosenEpisodes)))
	}
	return []panel{
		total("Sources over limit", "Distinct sources with an episode that touches the time range. One subject is one source, whatever the rule.", `count(DISTINCT h.subject)`),
		total("Episodes", "Runs of a source over a rule's limit that touch the time range. Merged ones are no offence, and left out.", `count(*)`),
		total("Networks", "Distinct /24 and, of IPv6, /48 networks of their addresses.", `count(DISTINCT `+network+`)`),
		total("Rules", "Rules that found somebody.", `count(DISTINCT h.rule)`),
		total("Events over", "Events from the first to the last over event of the episodes, whole ones: also what lies outside the time range.", `coalesce(sum(h.events), 0)::bigint`),
		refusedTotals(),
	}
}

// byDay counts value for each day, in UTC, that an episode touches, and each rule.
func byDay(value string) string {
	return `SELECT day.time, h.rule AS metric, ` + value + ` AS value
FROM ` + episodes(chosenEpisodes) + `
CROSS JOIN LATERAL generate_series(date_trunc('day', greatest(h.first, $__timeFrom()::timestamptz), 'UTC'),
  least(h.last, $__timeTo()::timestamptz), interval '1 day') AS day (time)
GROUP BY 1, 2
ORDER BY 1, 2`
}

func sourcesByDay() panel {
	return timeseries("Over-limit sources by day", "Distinct sources that were over on the day (UTC), by rule. A source that is over on two rules is in both.", unitWhole,
		views(byDay(`count(DISTINCT h.subject)`))).asBars().stacked()
}

func episodesByDay() panel {
	return timeseries("Episodes by day", "Episodes that touch the day (UTC), by rule.", unitWhole, views(byDay(`count(*)`))).asBars().stacked()
}

func eventsByDay() panel {
	return timeseries("Events over by day", "Events of the episodes by the day (UTC) of their last over event, by rule.", unitWhole,
		views(`SELECT $__timeGroupAlias(h.last,'1d'), h.rule AS metric, sum(h.events)::float8 AS value
FROM `+episodes(chosenEpisodes)+`
WHERE $__timeFilter(h.last)
GROUP BY 1, 2
ORDER BY 1, 2`)).asBars().stacked()
}

func decisionsByDay() panel {
	return timeseries("Decisions by day", "What ENFORCE did, and what it withheld and why, by day (UTC).", unitWhole,
		views(`SELECT $__timeGroupAlias(h.at,'1d'), h.action || CASE WHEN h.action = 'withheld' THEN ': ' || h.reason ELSE '' END AS metric, count(*) AS value
FROM weir.block_decisions_v h
WHERE h.stream = 'live' AND $__timeFilter(h.at) AND `+ofChosenRules+` AND `+ofSource+`
GROUP BY 1, 2
ORDER BY 1, 2`)).asBars().stacked().ifEmpty("No decisions in the time range")
}

func byRule() panel {
	return table("By rule", "What each rule found in the time range. Would refuse: requests that its block alone would have refused, of these episodes; refused: requests that gates refused in the time range. "+
		"Longest: from the first to the last over event.", unitWhole,
		views(`SELECT h.rule, max(r.owner) AS owner, count(DISTINCT h.subject) AS sources, count(*) AS episodes, sum(h.events)::bigint AS "events over",
  coalesce(max(would.refused), 0)::bigint AS "would refuse", coalesce(max(gated.events), 0)::bigint AS refused,
  extract(epoch FROM max(h.last - h.first))::float8 AS longest, max(h.last) AS "last over"
FROM `+episodes(chosenEpisodes)+`
LEFT JOIN (SELECT h.rule, sum(h.refused) AS refused FROM weir.hits_v h WHERE `+chosenEpisodes+` GROUP BY 1) would ON would.rule = h.rule
LEFT JOIN (SELECT r.rule, sum(r.events) AS events FROM weir.refusals_v r WHERE `+refusedOfChosen+` GROUP BY 1) gated ON gated.rule = h.rule
LEFT JOIN weir.rules_v r ON r.rule = h.rule
GROUP BY h.rule
ORDER BY sources DESC, h.rule`)).
		with(column{name: "rule", link: toRule()}, column{name: "longest", unit: unitDuration}, column{name: "last over", unit: unitTime})
}

func byNetwork() panel {
	return table("By network", "The 100 networks with the most over-limit sources: /24 of IPv4, /48 of IPv6; wider where the rule's own prefix is.", unitWhole,
		views(`SELECT `+network+`::text AS network, count(DISTINCT h.subject) AS sources, count(DISTINCT h.ip) AS addresses, count(DISTINCT h.rule) AS rules,
  count(*) AS episodes, sum(h.events)::bigint AS "events over", max(h.last) AS "last over"
FROM `+episodes(chosenEpisodes+` AND h.ip IS NOT NULL`)+`
GROUP BY 1
ORDER BY sources DESC, episodes DESC, 1
LIMIT 100`)).
		with(column{name: "network", link: toNetwork()}, column{name: "last over", unit: unitTime})
}

// toNetwork shows the same board for the network that was clicked.
func toNetwork() *link {
	return &link{"Only ${__value.text}", toBoard(uidHistory, map[string]string{variableSource: "${__data.fields.network:percentencode}"},
		kept(variableOwner, variableRule)...)}
}

func repeatOffenders() panel {
	return table("Repeat offenders", "The 100 sources that were over most often: two episodes or more. Days: on how many days (UTC) an episode began.", unitWhole,
		views(`WITH again AS (
  SELECT h.subject, count(*) AS episodes, count(DISTINCT date_trunc('day', h.first, 'UTC')) AS days, count(DISTINCT h.rule) AS rules,
    sum(h.events)::bigint AS events, min(h.first) AS first, max(h.last) AS last, min(h.id) AS id
  FROM `+episodes(chosenEpisodes)+`
  GROUP BY h.subject, CASE h.subject WHEN '' THEN h.rule END
  HAVING count(*) > 1
  ORDER BY episodes DESC, events DESC, h.subject
  LIMIT 100
)
SELECT coalesce(weir.subject_text(again.subject), 'all that matches') AS source, again.episodes, again.days, again.rules, again.events AS "events over", again.first AS "first in range",
  again.last AS "last over", again.id
FROM again
ORDER BY again.episodes DESC, again.events DESC, again.subject`)).
		with(column{name: "source", link: toSource(), width: 260}, column{name: "first in range", unit: unitTime}, column{name: "last over", unit: unitTime}).
		without("id")
}

func longestEpisodes() panel {
	return table("Longest episodes", "The 100 episodes that lasted longest, from the first to the last over event. Cut: it was closed because it had lasted 24 hours.", unitWhole,
		views(`WITH longest AS (
  SELECT h.id, h.rule, h.subject, h.last - h.first AS lasted, h.events, h.peak, h.rule_limit, h.first, h.cut
  FROM `+episodes(chosenEpisodes)+`
  ORDER BY lasted DESC, h.id
  LIMIT 100
)
SELECT l.rule, coalesce(weir.subject_text(l.subject), 'all that matches') AS source, extract(epoch FROM l.lasted)::float8 AS lasted, l.events AS "events over", l.peak,
  l.rule_limit AS "limit", l.first AS "over since", l.cut, l.id
FROM longest l
ORDER BY l.lasted DESC, l.id`)).
		with(column{name: "rule", link: toRule()}, column{name: "source", link: toSource(), width: 260}, column{name: "lasted", unit: unitDuration},
			column{name: "over since", unit: unitTime}).without("id")
}

// newestEpisodes bounds the panels that look into the evidence: it is large, and the newest says enough.
func newestEpisodes() string { return `WITH ` + newest(1000, chosenEpisodes) }

func requestsOver() panel {
	return table("What was asked for", "Methods and paths in the sample events over the limit of the 1000 newest episodes: how many samples, of how many sources.", unitWhole,
		views(newestEpisodes()+`
SELECT s.method, s.path, count(*) AS samples, count(DISTINCT s.subject) AS sources, count(DISTINCT s.user_agent) AS "user agents",
  count(DISTINCT s.rule) AS rules
FROM newest
JOIN weir.samples_v s ON s.stream = 'live' AND s.id = newest.id AND s.last `+lastOfRange+` AND NOT s.before
GROUP BY s.method, s.path
ORDER BY samples DESC, s.path, s.method
LIMIT 100`)).with(column{name: "path", wrapped: true})
}

func sampleOfSource() panel {
	return table("Sample events", "Sample events of the 1000 newest episodes, the newest 200: of each up to three from before the limit, and the first three over it, as the gateway logged them.", unitText,
		views(newestEpisodes()+`
SELECT coalesce(s.at, s.first) AS time, s.rule, coalesce(weir.subject_text(s.subject), 'all that matches') AS source, s.method, s.path, s.status,
  CASE WHEN s.before THEN 'before' ELSE 'over' END AS "limit", s.user_agent AS "user agent", s.id
FROM newest
JOIN weir.samples_v s ON s.stream = 'live' AND s.id = newest.id AND s.last `+lastOfRange+`
ORDER BY newest.last DESC, s.id, s.number
LIMIT 200`)).with(columnsOfSamples()...).without("id")
}

func episodeTable() panel {
	return table("Newest episodes", "The newest 200 episodes, whole: ids lead from here to weir why and to the console.", unitWhole,
		views(`WITH `+newest(200, chosenEpisodes)+`
SELECT newest.first AS "over since", newest.last AS "last over", newest.rule, newest.phase, coalesce(weir.subject_text(newest.subject), 'all that matches') AS source,
  newest.events AS "events over", newest.peak, newest.rule_limit AS "limit", newest.users, newest.devices, `+holders("newest.blocks")+` AS "a block holds", newest.id
FROM newest
ORDER BY newest.last DESC, newest.id
LIMIT 200`)).
		with(column{name: "over since", unit: unitTime}, column{name: "last over", unit: unitTime}, column{name: "rule", link: toRule()},
			column{name: "source", link: toSource(), width: 260}, column{name: "a block holds", width: 240})
}

func decisionsOfSource() panel {
	return table("Decisions", "The newest 200 decisions: what ENFORCE did or withheld, why, and until when.", unitText,
		views(`SELECT h.at, h.rule, h.action, h.reason, coalesce(weir.subject_text(h.subject), 'all that matches') AS source, h.since AS "over since", h.until, h.decided_by AS "by", h.hit AS id
FROM weir.block_decisions_v h
WHERE h.stream = 'live' AND $__timeFilter(h.at) AND `+ofChosenRules+` AND `+ofSource+`
ORDER BY h.at DESC, h.id
LIMIT 200`)).
		with(column{name: "at", unit: unitTime}, column{name: "rule", link: toRule()}, column{name: "over since", unit: unitTime},
			column{name: "until", unit: unitTime}, column{name: "source", link: toSource(), width: 260})
}
