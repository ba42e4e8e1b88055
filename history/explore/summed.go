package explore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sums"
	"github.com/weirhq/weir/traffic"
)

// part is the sum of some episodes of one rule.
type part struct {
	rule    string
	begun   traffic.Time // an hour in which they began, or, of sums of several, when the group begins
	row     GroupRow
	several bool // a source has rows for different blocks: they may be of one episode
	sources sourceCount
}

const (
	// mostStale is how many sums of a rule and hour are made from rows for one question.
	mostStale = 300
	// mostByRows is the part of the time asked about that may be without sums, before all is read from rows.
	mostByRows = 4
	// fewHours without sums do not matter.
	fewHours = 8 * time.Hour
)

// summable reports whether sums of hours can answer q, by rule, hour or day.
func (a *grouped) summable() bool {
	q := a.q
	return a.by != BySource && a.by != byStep && !a.counted && q.Stream == history.Live && (q.Kind == "" || q.Kind == detectors.KindHit) && q.Source == nil && q.Field == "" && q.State == "" && !q.Merged
}

// span is a part of time: since until before until.
type span struct{ since, until traffic.Time }

// plan is from what an answer is made: the hours in summed, but for rules that are stale in one, and the rows of the rest.
type plan struct {
	summed []traffic.Time
	rest   []span
	stale  []staleSum
	// begunBefore: in summed hours only what began before; 0: all.
	begunBefore traffic.Time
}

type staleSum struct {
	hour traffic.Time
	rule string
}

// summed answers the question from sums of hours, and from rows only where there are none. ok is false where that cannot be, or is no faster.
func (a *grouped) summed(ctx context.Context, tx pgx.Tx) (found Groups, ok bool, err error) {
	if !a.summable() {
		return Groups{}, false, nil
	}
	p, ok, err := a.plan(ctx, tx)
	if err != nil || !ok {
		return Groups{}, false, err
	}
	apart, err := rulesApart(ctx, tx)
	if err != nil {
		return Groups{}, false, err
	}
	parts, err := a.fresh(ctx, tx, p, apart)
	if err != nil {
		return Groups{}, false, err
	}
	stored, err := a.stored(ctx, tx, p, apart)
	if err != nil {
		return Groups{}, false, err
	}
	parts = append(parts, stored...)
	for i := range parts {
		if parts[i].several && !slices.Contains(apart, parts[i].rule) {
			apart = append(apart, parts[i].rule)
		}
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return slices.Contains(apart, p.rule) })
	groups, sources := a.join(parts)
	if len(apart) > 0 {
		more, err := a.byRows(ctx, tx, apart)
		if err != nil {
			return Groups{}, false, err
		}
		for _, r := range more {
			a.take(groups, groupID{r.Rule, r.At}, r, r.Sources)
		}
	}
	if err := a.addRefused(ctx, tx, groups); err != nil {
		return Groups{}, false, err
	}
	if a.by == ByRule && a.order == BySources {
		if err := a.countSources(ctx, tx, p, groups, sources); err != nil {
			return Groups{}, false, err
		}
		return a.page(groups), true, nil
	}
	found = a.page(groups)
	shown := make(map[groupID]*GroupRow, len(found.Rows)) // of the others nobody wants to know
	for i := range found.Rows {
		r := &found.Rows[i]
		shown[groupID{r.Rule, r.At}] = r
	}
	return found, true, a.countSources(ctx, tx, p, shown, sources)
}

