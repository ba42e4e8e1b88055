package explore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Group is by what episodes are summed up.
type Group string

const (
	ByRule   Group = "rule"   // a row for each rule
	BySource Group = "source" // of one rule: sources of different rules are different sources
	ByHour   Group = "hour"   // in which the episode began, UTC
	ByDay    Group = "day"    // likewise
)

// groupNames are what a Group may be.
func groupNames() []string {
	return []string{string(ByRule), string(BySource), string(ByHour), string(ByDay)}
}

// Order is by what rules and sources are ordered, the greatest first. Hours and days come in order of time, the newest first.
type Order string

const (
	ByEvents   Order = "events"   // the default
	ByEpisodes Order = "episodes" // how many there are
	BySources  Order = "sources"  // how many different ones
	ByPeak     Order = "peak"     // the greatest of any episode
	ByLast     Order = "last"     // who was over last
)

func orderNames() []string {
	return []string{string(ByEvents), string(ByEpisodes), string(BySources), string(ByPeak), string(ByLast)}
}

// GroupRow sums up episodes. Each episode counts once, whatever the number of blocks that it may lead to.
type GroupRow struct {
	Rule     string          `json:"rule,omitempty"`    // by rule and source
	Source   traffic.Subject `json:"subject,omitempty"` // by source: the rule's key
	At       traffic.Time    `json:"at,omitempty"`      // by hour and day: its beginning
	Episodes int64           `json:"episodes"`
	Sources  int64           `json:"sources"` // distinct, rule by rule
	Events   int64           `json:"events"`
	Refused  int64           `json:"refused"` // requests that the rules' blocks would have refused, or did
	Peak     int64           `json:"peak"`    // the greatest
	First    traffic.Time    `json:"first"`   // of the earliest episode
	Last     traffic.Time    `json:"last"`    // of the one that was over last
}

// Groups is a page of sums.
type Groups struct {
	Rows  []GroupRow `json:"rows"`
	Total Total      `json:"total"`          // groups
	Next  string     `json:"next,omitempty"` // cursor of the next page; empty: this is the last one
	// LeftOut is in no row.
	LeftOut LeftOut `json:"left_out"`
}

// Groups sums up the episodes that f selects. An episode that began before f.Since counts in the first hour or day.
func (x *Explorer) Groups(ctx context.Context, f Filter, by Group, order Order, p Page) (Groups, error) {
	limit, place, err := p.begin()
	if err == nil {
		err = oneOf("by", string(by), groupNames()...)
	}
	if err == nil {
		err = oneOf("order", string(order), orderNames()...)
	}
	if err != nil {
		return Groups{}, err
	}
	q, err := x.hitQuery(ctx, &f)
	if err != nil {
		return Groups{}, err
	}
	w := q.Where()
	g := grouping(by, order, f.Since, w)
	sums := fmt.Sprintf(`SELECT %s AS rule, %s AS subject, %s AS at, count(*) AS episodes, count(DISTINCT (rule, subject)) AS sources,
		sum(events)::bigint AS events, sum(refused)::bigint AS refused, max(peak) AS peak, min(first) AS first, max(last) AS last
		FROM (%s) e GROUP BY 1, 2, 3`, g.rule, g.subject, g.at, Episodes(q.From(), w.String()))
	conditions := ""
	if place != nil {
		conditions = fmt.Sprintf(" WHERE (%s, %s) < (%s, %s)", g.number, g.key, w.Arg(int64(place.At)), w.Arg(place.ID))
	}
	rows, err := x.store.Query(ctx, fmt.Sprintf(`WITH sums AS (%s)
		SELECT rule, subject, at, episodes, sources, events, refused, peak, first, last, %s, %s, (SELECT count(*) FROM sums)
		FROM sums%s ORDER BY 11 DESC, 12 DESC LIMIT %s`, sums, g.number, g.key, conditions, w.Arg(limit+1)), w.Args...)
	if err != nil {
		return Groups{}, x.store.Fail("summing up hits by "+string(by), err)
	}
	found, err := collectGroups(rows, limit)
	if err != nil {
		return Groups{}, x.store.Fail("summing up hits by "+string(by), err)
	}
	found.LeftOut, err = x.leftOut(ctx, &q)
	return found, err
}

