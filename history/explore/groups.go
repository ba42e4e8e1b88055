package explore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
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
	byStep   Group = "step"   // of Began
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

// GroupRow sums up episodes. Each episode counts once, whatever the number of blocks that it may lead to. A row that
// has none is of requests that gates refused by blocks of episodes from before the time asked about, or not in its hour
// or day.
type GroupRow struct {
	Rule     string          `json:"rule,omitempty" mask:"name"` // by rule and source
	Source   traffic.Subject `json:"subject,omitempty"`          // by source: the rule's key
	At       traffic.Time    `json:"at,omitempty"`               // by hour and day: its beginning
	Episodes int64           `json:"episodes"`
	Sources  int64           `json:"sources"` // distinct, rule by rule
	// SourcesAbout says that Sources is an estimate: a rule had more than 256 in an hour that history has summed up.
	SourcesAbout bool  `json:"sources_about,omitempty"`
	Events       int64 `json:"events"`
	// WouldRefuse is the requests that the rules' blocks alone would have refused; none of them is of Refused.
	WouldRefuse int64 `json:"would_refuse"`
	// Refused is how many requests gates refused, by the requests' own time; history.UnknownFigure: the log does not
	// tell.
	Refused history.Figure `json:"refused"`
	Peak    int64          `json:"peak"`  // the greatest
	First   traffic.Time   `json:"first"` // of the earliest episode; without episodes, of the refused requests
	Last    traffic.Time   `json:"last"`  // of the one that was over last; likewise
}

// Groups is a page of sums.
type Groups struct {
	Rows  []GroupRow `json:"rows"`
	Total Total      `json:"total"`                        // groups
	Next  string     `json:"next,omitempty" mask:"cursor"` // cursor of the next page; empty: this is the last one
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
	ask := &grouped{q: &q, by: by, order: order, since: f.Since, place: place, limit: limit, counted: f.Counted,
		untold: f.NoSources}
	if q.Kind == "" || q.Kind == detectors.KindHit { // of all others nobody is blocked
		ask.refused = refusalsOf(&q)
	}
	found, err := x.sumUp(ctx, ask)
	if err != nil {
		return found, err
	}
	if err := tellRefused(ctx, x.store, found.Rows); err != nil {
		return found, err
	}
	found.LeftOut, err = x.leftOut(ctx, &q)
	return found, err
}

// sumUp answers a question for sums, but for what history has left out.
func (x *Explorer) sumUp(ctx context.Context, ask *grouped) (found Groups, err error) {
	err = x.store.Transact(ctx, "summing up hits by "+string(ask.by), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil { // several queries, of one moment
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL work_mem = '128MB'"); err != nil { // sources are told apart in memory; else they spill
			return err
		}
		if err := ask.lookForRefused(ctx, tx); err != nil {
			return err
		}
		if summed, ok, err := ask.summed(ctx, tx); err != nil || ok {
			found = summed
			return err
		}
		if alike, err := ask.alike(ctx, tx); err != nil {
			return err
		} else if !alike {
			ask.way = compared
		}
		for {
			several := false
			if found, several, err = ask.read(ctx, tx); err != nil || !several || ask.way == joined {
				return err
			}
			ask.way++
		}
	})
	return found, err
}

// grouped is a question for sums.
type grouped struct {
	q       *history.HitQuery
	by      Group
	order   Order
	step    time.Duration // by step
	since   traffic.Time
	place   *history.Place
	limit   int
	way     way
	refused *history.RefusalQuery // what gates refused, beside the episodes; nil: nothing
	counted bool                  // sources are not estimated
	untold  bool                  // nobody looks at how many sources there are
}

// way is how it is found out which rows are of one episode: each is, unless its source has rows for different blocks. A way that does not hold for
// some row says so, and the next one, which takes longer, is gone.
type way int

const (
	alone    way = iota // all rows lead to a block of the source itself
	compared            // the rows of each source lead to the same block
	joined              // the rows of an episode are put together
)

// alike reports whether all versions of all rules block by the key that they count by.
func (a *grouped) alike(ctx context.Context, tx pgx.Tx) (yes bool, err error) {
	const alike = "SELECT coalesce(bool_and((document::json -> 'key')::text = (document::json #> '{block,key}')::text), false) FROM rule_versions WHERE $1 IN ('', rule)"
	return yes, tx.QueryRow(ctx, alike, a.q.Rule).Scan(&yes)
}