// rulesApart are the rules of which an episode may have several rows, as far as their documents say: a version blocks by what its key has not,
// or versions block by different keys.
func rulesApart(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT rule FROM (SELECT rule, coalesce((document::json #> '{block,key}')::text, '') AS block, EXISTS (
			SELECT FROM json_array_elements(CASE WHEN json_typeof(document::json #> '{block,key}') = 'array' THEN document::json #> '{block,key}' END) b
			WHERE b::text NOT IN (SELECT k::text FROM json_array_elements(document::json -> 'key') k)) AS wider FROM rule_versions) v
		GROUP BY rule HAVING bool_or(wider) OR count(DISTINCT block) > 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// plan finds out which hours have sums.
func (a *grouped) plan(ctx context.Context, tx pgx.Tx) (p plan, ok bool, err error) {
	var now traffic.Time
	if err := tx.QueryRow(ctx, "SELECT now()").Scan(postgres.ScanTime(&now)); err != nil {
		return p, false, err
	}
	since, until := a.since, a.q.Until
	rows, err := tx.Query(ctx, "SELECT hour FROM hit_hours WHERE ready AND hour >= $1 ORDER BY hour", postgres.Timestamp(since))
	if err != nil {
		return p, false, err
	}
	if p.summed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t traffic.Time, err error) { return t, row.Scan(postgres.ScanTime(&t)) }); err != nil {
		return p, false, err
	}
	if until != 0 { // an episode is over a day after its beginning at the latest
		p.begunBefore = until - until%hour
		latest := p.begunBefore
		if until%hour == 0 {
			latest += 2 * 24 * hour
		}
		p.summed = slices.DeleteFunc(p.summed, func(h traffic.Time) bool { return h >= latest })
		now = min(now, latest) // rows that are over later than that began later, too: hours without sums there cost nothing
	}
	if len(p.summed) == 0 {
		return p, false, nil
	}
	if since < p.summed[0] { // what was before the first sums, if anything was
		err := tx.QueryRow(ctx, "SELECT coalesce(min(last), $2) FROM hits_all WHERE stream = 'live' AND last >= $1 AND last < $2 AND day BETWEEN $3::date AND $4::date",
			postgres.Timestamp(since), postgres.Timestamp(p.summed[0]), since.Add(-days).Std(), p.summed[0].Add(days).Std()).Scan(postgres.ScanTime(&since))
		if err != nil {
			return p, false, err
		}
	}
	p.gaps(since)
	without := time.Duration(0)
	for _, s := range p.rest {
		without += min(s.until, max(now, s.since)).Sub(s.since)
	}
	if without > max(fewHours, now.Sub(since)/mostByRows) {
		return p, false, nil
	}
	rows, err = tx.Query(ctx, "SELECT hour, rule FROM hit_sums_stale WHERE hour = ANY ($1) AND $2 IN ('', rule) AND ($3::text[] IS NULL OR rule = ANY ($3)) ORDER BY 1, 2",
		stamps(p.summed), a.q.Rule, a.q.Rules)
	if err != nil {
		return p, false, err
	}
	p.stale, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s staleSum, err error) {
		return s, row.Scan(postgres.ScanTime(&s.hour), &s.rule)
	})
	return p, err == nil && len(p.stale) <= mostStale, err
}

const (
	hour = traffic.Time(time.Hour / time.Microsecond)
	days = 2 * 24 * time.Hour // an episode ends within a day of its opening, and lies under the day of that
)

// gaps makes rest of what lies between the hours from since on.
func (p *plan) gaps(since traffic.Time) {
	at := since
	for _, h := range p.summed {
		if h > at {
			p.rest = append(p.rest, span{at, h})
		}
		at = h + hour
	}
	p.rest = append(p.rest, span{at, traffic.EndOfTime})
}

func stamps(times []traffic.Time) []postgres.Timestamp {
	out := make([]postgres.Timestamp, len(times))
	for i, t := range times {
		out[i] = postgres.Timestamp(t)
	}
	return out
}

