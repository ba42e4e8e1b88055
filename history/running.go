package history

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// runningTable is the name under which records of kind running are counted: they have no rows of their own.
const runningTable = "running"

// running raises the rows of episodes that run, and of those that have ended and whose blocks would still refuse. A record of an episode that
// has no row adds none: a running count is no hit.
type running map[string]detectors.Hit

// take keeps, of several records of one id, the greatest figures.
func (r running) take(h *detectors.Hit) {
	known, ok := r[h.ID]
	if !ok {
		r[h.ID] = *h
		return
	}
	raise(&known, h)
	r[h.ID] = known
}

// raise writes them: to the rows in the order of their ids, as all writers of these tables do. A row lies under the day on which it was opened,
// or, where it has none, in the table without days.
func (r running) raise(ctx context.Context, tx pgx.Tx, stream string, days Days) error {
	if len(r) == 0 {
		return nil
	}
	rows := make([]detectors.Hit, 0, len(r))
	for id := range r {
		rows = append(rows, r[id])
	}
	slices.SortFunc(rows, func(a, b detectors.Hit) int { return cmp.Compare(a.ID, b.ID) })
	figures := figuresOf(rows)
	for _, d := range []*dayed{hitsTable(), besideTable()} {
		if _, err := tx.Exec(ctx, raiseRows(d.base.table, "h.stream = $1"), append([]any{stream}, figures...)...); err != nil {
			return err
		}
		dated := []string{}
		for i := range rows {
			day, ok := retention.Day(0), false
			if days != nil {
				day, ok = days.Of(rows[i].Opened)
			}
			if text := day.String(); ok && !slices.Contains(dated, text) {
				dated = append(dated, text)
			}
		}
		if len(dated) == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, raiseRows(d.days, "h.day = ANY ($1::date[])"), append([]any{dated}, figures...)...); err != nil {
			return err
		}
	}
	return nil
}

// figuresOf are the columns of what is told, as arguments.
func figuresOf(rows []detectors.Hit) []any {
	var ids []string
	var events, peaks, users, devices, refused, good []int64
	var last []any
	for i := range rows {
		h := &rows[i]
		ids = append(ids, traffic.Printable(h.ID))
		events, peaks, last = append(events, h.Count), append(peaks, int64(h.Peak)), append(last, postgres.Timestamp(h.Last))
		users, devices = append(users, int64(h.Users)), append(devices, int64(h.Devices))
		refused, good = append(refused, h.Refused), append(good, int64(h.Good))
	}
	return []any{ids, events, peaks, last, users, devices, refused, good}
}

// raiseRows is the statement that raises the rows of one table, of those under a condition with $1.
func raiseRows(table, where string) string {
	return `WITH told AS (
			SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[])
				AS t (id, events, peak, last, users, devices, refused, known_good)),
		rising AS (
			SELECT h.id FROM ` + table + ` h JOIN told t USING (id) WHERE ` + where + `
				AND (t.events > h.events OR t.peak > h.peak OR t.last > h.last OR t.users > h.users OR t.devices > h.devices
					OR t.refused > h.refused OR t.known_good > h.known_good)
			ORDER BY h.id FOR UPDATE OF h)
		UPDATE ` + table + ` h SET events = greatest(h.events, t.events), peak = greatest(h.peak, t.peak), last = greatest(h.last, t.last),
			users = greatest(h.users, t.users), devices = greatest(h.devices, t.devices),
			refused = greatest(h.refused, t.refused), known_good = greatest(h.known_good, t.known_good)
		FROM told t, rising WHERE ` + where + ` AND h.id = t.id AND rising.id = h.id`
}