func (a *grouped) read(ctx context.Context, tx pgx.Tx) (found Groups, several bool, err error) {
	w := a.q.Where()
	sums, g := a.sums(w)
	conditions := ""
	if a.place != nil {
		conditions = fmt.Sprintf(" WHERE (%s, %s) < (%s, %s)", g.number, g.key, w.Arg(int64(a.place.At)), w.Arg(a.place.ID))
	}
	of := "sums AS (SELECT *, 0::bigint AS gated FROM (" + sums + ") s)"
	if a.refused != nil {
		of = a.besides(w, sums)
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`WITH %s
		SELECT rule, subject, at, episodes, sources, events, refused, gated, peak, first, last, %s, %s, total.groups,
			total.several
		FROM sums, (SELECT count(*) AS groups, coalesce(bool_or(several), false) AS several FROM sums) total%s ORDER BY 12 DESC, 13 DESC LIMIT %s`,
		of, g.number, g.key, conditions, w.Arg(a.limit+1)), w.Args...)
	if err != nil {
		return Groups{}, false, err
	}
	if found, several, err = collectGroups(rows, a.limit); len(found.Rows) == 0 && a.place != nil {
		several = true // nobody has said
	}
	return found, several, err
}

// sums is the query of the sums. Sources are counted beside all else: the fewer figures are kept for each of them, the faster.
func (a *grouped) sums(w *postgres.Where) (string, expressions) {
	g := a.grouping(w)
	const figures = "sum(events)::bigint AS events, sum(refused)::bigint AS refused, max(peak) AS peak, min(first) AS first, max(last) AS last"
	e := episodesOf(a.q.From(), w.String(), a.way == joined)
	if a.by == BySource {
		apart := several
		if a.way == alone {
			apart = foreign + " AS several"
		}
		return "SELECT rule, subject, " + g.at + " AS at, count(*) AS episodes, 1::bigint AS sources, " + postgres.Sum("events") + " AS events, " + postgres.Sum("refused") +
			" AS refused, max(peak) AS peak, min(first) AS first, max(last) AS last, " + apart + " FROM (" + e.closed + " UNION ALL " + e.running + ") e GROUP BY rule, subject", g
	}
	// Each half by itself can be read by several processes at once, both together cannot.
	part := func(from string) string {
		apart := "false"
		if a.way == alone {
			apart = foreign
		}
		return fmt.Sprintf("SELECT %s AS rule, %s AS at, count(*) AS episodes, %s, %s AS several FROM (%s) e GROUP BY 1, 2", g.rule, g.at, figures, apart, from)
	}
	of := e.closed + " UNION ALL " + e.running
	if a.by == ByRule { // the time of an episode does not matter, so that rows do as well
		of = e.rows
	}
	if a.untold && a.way == alone {
		return fmt.Sprintf(`SELECT rule, '' AS subject, at, sum(episodes)::bigint AS episodes, 0::bigint AS sources, %s, coalesce(bool_or(several), false) AS several
			FROM (%s UNION ALL %s) parts GROUP BY 1, 2, 3`, figures, part(e.closed), part(e.running)), g
	}
	each := several
	if a.way == alone {
		each = "false AS several"
	}
	return fmt.Sprintf(`SELECT f.rule, '' AS subject, f.at, f.episodes, s.sources, f.events, f.refused, f.peak, f.first, f.last, f.several OR s.several AS several
		FROM (SELECT rule, at, sum(episodes)::bigint AS episodes, %s, coalesce(bool_or(several), false) AS several FROM (%s UNION ALL %s) parts GROUP BY 1, 2) f
		JOIN (SELECT %s AS rule, at, count(*) AS sources, bool_or(several) AS several FROM
			(SELECT rule, subject, %s AS at, %s FROM (%s) e GROUP BY 1, 2, 3) each GROUP BY 1, 2) s USING (rule, at)`,
		figures, part(e.closed), part(e.running), g.rule, g.at, each, of), g
}

// foreign tells whether a row leads to a block of somebody else; one without block does not.
const foreign = "coalesce(bool_or(block_subject <> subject AND block_subject <> ''), false)"

// several tells of a source whether its rows are for different blocks.
const several = "coalesce(min(hashtextextended(block_subject, 0)) <> max(hashtextextended(block_subject, 0)), false) AS several"