// fresh sums up the rows of which there are no sums.
func (a *grouped) fresh(ctx context.Context, tx pgx.Tx, p plan, apart []string) ([]part, error) {
	w := a.q.Where()
	w.Add("rule <> ALL (?::text[])", apart)
	rows := []string{episodesOf(a.q.From(), w.String(), false).running}
	const columns = "SELECT rule, subject, block_subject, first, last, events, refused, peak FROM "
	day := func(t traffic.Time) string { return w.Arg(t.Std()) + "::date" }
	for _, s := range p.rest {
		rest := columns + a.q.From() + w.String() + " AND phase = 3 AND last >= " + w.Arg(postgres.Timestamp(s.since)) + " AND day >= " + day(s.since.Add(-days))
		if s.until != traffic.EndOfTime {
			rest += " AND last < " + w.Arg(postgres.Timestamp(s.until)) + " AND day <= " + day(s.until.Add(days))
		}
		rows = append(rows, rest)
	}
	for _, s := range p.stale {
		rows = append(rows, columns+a.q.From()+w.String()+" AND phase = 3 AND rule = "+w.Arg(s.rule)+" AND last >= "+w.Arg(postgres.Timestamp(s.hour))+
			" AND last < "+w.Arg(postgres.Timestamp(s.hour+hour))+" AND day BETWEEN "+day(s.hour.Add(-days))+" AND "+day(s.hour.Add(days)))
	}
	for i := range rows {
		rows[i] = "SELECT rule, subject, block_subject, first, last, events, refused, peak FROM (" + rows[i] + ") r"
	}
	read, err := tx.Query(ctx, sums.Select(strings.Join(rows, " UNION ALL "), math.MaxInt32), w.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(read, func(row pgx.CollectableRow) (p part, err error) {
		r := &p.row
		return p, row.Scan(&p.rule, postgres.ScanTime(&p.begun), &r.Episodes, &r.Events, &r.WouldRefuse, &r.Peak,
			postgres.ScanTime(&r.First), postgres.ScanTime(&r.Last),
			&p.several, nil, &p.sources.fresh)
	})
}

// ofSums is the FROM and WHERE of the sums that an answer is made of.
func (a *grouped) ofSums(p plan, apart []string) *postgres.Where {
	w := &postgres.Where{}
	w.Add("s.hour = ANY (?) AND ? IN ('', s.rule) AND (?::text[] IS NULL OR s.rule = ANY (?)) AND s.rule <> ALL (?::text[])", stamps(p.summed), a.q.Rule, a.q.Rules, a.q.Rules, apart)
	if p.begunBefore != 0 {
		w.Add("s.begun < ?", postgres.Timestamp(p.begunBefore))
	}
	w.Add("NOT EXISTS (SELECT FROM hit_sums_stale m WHERE m.hour = s.hour AND m.rule = s.rule)")
	return w
}

// at is the beginning of the group to which a sum of a rule belongs.
func (a *grouped) at(w *postgres.Where) string {
	if a.by == ByRule {
		return "to_timestamp(0)"
	}
	return fmt.Sprintf("date_trunc('%s', greatest(s.begun, %s::timestamptz), 'UTC')", a.by, w.Arg(postgres.Timestamp(a.since)))
}

// stored sums up the sums of hours by group and rule. Hashes of sources, of which a table of their own is read, come later and only as many as are needed.
func (a *grouped) stored(ctx context.Context, tx pgx.Tx, p plan, apart []string) ([]part, error) {
	w := a.ofSums(p, apart)
	read, err := tx.Query(ctx, `SELECT s.rule, `+a.at(w)+` AS at, sum(s.episodes)::bigint, sum(s.events)::bigint, sum(s.refused)::bigint, max(s.peak), min(s.first), max(s.last), bool_or(s.several),
			sum(s.sources)::bigint, max(s.sources) FROM hit_sums s`+w.String()+` GROUP BY 1, 2`, w.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(read, func(row pgx.CollectableRow) (p part, err error) {
		r, c := &p.row, &p.sources
		return p, row.Scan(&p.rule, postgres.ScanTime(&p.begun), &r.Episodes, &r.Events, &r.WouldRefuse, &r.Peak,
			postgres.ScanTime(&r.First), postgres.ScanTime(&r.Last),
			&p.several, &c.told, &c.most)
	})
}

// groupID is what tells groups apart.
type groupID struct {
	rule string
	at   traffic.Time
}

// idOf is the group of what a rule has that began at a time.
func (a *grouped) idOf(rule string, begun traffic.Time) groupID {
	begun = max(begun, a.since)
	switch a.by {
	case ByHour:
		return groupID{at: begun - begun%hour}
	case ByDay:
		return groupID{at: begun - begun%(24*hour)}
	}
	return groupID{rule: rule}
}

// join sums up parts to groups, but for their sources, which are counted rule by rule.
func (a *grouped) join(parts []part) (map[groupID]*GroupRow, map[groupOfRule]*sourceCount) {
	groups, sources := map[groupID]*GroupRow{}, map[groupOfRule]*sourceCount{}
	for i := range parts {
		p := &parts[i]
		id := a.idOf(p.rule, p.begun)
		a.take(groups, id, p.row, 0)
		of := groupOfRule{id, p.rule}
		if sources[of] == nil {
			sources[of] = &sourceCount{}
		}
		sources[of].add(&p.sources)
	}
	return groups, sources
}

// take adds sums to a group, and so many sources.
func (a *grouped) take(groups map[groupID]*GroupRow, id groupID, more GroupRow, sources int64) {
	r := groups[id]
	if r == nil {
		r = &GroupRow{Rule: id.rule, At: id.at, First: more.First, Last: more.Last}
		groups[id] = r
	}
	r.Episodes, r.Events, r.WouldRefuse, r.Sources = r.Episodes+more.Episodes, r.Events+more.Events, r.WouldRefuse+
		more.WouldRefuse, r.Sources+sources
	r.Peak, r.First, r.Last = max(r.Peak, more.Peak), min(r.First, more.First), max(r.Last, more.Last)
}

// byRows is the answer about some rules from their rows.
func (a *grouped) byRows(ctx context.Context, tx pgx.Tx, names []string) ([]GroupRow, error) {
	q := *a.q
	if q.Rules != nil {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(q.Rules, n) })
	}
	q.Rules = names
	ask := grouped{q: &q, by: a.by, order: a.order, since: a.since, limit: math.MaxInt32, way: compared}
	found, several, err := ask.read(ctx, tx)
	if err == nil && several {
		ask.way = joined
		found, _, err = ask.read(ctx, tx)
	}
	return found.Rows, err
}

