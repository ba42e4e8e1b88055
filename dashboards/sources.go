package dashboards

// sqlSources lists the sources with the most events over the limits of the chosen rules, with what their newest episode asked for,
// and what became of it. Blocks are looked up for those alone.
func sqlSources() string {
	return `WITH episode AS MATERIALIZED (
  SELECT h.* FROM ` + episodes(overInRange+` AND `+ofChosenRules) + `
), over AS MATERIALIZED (
  SELECT e.rule, e.subject, count(*) AS episodes, sum(e.events)::bigint AS events, max(e.peak) AS peak, max(e.rule_limit) AS rule_limit,
    min(e.first) AS first, max(e.last) AS last
  FROM episode e
  GROUP BY e.rule, e.subject
  ORDER BY events DESC, e.rule, e.subject
  LIMIT 50
), newest AS MATERIALIZED (
  SELECT DISTINCT ON (e.rule, e.subject) e.rule, e.subject, e.lineage, e.closed, e.first, e.newest_first
  FROM over JOIN episode e ON e.rule = over.rule AND e.subject = over.subject
  ORDER BY e.rule, e.subject, e.last DESC, e.first DESC, e.lineage DESC
), possible AS (
  SELECT newest.rule, newest.subject, newest.first, h.id, h.last, h.block_subject, would.until AS would, would.against, block.until AS held,
    decision.action, decision.reason, decision.until, decision.at
  FROM newest
  JOIN weir.hits_v h ON h.rule = newest.rule AND h.subject = newest.subject AND h.lineage = newest.lineage
    AND (` + closed + `) = newest.closed AND h.first BETWEEN newest.first AND newest.newest_first AND ` + overInRange + `
  LEFT JOIN weir.rules_v r ON r.rule = newest.rule
  CROSS JOIN LATERAL (SELECT ` + wouldHold + ` AS until, ` + against + ` AS against) would
  CROSS JOIN LATERAL (SELECT weir.stored_subject(h.block_subject) AS subject OFFSET 0) kept
  LEFT JOIN LATERAL (
    SELECT max(b.until) AS until FROM weir.blocks_v b
    WHERE b.stream = 'live' AND b.rule = newest.rule AND b.subject = kept.subject AND h.block_subject <> ''
  ) block ON true
  LEFT JOIN LATERAL (
    SELECT d.action, d.reason, d.until, d.at FROM weir.block_decisions_v d
    WHERE d.stream = 'live' AND d.hit = h.id ORDER BY d.at DESC, d.id LIMIT 1
  ) decision ON true
), became AS (
  SELECT p.rule, p.subject, p.first, (array_agg(p.id ORDER BY p.last DESC, p.id))[1] AS id,
    array_agg(p.block_subject ORDER BY p.last DESC, p.id) FILTER (WHERE p.block_subject <> '') AS blocks,
    count(p.held) AS holds, max(p.held) AS held,
    count(*) FILTER (WHERE p.would > now() AND p.against IS NULL) AS would_hold, max(p.would) FILTER (WHERE p.against IS NULL) AS would,
    count(p.would) AS possible, min(p.against) FILTER (WHERE p.would IS NOT NULL) AS against,
    (array_agg(ARRAY[p.action, p.reason, p.until::text] ORDER BY p.at DESC, p.id) FILTER (WHERE p.at IS NOT NULL))[1:1] AS decision
  FROM possible p
  GROUP BY p.rule, p.subject, p.first
)
SELECT over.rule, r.owner, r.mode, coalesce(weir.subject_text(over.subject), 'all that matches') AS source, over.events AS "events over", over.episodes,
  over.peak, over.rule_limit AS "limit", became.first AS "over since", over.last AS "last over", over.first AS "first in range",
  asked.requests AS "asked for", ` + holders("became.blocks") + ` AS "a block holds",
  CASE WHEN became.holds > 0 THEN became.holds WHEN r.mode = 'shadow' THEN became.would_hold ELSE 0 END AS blocks,
  CASE WHEN became.holds > 0 THEN 'held'
    WHEN became.possible = 0 THEN 'no block is possible'
    WHEN r.mode = 'shadow' AND became.would > now() THEN 'would be held'
    WHEN r.mode = 'shadow' AND became.would IS NOT NULL THEN 'would have been held'
    WHEN r.mode = 'shadow' THEN 'would be withheld: ' || became.against
    WHEN decision.action = 'withheld' THEN 'withheld: ' || decision.reason
    WHEN decision.action = 'released' THEN 'released'
    WHEN decision.action IS NOT NULL THEN 'was held'
    ELSE 'not held' END AS outcome,
  CASE WHEN became.holds > 0 THEN became.held
    WHEN r.mode = 'shadow' THEN became.would
    WHEN decision.action IN ('written', 'extended') AND decision.until <= now() THEN decision.until END AS until,
  CASE WHEN ${console:sqlstring} <> '' THEN 'open' END AS console,
  became.id
FROM over
JOIN became ON became.rule = over.rule AND became.subject = over.subject
LEFT JOIN weir.rules_v r ON r.rule = over.rule
CROSS JOIN LATERAL (
  SELECT became.decision[1][1] AS action, became.decision[1][2] AS reason, became.decision[1][3]::timestamptz AS until
) decision
LEFT JOIN LATERAL (
  SELECT string_agg(DISTINCT coalesce(nullif(concat_ws(' ', s.method, s.path, s.status), ''), s.sample), ', ') AS requests
  FROM weir.samples_v s WHERE s.stream = 'live' AND s.id = became.id AND NOT s.before
) asked ON true
ORDER BY over.events DESC, over.rule, over.subject`
}

// sqlSamples lists the sample events of the newest episodes.
func sqlSamples() string {
	return `WITH ` + newest(50, overInRange+` AND `+ofChosenRules) + `
SELECT coalesce(s.at, s.first) AS time, s.rule, coalesce(weir.subject_text(s.subject), 'all that matches') AS source, s.method, s.host, s.path, s.status,
  CASE WHEN s.before THEN 'before' ELSE 'over' END AS "limit", s.user_agent AS "user agent", s.ip, s.device, s.user_id AS "user", coalesce(s.attrs, CASE WHEN s.at IS NULL THEN s.sample END) AS attributes, s.id
FROM newest
JOIN weir.samples_v s ON s.stream = 'live' AND s.id = newest.id AND s.last ` + lastOfRange + `
ORDER BY newest.last DESC, s.id, s.number`
}