// expressions of a grouping: what tells groups apart beside the source, and by what they are ordered.
type expressions struct{ rule, at, number, key string }

func (a *grouped) grouping(w *postgres.Where) expressions {
	const none = "to_timestamp(0)"
	number := string(a.order)
	switch a.order {
	case "":
		number = string(ByEvents)
	case ByLast:
		number = microseconds("last")
	}
	switch a.by {
	case BySource:
		return expressions{rule: "rule", at: none, number: number, key: `(rule || ' ' || subject) COLLATE "C"`}
	case ByHour, ByDay, byStep:
		begun := "first"
		if a.since != 0 {
			begun = "greatest(first, " + w.Arg(postgres.Timestamp(a.since)) + "::timestamptz)"
		}
		at := fmt.Sprintf("(date_trunc('%s', %s AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')", a.by, begun)
		if a.by == byStep {
			at = a.binned(begun)
		}
		return expressions{rule: "''", at: at, number: microseconds("at"), key: "''"}
	}
	return expressions{rule: "rule", at: none, number: number, key: `rule COLLATE "C"`}
}

func microseconds(column string) string {
	return "(CASE WHEN isfinite(" + column + ") THEN (extract(epoch FROM " + column + ") * 1000000)::bigint ELSE 0 END)"
}

func collectGroups(rows pgx.Rows, limit int) (found Groups, several bool, err error) {
	found.Rows = []GroupRow{}
	var numbers []int64
	var keys []string
	var total int64
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r GroupRow, err error) {
		var number int64
		var key string
		err = row.Scan(&r.Rule, &r.Source, postgres.ScanTime(&r.At), &r.Episodes, &r.Sources, &r.Events,
			&r.WouldRefuse, &r.Refused, &r.Peak,
			postgres.ScanTime(&r.First), postgres.ScanTime(&r.Last), &number, &key, &total, &several)
		found.Rows, numbers, keys = append(found.Rows, r), append(numbers, number), append(keys, key)
		return r, err
	})
	if err != nil {
		return Groups{}, false, err
	}
	found.Total = Total{N: total}
	if len(found.Rows) > limit {
		found.Rows, found.Next = found.Rows[:limit], encodeCursor(numbers[limit-1], keys[limit-1])
	}
	return found, several, nil
}

// episodes are queries of episodes over the rows of a view of raw hits under a WHERE clause: rule, subject, first, last, events, refused, peak,
// and block_subject, where an episode is a row.
type episodes struct {
	// closed ones: the rows of one, one for each block that it may lead to, have the same first, by which they are put together; else each
	// stands for itself, as is right where the rows of a source all lead to the same block.
	closed string
	// running ones: a late event may move the beginning of one, of which each row learns with the next report about its own block: until then
	// its rows differ, by less than a window from one to the next (docs/history.md).
	running string
	rows    string // of both, as they are: only rule, subject, first and block_subject
}

func episodesOf(from, where string, together bool) episodes {
	and := " WHERE "
	if strings.Contains(where, "WHERE") {
		and = where + " AND "
	}
	block, closed := "block_subject", "SELECT rule, subject, first, last, events, refused, peak, %s FROM "+from+and+"phase = 3"
	if together {
		block, closed = "NULL::text AS block_subject", `SELECT rule, subject, first, max(last) AS last, max(events) AS events, sum(refused)::bigint AS refused, max(peak) AS peak, %s
		FROM `+from+and+"phase = 3 GROUP BY rule, lineage, subject, first"
	}
	const source = "PARTITION BY rule, lineage, subject"
	return episodes{
		closed: fmt.Sprintf(closed, block),
		running: `SELECT rule, subject, min(first) AS first, max(last) AS last, max(events) AS events, sum(refused)::bigint AS refused, max(peak) AS peak, NULL::text AS block_subject
	FROM (SELECT *, count(*) FILTER (WHERE apart) OVER (` + source + ` ORDER BY first, id) AS nth
		FROM (SELECT *, coalesce(first >= max(last + make_interval(secs => window_ms / 1000.0)) OVER (` + source + ` ORDER BY first, id
				ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS apart
			FROM ` + from + and + `phase < 3) rows) running
	GROUP BY rule, lineage, subject, nth`,
		rows: "SELECT rule, subject, first, " + block + " FROM " + from + and + "phase < 4",
	}
}