// page puts groups in order and takes the page that was asked for.
func (a *grouped) page(groups map[groupID]*GroupRow) Groups {
	rows := make([]GroupRow, 0, len(groups))
	for _, r := range groups {
		rows = append(rows, *r)
	}
	order := func(x, y *GroupRow) int {
		return cmp.Or(cmp.Compare(a.number(y), a.number(x)), cmp.Compare(y.Rule, x.Rule))
	}
	slices.SortFunc(rows, func(x, y GroupRow) int { return order(&x, &y) })
	found := Groups{Total: Total{N: int64(len(rows))}}
	if a.place != nil {
		rows = slices.DeleteFunc(rows, func(r GroupRow) bool {
			return cmp.Or(cmp.Compare(int64(a.place.At), a.number(&r)), cmp.Compare(a.place.ID, r.Rule)) <= 0
		})
	}
	found.Rows = rows
	if len(rows) > a.limit {
		last := &rows[a.limit-1]
		found.Rows, found.Next = rows[:a.limit], encodeCursor(a.number(last), last.Rule)
	}
	return found
}

// number is by what a row is ordered, as grouping has it in SQL.
func (a *grouped) number(r *GroupRow) int64 {
	finite := func(t traffic.Time) int64 {
		if t == traffic.EndOfTime || t == traffic.BeforeTime {
			return 0
		}
		return int64(t)
	}
	if a.by == ByHour || a.by == ByDay {
		return finite(r.At)
	}
	switch a.order {
	case ByEpisodes:
		return r.Episodes
	case BySources:
		return r.Sources
	case ByPeak:
		return r.Peak
	case ByLast:
		return finite(r.Last)
	}
	return r.Events
}
