package evidence

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// found is what the rows say of one question.
type found struct {
	all     []minuteRow // of ROUTE, ascending by minute
	matched []minuteRow // of ROUTE, of this rule
	counted []minuteRow // of DETECT, of versions that count as this one does
	forgot  bool        // of those, some may be too low: DETECT forgot sources under trial
	steps   []Step
	lost    []traffic.Time // watermarks of lost parts of the log
	blocked []interval     // when the rule itself blocked
	off     []interval     // when it was disabled
	raised  []interval     // when its limit was a higher one
	allowed []interval     // when a source was let pass that is counted by the end of the span
	leftOut int64          // events that the rule watches and does not count, for what they lack or for coming late
	notKept int64          // rows of episodes that history has left out, for there were too many in a minute
	bare    int64          // rows that it keeps without samples, for the same reason

	ranking // of the sources
	tops    map[traffic.Subject]topRow
	held    []heldRow
}

// minuteRow is one minute; which figures it has depends on who told it.
type minuteRow struct {
	minute  traffic.Time
	events  int64 // counted; of all: all; of matched: those
	refused int64 // would be; of all: by weir already

	unjudged int64 // of all
	reached  int64 // counted
	good     int64 // counted: would be refused, of known-good subjects
	forgot   bool  // counted: some figure may be too low
	other    bool  // counted: for a part of it another block was tried, of which nothing is told here
}

type interval struct{ since, until traffic.Time }

// topRow is the episode of a source that is shown.
type topRow struct {
	refused, events int64
	hit             string
	samples         []string
}

// before reports whether it is shown rather than other.
func (t *topRow) before(other *topRow) bool {
	return cmp.Or(cmp.Compare(other.refused, t.refused), cmp.Compare(other.events, t.events), cmp.Compare(t.hit,
		other.hit)) < 0
}

// heldRow is a source, by its place among sources, that another rule held.
type heldRow struct {
	source int
	rule   string
}

// read asks for everything of one moment: in one transaction, and where a second connection is free, half of the sources in another one beside it.
func (s *Store) read(ctx context.Context, a *asked) (*found, error) {
	f := &found{ranking: ranking{most: maxSources}}
	err := s.db.Transact(ctx, "gathering the evidence of rule "+a.Rule, func(tx pgx.Tx) error {
		if err := begin(ctx, tx); err != nil {
			return err
		}
		other, err := s.readBeside(ctx, tx, a)
		if err != nil {
			return err
		}
		defer other.end()
		for _, step := range []func(context.Context, pgx.Tx, *asked) error{
			f.readMinutes, f.readSteps, f.readLosses, f.readModes, f.readRaised, f.readAllowed, f.readNotKept,
		} {
			if err := step(ctx, tx, a); err != nil {
				return err
			}
		}
		if err := f.readSources(ctx, tx, a, other.left()); err != nil {
			return err
		}
		if err := other.join(&f.ranking); err != nil {
			return err
		}
		for _, step := range []func(context.Context, pgx.Tx, *asked) error{f.readTops, f.readHeld} {
			if err := step(ctx, tx, a); err != nil {
				return err
			}
		}
		return nil
	})
	return f, err
}

// begin sets up a transaction of a dossier.
func begin(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil {
		return err
	}
	// Sources are put together in memory, up to half a gigabyte, and on disk beyond it. Nearly each has one episode: workers would put
	// together what is to be put together again, for half as long again.
	_, err := tx.Exec(ctx, "SET LOCAL work_mem = '128MB'; SET LOCAL hash_mem_multiplier = 4; SET LOCAL max_parallel_workers_per_gather = 0")
	return err
}

