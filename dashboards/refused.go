package dashboards

// refusedOfChosen are sums r of refusals_v in the time range, of the rules and the source that are chosen. A block is
// named by the first digits of the hit behind it, which lies before the time range where the block lasts long: it is
// looked up by its id.
const refusedOfChosen = `r.stream = 'live' AND $__timeFilter(r.minute) AND r.rule = ` + anyRule + `
    AND (` + theSource + ` = '' OR r.block <> '' AND EXISTS (SELECT FROM weir.hits_v h
      WHERE h.stream = 'live' AND h.rule = r.rule AND h.id >= r.block AND h.id < r.block || 'g' AND ` + ofSource + `))`

// whileItBlocked is when the rule blocked, as the audit trail says: b, from since until before until. A minute is of
// the mode in which it began.
const whileItBlocked = `(SELECT c.at AS since, c.until FROM (
    SELECT a.action, a.at, lead(a.at, 1, 'infinity') OVER (ORDER BY a.seq) AS until FROM weir.audit_v a
    WHERE a.object = 'rule ' || ${rule:sqlstring} AND a.action IN ('promote', 'canary', 'demote', 'fall-back', 'disable', 'enable', 'remove')) c
  WHERE c.action IN ('promote', 'canary')) b`

// refusedOverTime has what is real beside what would have been, of different minutes or of different requests.
func refusedOverTime() panel {
	const real, would = "refused by gates", "would have been refused"
	return timeseries("Requests refused, and would have been",
		"Requests that gates refused, as they came back in the log, by the requests' own time; and those that the block alone "+
			"would have refused in the minutes in which the rule blocked nobody. No request is in both. None is refused where gateways do not log what they refuse.", unitWhole,
		views(`SELECT $__timeGroupAlias(r.minute,$__interval), '`+real+`' AS metric, sum(r.events)::float8 AS value
FROM weir.refusals_v r
WHERE r.stream = 'live' AND $__timeFilter(r.minute) AND r.`+ofRule+`
GROUP BY 1
UNION ALL
SELECT $__timeGroupAlias(m.minute,$__interval), '`+would+`' AS metric, sum(m.refused)::float8 AS value
FROM weir.rule_minutes_v m
WHERE m.stream = 'live' AND m.kind = 'hit' AND $__timeFilter(m.minute) AND m.`+ofRule+`
  AND NOT EXISTS (SELECT FROM `+whileItBlocked+` WHERE m.minute >= b.since AND m.minute < b.until)
GROUP BY 1
ORDER BY 1, 2`)).asBars().painted([]paint{{real, colourBlock}, {would, colourShadow}}).ifEmpty("None")
}

// falsePositives are shares, each NULL where it is not known: of nothing there is none.
func falsePositives() panel {
	return stat("False positives, at least",
		"Of the blocks that were written in the time range, those that somebody has released by now; of the requests that gates refused, those "+
			"for which known_good holds. Lower bounds: not everybody calls, and not everybody who is good is known to be. Not known: no block was written, nothing was refused, or known_good judged no event.", unitShare,
		views(`WITH written AS (
  SELECT DISTINCT h.hit, h.subject FROM weir.block_decisions_v h
  WHERE h.stream = 'live' AND h.action = 'written' AND $__timeFilter(h.at) AND h.`+ofRule+`
)
SELECT (SELECT (count(*) FILTER (WHERE EXISTS (SELECT FROM weir.block_decisions_v h
      WHERE h.stream = 'live' AND h.action = 'released' AND h.`+ofRule+` AND h.subject = w.subject AND h.hit = w.hit)))::float8 / nullif(count(*), 0)
    FROM written w) AS "blocks released",
  (SELECT CASE WHEN sum(r.known_good) > 0 OR EXISTS (SELECT FROM weir.event_minutes_v e
        WHERE e.stream = 'live' AND $__timeFilter(e.minute) AND e.events - e.refused > e.unjudged)
      THEN sum(r.known_good)::float8 / nullif(sum(r.events), 0) END
    FROM weir.refusals_v r
    WHERE r.stream = 'live' AND $__timeFilter(r.minute) AND r.`+ofRule+`) AS "refused requests known good"`)).ifEmpty("not known")
}

// refusedTotals are both figures of the rules and the source that are chosen.
func refusedTotals() panel {
	return stat("Refused, and would be",
		"Requests that gates refused in the time range, by blocks of whatever episodes; and those that blocks alone would have refused from the first to the last event of "+
			"the episodes, whole ones. What was refused feeds no episode: no request is in both.", unitWhole,
		views(`SELECT (SELECT coalesce(sum(r.events), 0)::bigint FROM weir.refusals_v r WHERE `+refusedOfChosen+
			`) AS refused,
  (SELECT coalesce(sum(h.refused), 0)::bigint FROM weir.hits_v h WHERE `+chosenEpisodes+`) AS "would be"`))
}
