package dashboards

import "fmt"

// episodes are the rows of hits_v under a condition, each episode once, in the place of hits_v h. An episode has a row for each block that
// it may lead to, where the block's key is narrower than the rule's: each with all of its events, and a last of its own. Its rows are
// those of its source that are closed, or are not, with a first between its first and newest_first.
func episodes(where string) string {
	return `(
  SELECT h.rule, h.lineage, h.subject, h.ip, h.closed, h.began AS first, max(h.first) AS newest_first, max(h.last) AS last, max(h.events) AS events,
    max(h.peak) AS peak, max(h.rule_limit) AS rule_limit, bool_or(h.cut) AS cut, min(h.id) AS id
  FROM ` + begun(`SELECT h.rule, h.lineage, h.subject, h.ip, `+closed+` AS closed, h.first, max(h.last + h.window_length) AS ends, max(h.last) AS last,
      max(h.events) AS events, max(h.peak) AS peak, max(h.rule_limit) AS rule_limit, bool_or(h.cut) AS cut, min(h.id) AS id
    FROM weir.hits_v h
    WHERE `+where+`
    GROUP BY h.rule, h.lineage, h.subject, `+closed+`, h.first, h.ip`) + `
  GROUP BY h.rule, h.lineage, h.subject, h.ip, h.closed, h.began
) h`
}

// closed is true of a row h of hits_v that says no more than it does.
const closed = `h.phase = 'closed'`

// begun adds to rows h when their episodes began, in the place of hits_v h. Rows have rule, lineage, subject, first, whether they are closed, and
// ends, a window after their last. The rows of a closed episode have the same first. While one runs a late event moves its beginning, of
// which DETECT tells with the next report about each block: until then its rows differ, by less than a window from one to the next.
func begun(rows string) string {
	const source = `PARTITION BY h.rule, h.lineage, h.subject, h.closed ORDER BY h.first`
	return `(
    SELECT h.*, max(h.first) FILTER (WHERE h.apart) OVER (` + source + `) AS began
    FROM (
      SELECT h.*, h.closed OR coalesce(h.first >= max(h.ends) OVER (` + source + ` ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS apart
      FROM (` + rows + `) h
    ) h
  ) h`
}

// mostBlocks is how many rows one episode may have: detectors.MaxTuples, and one for all other blocks.
const mostBlocks = 65

// newest are the newest episodes under a condition, without reading all: so many rows are of so many episodes, at least. The id is that of
// the row that knows most.
func newest(episodes int, where string) string {
	rows := fmt.Sprintf("SELECT h.*, %s AS closed, h.last + h.window_length AS ends FROM weir.hits_v h WHERE %s ORDER BY h.last DESC, h.id LIMIT %d", closed, where, mostBlocks*episodes)
	return fmt.Sprintf(`newest AS (
  SELECT h.rule, h.subject, h.began AS first, max(h.last) AS last, max(h.events) AS events, max(h.peak) AS peak, max(h.rule_limit) AS rule_limit,
    max(h.users) AS users, max(h.devices) AS devices, coalesce(max(h.phase) FILTER (WHERE h.phase <> 'closed'), 'closed') AS phase,
    (array_agg(h.id ORDER BY h.last DESC, h.id))[1] AS id,
    array_agg(h.block_subject ORDER BY h.last DESC, h.id) FILTER (WHERE h.block_subject <> '') AS blocks
  FROM %s
  GROUP BY h.rule, h.lineage, h.subject, h.closed, h.began
  ORDER BY last DESC, id
  LIMIT %d
)`, begun(rows), episodes)
}

// holders writes for reading whom blocks would hold, an array of their subjects: the first three, and how many more there are.
func holders(blocks string) string {
	return `(SELECT string_agg(weir.subject_text(b.subject), ', ' ORDER BY b.number) FROM unnest((` + blocks + `)[:3]) WITH ORDINALITY AS b (subject, number))
    || CASE WHEN cardinality(` + blocks + `) > 3 THEN ' and ' || cardinality(` + blocks + `) - 3 || ' more' ELSE '' END`
}

// stillOver is true of a row h of rule r whose episode is open. History has of a running episode what was sent once in a cooldown, and
// DETECT closes it a window and the lateness after its last over event: what is older was left open by a DETECT that is gone.
const stillOver = `h.phase IN ('open', 'update') AND h.last + h.window_length + r.cooldown + r.lateness > now()`

// wouldHold is until when a block of a row h of rule r would last, as ENFORCE reckons; NULL where no block is possible.
const wouldHold = `CASE WHEN h.grouped OR h.block_subject = '' THEN NULL
    WHEN r.block_extend = 'on-hit' THEN h.last + r.block_ttl ELSE h.first + r.block_ttl END`

// against is why ENFORCE would not write the block of a row h of rule r, as far as history knows. The installation's own never_block list is
// not known there. A closed row says when it was first seen, and no more when the last report before the closing one was.
const against = `CASE WHEN weir.never_blocked(h.block_subject) THEN 'never_block'
    WHEN CASE h.phase WHEN 'closed' THEN h.seen_first - h.last ELSE least(h.seen_first - h.first, h.seen_last - h.last) END > r.max_lag THEN 'max_lag' END`