// readMinutes reads what ROUTE and DETECT have told by the minute.
func (f *found) readMinutes(ctx context.Context, tx pgx.Tx, a *asked) (err error) {
	const span = " AND minute >= $2 AND minute < $3 "
	f.all, err = collect(ctx, tx, `SELECT minute, sum(events)::bigint, sum(refused)::bigint, sum(unjudged)::bigint, 0::bigint, 0::bigint, false, false
		FROM event_minutes_v WHERE stream = $1`+span+`GROUP BY minute ORDER BY minute`, scanMinute, a.stream, stamp(a.Since), stamp(a.Until))
	if err != nil {
		return fmt.Errorf("minutes of all events: %w", err)
	}
	f.matched, err = collect(ctx, tx, `SELECT minute, sum(matched)::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, false, false
		FROM rule_event_minutes_v WHERE stream = $1`+span+`AND rule = $4 GROUP BY minute ORDER BY minute`, scanMinute,
		a.stream, stamp(a.Since), stamp(a.Until), a.Rule)
	if err != nil {
		return fmt.Errorf("minutes of the rule's events: %w", err)
	}
	f.counted, err = collect(ctx, tx, `SELECT minute, sum(events)::bigint, coalesce(sum(refused) FILTER (WHERE tried), 0)::bigint, 0::bigint, coalesce(sum(reached) FILTER (WHERE tried), 0)::bigint,
			coalesce(sum(refused_good) FILTER (WHERE tried), 0)::bigint, bool_or(at_least), bool_or(NOT tried)
		FROM (SELECT *, rule_version = ANY ($7::bigint[]) AS tried FROM rule_minutes
			WHERE stream = $1`+span+`AND rule = $4 AND rule_version = ANY ($5::bigint[]) AND kind = $6) m GROUP BY minute ORDER BY minute`, scanMinute,
		a.stream, stamp(a.Since), stamp(a.Until), a.Rule, a.versions, string(a.told()), a.tried)
	if err != nil {
		return fmt.Errorf("minutes of the rule: %w", err)
	}
	f.forgot = slices.ContainsFunc(f.counted, func(m minuteRow) bool { return m.forgot })
	err = tx.QueryRow(ctx, "SELECT coalesce(sum(events), 0)::bigint FROM uncounted_v WHERE stream = $1"+span+"AND rule = $4",
		a.stream, stamp(a.Since), stamp(a.Until.Add(time.Minute)), a.Rule).Scan(&f.leftOut)
	if err != nil {
		return fmt.Errorf("events left out: %w", err)
	}
	return nil
}

func scanMinute(row pgx.CollectableRow) (m minuteRow, err error) {
	err = row.Scan(postgres.ScanTime(&m.minute), &m.events, &m.refused, &m.unjudged, &m.reached, &m.good, &m.forgot,
		&m.other)
	return m, err
}

// maxSteps is more than a ladder of limits has.
const maxSteps = 32

// readSteps reads what other limits would have refused. Minutes in which nothing was refused name no limits. Column by column, the
// sums cost a tenth of what taking the arrays apart does.
func (f *found) readSteps(ctx context.Context, tx pgx.Tx, a *asked) error {
	var columns strings.Builder
	for i := 1; i <= maxSteps; i++ {
		fmt.Fprintf(&columns, ", coalesce(sum(refused_at[%d]), 0)::bigint", i)
	}
	rows, err := tx.Query(ctx, "SELECT limits"+columns.String()+
		` FROM rule_minutes WHERE stream = $1 AND minute >= $2 AND minute < $3 AND rule = $4 AND rule_version = ANY ($5::bigint[])
		AND kind = $6 AND limits <> '{}' GROUP BY limits ORDER BY limits`, a.stream, stamp(a.Since), stamp(a.Until), a.Rule, a.tried, string(a.told()))
	if err != nil {
		return fmt.Errorf("other limits: %w", err)
	}
	var limits []int64
	var sums [maxSteps]int64
	into := []any{&limits}
	for i := range sums {
		into = append(into, &sums[i])
	}
	byLimit := map[int64]int64{}
	if _, err := pgx.ForEachRow(rows, into, func() error {
		for i, limit := range limits[:min(len(limits), maxSteps)] {
			byLimit[limit] += sums[i]
		}
		return nil
	}); err != nil {
		return fmt.Errorf("other limits: %w", err)
	}
	for _, limit := range slices.Sorted(maps.Keys(byLimit)) {
		f.steps = append(f.steps, Step{limit, byLimit[limit]})
	}
	return nil
}

// readNotKept reads how many rows history has left out (history.rows_per_minute) of episodes that may lie in the span: an episode is cut after a day.
// Whose they were, and of which version, is not known.
func (f *found) readNotKept(ctx context.Context, tx pgx.Tx, a *asked) error {
	err := tx.QueryRow(ctx, `SELECT coalesce(sum(rows - merged), 0)::bigint, coalesce(sum(without_samples), 0)::bigint FROM hits_left_out
		WHERE stream = $1 AND rule = $2 AND kind = $3 AND minute >= $4::timestamptz - interval '1 day' AND minute < $5`,
		a.stream, a.Rule, string(a.told()), stamp(a.Since), stamp(a.Until)).Scan(&f.notKept, &f.bare)
	if err != nil {
		return fmt.Errorf("rows left out: %w", err)
	}
	return nil
}

func (f *found) readLosses(ctx context.Context, tx pgx.Tx, a *asked) (err error) {
	f.lost, err = collect(ctx, tx, "SELECT watermark FROM losses_v WHERE stream = $1 AND watermark >= $2 AND watermark < $3 ORDER BY watermark",
		func(row pgx.CollectableRow) (t traffic.Time, err error) { return t, row.Scan(postgres.ScanTime(&t)) },
		a.stream, stamp(a.Since), stamp(a.Until))
	if err != nil {
		return fmt.Errorf("losses: %w", err)
	}
	return nil
}