// expressions of a grouping: the three columns that tell groups apart, and by what they are ordered.
type expressions struct{ rule, subject, at, number, key string }

func grouping(by Group, order Order, since traffic.Time, w *postgres.Where) expressions {
	const none = "NULL::timestamptz"
	number := string(order)
	switch order {
	case "":
		number = string(ByEvents)
	case ByLast:
		number = microseconds("last")
	}
	switch by {
	case BySource:
		return expressions{rule: "rule", subject: "subject", at: none, number: number, key: `(rule || ' ' || subject) COLLATE "C"`}
	case ByHour, ByDay:
		begun := "first"
		if since != 0 {
			begun = "greatest(first, " + w.Arg(postgres.Timestamp(since)) + "::timestamptz)"
		}
		at := fmt.Sprintf("(date_trunc('%s', %s AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')", by, begun)
		return expressions{rule: "''", subject: "''", at: at, number: microseconds("at"), key: "''"}
	}
	return expressions{rule: "rule", subject: "''", at: none, number: number, key: `rule COLLATE "C"`}
}

func microseconds(column string) string {
	return "(CASE WHEN isfinite(" + column + ") THEN (extract(epoch FROM " + column + ") * 1000000)::bigint ELSE 0 END)"
}

func collectGroups(rows pgx.Rows, limit int) (Groups, error) {
	found := Groups{Rows: []GroupRow{}}
	var numbers []int64
	var keys []string
	var total int64
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r GroupRow, err error) {
		var number int64
		var key string
		err = row.Scan(&r.Rule, &r.Source, postgres.ScanTime(&r.At), &r.Episodes, &r.Sources, &r.Events, &r.Refused, &r.Peak,
			postgres.ScanTime(&r.First), postgres.ScanTime(&r.Last), &number, &key, &total)
		found.Rows, numbers, keys = append(found.Rows, r), append(numbers, number), append(keys, key)
		return r, err
	})
	if err != nil {
		return Groups{}, err
	}
	found.Total = Total{N: total}
	if len(found.Rows) > limit {
		found.Rows, found.Next = found.Rows[:limit], encodeCursor(numbers[limit-1], keys[limit-1])
	}
	return found, nil
}

// Episodes is a query of episodes, each once, over the rows of a view of raw hits under a WHERE clause: rule, lineage, subject, first,
// last, events, refused, peak. The rows of a closed episode, one for each block that it may lead to, have the same first. While one runs a late
// event may move its beginning, of which each row learns with the next report about its own block: until then its rows differ, by less than a
// window from one to the next (docs/history.md).
func Episodes(from, where string) string {
	and := " WHERE "
	if strings.Contains(where, "WHERE") {
		and = where + " AND "
	}
	const source = "PARTITION BY stream, rule, lineage, subject"
	return `SELECT rule, lineage, subject, first, max(last) AS last, max(events) AS events, sum(refused)::bigint AS refused, max(peak) AS peak
		FROM ` + from + and + `phase = 3 GROUP BY stream, rule, lineage, subject, first
	UNION ALL
	SELECT rule, lineage, subject, min(first), max(last), max(events), sum(refused)::bigint, max(peak)
	FROM (SELECT *, count(*) FILTER (WHERE apart) OVER (` + source + ` ORDER BY first, id) AS nth
		FROM (SELECT *, coalesce(first >= max(last + make_interval(secs => window_ms / 1000.0)) OVER (` + source + ` ORDER BY first, id
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS apart
			FROM ` + from + and + `phase < 3) rows) running
	GROUP BY stream, rule, lineage, subject, nth`
}
