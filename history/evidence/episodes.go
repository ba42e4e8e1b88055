package evidence

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// episodes is the FROM and WHERE of the episodes that lie in the span, at least with a part, as they had been told to
// be by its end: what is told of one afterwards changes nothing, so that a question has the same answer while an attack
// goes on. The condition on day is for the partitions: an episode is cut after a day, and its day is that of the event
// at whose arrival it was opened.
//
// Of an episode that went on after the end, hit_points has how far it was. They are kept for a day (history/retention):
// of an older end, or where a build before kept none, it is known no more than that it was over its limit. Such an
// episode is lost, and its figures are the least that they can be.
//
// One that was told of first after the end, by a log that came late, is as it was told in that first minute, and as its
// row says once it is over.
//
// An episode keeps the version under which it opened. One that runs across an edit belongs to the new count as well,
// with what it has from there on, provided that it came above the new limit.
func (a *asked) episodes() (sql string, args []any) {
	const day = 24 * time.Hour
	var since, until []any
	for _, s := range a.spans {
		since, until = append(since, stamp(s.since)), append(until, stamp(s.until))
	}
	args = []any{
		a.stream, a.Rule, a.versions, stamp(a.Since), stamp(a.end()), a.Since.Add(-2 * day).Std(),
		a.Until.Add(2 * day).Std(), a.version.Block == nil,
		a.version.Lineage, a.least(), since, until, append([]int64{}, a.keyed...), stamp(a.spans[len(a.spans)-1].since),
		a.acted(),
	}
	view, kind := "hits_all", ""
	if a.told() != detectors.KindHit {
		view, kind = "hits_beside_all", " AND h.kind = 'candidate'"
	}
	return ` FROM (
			SELECT h.id, h.ip, h.subject, ` + here + ` AS ours, CASE WHEN h.rule_version = ANY ($13::bigint[]) THEN h.block_subject ELSE '' END AS block_subject,
				NOT $8 AND NOT h.grouped AND h.rule_version <> ALL ($13::bigint[]) AS unnamed, ` + asOfThen() + `
			FROM ` + view + ` h
			LEFT JOIN (SELECT id, ` + pointsOfThen() + ` FROM (SELECT *, min(minute) OVER (PARTITION BY id) AS begun FROM hit_points
				WHERE rule = $2 AND id IN (SELECT id FROM hit_points WHERE rule = $2 AND minute >= $5)) o
					GROUP BY id) p USING (id)
			WHERE h.stream = $1 AND h.rule = $2 AND h.last >= $4 AND h.first < $5 AND h.day BETWEEN $6::date AND $7::date` + kind + `
				AND (` + here + ` OR h.lineage = $9 AND h.rule_version = ANY ($15::bigint[]))
				AND (h.seen_first < $5 OR h.opened < $5) AND (` + still + ` AND h.phase <> 4 OR NOT ` + still + ` AND p.merged IS NOT TRUE)) e
		WHERE e.last >= $4 AND (e.ours OR e.peak > $10
			AND EXISTS (SELECT FROM unnest($11::timestamptz[], $12::timestamptz[]) AS s (since, until) WHERE e.last >= s.since AND e.first < s.until))`, args
}

// least is what an episode's peak is above that was over the limit; 0 where a peak does not say.
func (a *asked) least() int64 {
	if len(a.version.Tiers) > 0 {
		return 0
	}
	return int64(a.limit)
}

const (
	// here holds for an episode that opened under one of the versions.
	here = "h.rule_version = ANY ($3::bigint[])"
	// still holds for an episode of which nothing was told after the end of the span, or all, and it is over: its row
	// says what it was by then.
	still = "(p.id IS NULL AND h.seen_last < $5 OR h.seen_first >= $5 AND (h.phase = 4 OR h.phase = 3 AND h.last < $5))"
	// told holds for one whose points tell how far it was by then.
	told = "(p.begun < $5 OR h.seen_first >= $5)"
)

// thenColumn is a figure of an episode that grows, with the least that one has of which nothing else is known.
type thenColumn struct{ name, least string }

func thenColumns() []thenColumn {
	return []thenColumn{
		{"events", "1"}, {"refused", "0"}, {"peak", "h.rule_limit + 1"}, {"last", "h.first"}, {"users", "0"},
		{"devices", "0"}, {"known_good", "0"},
	}
}

// asOfThen are the columns of an episode as it had been told to be by the end of the span, and of what was counted of
// it since the versions act.
func asOfThen() string {
	then := func(name, least string) string {
		return fmt.Sprintf("CASE WHEN %s THEN h.%s WHEN %s THEN coalesce(p.%[2]s, %[4]s) ELSE %[4]s END", still, name,
			told, least)
	}
	// A minute belongs to both counts: what was told in it may be of either.
	const before = "(SELECT max(o.%s) FROM hit_points o WHERE o.id = h.id AND o.minute <= $14::timestamptz - interval '1 minute')"
	const unknown = "(NOT " + here + " AND h.first < $14 AND NOT EXISTS (SELECT FROM hit_points o WHERE o.id = h.id AND o.minute <= $14::timestamptz - interval '1 minute'))"
	var out []string
	for _, c := range thenColumns() {
		figure := then(c.name, c.least)
		if c.name == "events" || c.name == "refused" {
			figure = "CASE WHEN " + here + " THEN " + figure + " WHEN " + unknown + " THEN " + c.least +
				" ELSE greatest(" + c.least + ", " + figure + " - coalesce(" + fmt.Sprintf(before, c.name) + ", 0)) END"
		}
		out = append(out, figure+" AS "+c.name)
	}
	out = append(out,
		"CASE WHEN "+here+" THEN "+then("first", "h.first")+" ELSE greatest(h.first, $14) END AS first",
		"CASE WHEN "+still+" THEN h.samples ELSE h.samples[1:coalesce(p.samples, 0)] END AS samples",
		"NOT "+still+" AND (p.events IS NULL OR NOT "+told+") OR "+unknown+" AS lost",
		"CASE WHEN "+still+" THEN h.at_least ELSE coalesce(p.at_least, true) OR NOT "+told+" END OR "+unknown+
			" AS at_least")
	return strings.Join(out, ", ")
}

// pointsOfThen are the columns of the points of an episode up to the end of the span; NULL where it has none.
func pointsOfThen() string {
	var out []string
	for _, c := range thenColumns() {
		out = append(out, "max("+c.name+") FILTER (WHERE minute < $5 OR minute = begun) AS "+c.name)
	}
	return strings.Join(append(out, "min(first) FILTER (WHERE minute < $5 OR minute = begun) AS first",
		"max(samples) FILTER (WHERE minute < $5 OR minute = begun) AS samples",
		"bool_or(merged) FILTER (WHERE minute < $5 OR minute = begun) AS merged",
		"bool_or(at_least) FILTER (WHERE minute < $5 OR minute = begun) AS at_least", "min(begun) AS begun"), ", ")
}

// whom is the subject that the version's block would hold of a source as the rule counts it, false where one source may
// be several of them: where the version under which an episode opened had no such block, its rows do not name it.
func (a *asked) whom(source traffic.Subject) (traffic.Subject, bool) {
	v := &a.version
	if v.Block == nil || v.BlocksTuples() {
		return "", false
	}
	values, err := source.Values()
	if err != nil || len(values) != len(v.Key) {
		return "", false
	}
	return traffic.Narrow(values, v.Block.Key)
}