// readModes finds out from the audit trail when the rule itself refused requests, and when it was off: what an act began, the next one ended.
func (f *found) readModes(ctx context.Context, tx pgx.Tx, a *asked) error {
	type change struct {
		at     traffic.Time
		action string
	}
	changes, err := collect(ctx, tx, `SELECT at, action FROM audit WHERE object = $1 AND action IN ('promote', 'canary', 'demote', 'fall-back', 'disable', 'enable', 'remove')
		ORDER BY seq`, func(row pgx.CollectableRow) (c change, err error) {
		return c, row.Scan(postgres.ScanTime(&c.at), &c.action)
	}, "rule "+a.Rule)
	if err != nil {
		return fmt.Errorf("changes of mode: %w", err)
	}
	for i, c := range changes {
		span := interval{c.at, traffic.EndOfTime}
		if i+1 < len(changes) {
			span.until = changes[i+1].at
		}
		switch {
		case span.since >= a.Until || span.until <= a.Since:
		case c.action == "promote" || c.action == "canary":
			f.blocked = append(f.blocked, span)
		case c.action == "disable" || c.action == "remove":
			f.off = append(f.off, span)
		}
	}
	return nil
}

// who is the source that an episode is told of: whom a block would hold or, where none can be, the source as the rule counts it.
const who = `CASE WHEN $8 OR block_subject = '' THEN subject ELSE block_subject END`

// readTops reads the samples of the sources that are shown.
func (f *found) readTops(ctx context.Context, tx pgx.Tx, a *asked) error {
	f.tops = map[traffic.Subject]topRow{}
	f.order(TopSources)
	top := f.sources[:min(len(f.sources), TopSources)]
	if len(top) == 0 {
		return nil
	}
	var rowsOf []string // by the names that rows have
	named := map[traffic.Subject]traffic.Subject{}
	for i := range top {
		for _, row := range top[i].names() {
			rowsOf, named[row] = append(rowsOf, string(row)), top[i].subject
		}
	}
	from, args := a.episodes()
	args = append(args, rowsOf)
	subjects, addresses := fmt.Sprint("$", len(args)), a.addresses(top)
	if addresses != nil { // which have an index, as subjects have not
		args = append(args, addresses)
		from += fmt.Sprintf(" AND ip = ANY ($%d::cidr[])", len(args))
	}
	rows, err := tx.Query(ctx, `SELECT DISTINCT ON (`+who+`) `+who+`, refused, events, id, samples`+from+` AND `+who+
		` = ANY (`+subjects+`::text[])
		ORDER BY `+who+`, refused DESC, events DESC, id`, args...)
	if err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	var row traffic.Subject
	var t topRow
	_, err = pgx.ForEachRow(rows, []any{&row, &t.refused, &t.events, &t.hit, &t.samples}, func() error {
		if known, ok := f.tops[named[row]]; !ok || t.before(&known) {
			f.tops[named[row]] = t
		}
		t = topRow{}
		return nil
	})
	if err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	return nil
}

// names are what rows call the source.
func (s *sourceRow) names() []traffic.Subject {
	if s.rows == nil {
		return []traffic.Subject{s.subject}
	}
	return s.rows
}

// addresses are those of the sources, as their rows have them; nil where rows may have others: where the rule does not count by address, or its
// block cuts them otherwise.
func (a *asked) addresses(sources []sourceRow) []netip.Prefix {
	cut := func(key []traffic.KeyField) int {
		return slices.IndexFunc(key, func(k traffic.KeyField) bool { return k.Field == traffic.FieldIP })
	}
	key := a.version.Key
	if at := cut(key); at < 0 || a.mixed() || a.version.Block != nil && !slices.Contains(a.version.Block.Key, key[at]) {
		return nil
	}
	var out []netip.Prefix
	for i := range sources {
		values, err := sources[i].subject.Values()
		if err != nil {
			return nil
		}
		of := slices.IndexFunc(values, func(v traffic.SubjectValue) bool { return v.Field == traffic.FieldIP.String() && !v.Missing })
		if of < 0 {
			return nil
		}
		address, err := netip.ParsePrefix(values[of].Value)
		if err != nil {
			return nil
		}
		out = append(out, address.Masked())
	}
	return out
}

func stamp(t traffic.Time) postgres.Timestamp { return postgres.Timestamp(t) }

func collect[T any](ctx context.Context, tx pgx.Tx, sql string, scan func(pgx.CollectableRow) (T, error), args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
