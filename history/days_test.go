package history_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// older stores hits as a process of the build before does: it knows neither the days nor their columns, and writes to the old table.
func (b *bed) older(t testing.TB, hits ...detectors.Hit) {
	t.Helper()
	const columns = `stream, id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, window_ms, events, peak, first, last,
		seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank`
	phases := []detectors.Phase{detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseClosed, detectors.PhaseMerged}
	for _, h := range hits {
		table, kind, value := "hits", "", ""
		if h.Kind != detectors.KindHit {
			table, kind, value = "hits_beside", ", kind", ", '"+string(h.Kind)+"'"
		}
		b.Run(t, `INSERT INTO weir.`+table+` AS h (`+columns+kind+`) VALUES ('live', $1, $2, 1, 1, $3, $4, $4, false, 2, 60000, $5, 3, $6, $7, $6, $7, false, 1, 1, 1, 1, '', 1, 1, '{}', 0`+value+`)
			ON CONFLICT (stream, id) DO UPDATE SET phase = greatest(h.phase, excluded.phase), events = greatest(h.events, excluded.events),
				first = least(h.first, excluded.first), last = greatest(h.last, excluded.last)`,
			h.ID, h.Rule, slices.Index(phases, h.Phase)+1, string(h.Subject), h.Count, postgres.Timestamp(h.First), postgres.Timestamp(h.Last))
	}
}

// However processes of this build and the one before take turns over the records of an episode, with what an older DETECT leaves out or not,
// it is one row, and that has all of it.
func TestOneIDIsOneRow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 60 {
		kind := []detectors.Kind{detectors.KindHit, detectors.KindNear}[n%2]
		most := int64(0)
		for range 1 + r.IntN(5) {
			h := hitNumber(n * 3000) // over days
			h.Kind, h.Count, h.Phase = kind, 1+r.Int64N(50), detectors.PhaseUpdate
			h.Last = h.First.Add(time.Duration(r.IntN(3600)) * time.Second)
			if r.IntN(3) == 0 {
				h.Opened = 0
			}
			most = max(most, h.Count)
			if r.IntN(2) == 0 {
				b.older(t, h)
			} else {
				b.record(t, history.Live, h)
			}
		}
		view := map[detectors.Kind]string{detectors.KindHit: "hits_v", detectors.KindNear: "hits_beside_v"}[kind]
		id := hitNumber(n * 3000).ID
		rows := b.Number(t, "SELECT count(*) FROM weir."+view+" WHERE id = $1", id)
		events := b.Number(t, "SELECT max(events) FROM weir."+view+" WHERE id = $1", id)
		if rows != 1 || events != most {
			t.Fatalf("hit %d: %d rows, %d events, want %d", n, rows, events, most)
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_by_day"); n == 0 || n == b.Number(t, "SELECT count(*) FROM weir.hits_all") {
		t.Errorf("%d rows have a day: the test shows nothing", n)
	}
}

// An older build's transaction that is under way is waited for: its rows are seen before a row is placed.
func TestWritersOfBothBuildsWait(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	h := hitNumber(1)
	b.Run(t, "BEGIN")
	b.older(t, h)
	done := make(chan error, 1)
	recorder := b.hitRecorder(t, &letterBox{})
	go func() { done <- recorder.Apply(t.Context(), messages(t, h)) }()
	testbed.Eventually(t, 20*time.Second, func() error {
		select {
		case err := <-done:
			t.Fatalf("%v: it did not wait", err)
		default:
		}
		if b.Number(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 0 {
			return errors.New("nobody waits")
		}
		return nil
	})
	b.Run(t, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_v WHERE id = $1", h.ID); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// A decision that is taken again, also after midnight, or by an older build, is one row; releases stay where reconcilers of older builds look.
func TestDecisionsHaveOneDay(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", &letterBox{}, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	midnight := traffic.At(dawn.Std().Truncate(24 * time.Hour).Add(24 * time.Hour))
	apply := func(d blocklist.Decision) {
		t.Helper()
		value, err := blocklist.EncodeDecision(&d)
		if err != nil {
			t.Fatal(err)
		}
		if err := recorder.Apply(t.Context(), []traffic.Message{{Value: value}}); err != nil {
			t.Fatal(err)
		}
	}
	d := blocklist.Decision{Format: blocklist.DecisionFormat, ID: "1", Action: blocklist.ActionWritten, Rule: "flood", Subject: "ip=192.0.2.7%2F32",
		Hit: "h", Since: dawn, Until: midnight.Add(time.Hour), At: midnight.Add(-time.Second)}
	again := d
	again.At = midnight.Add(time.Second)
	apply(d)
	apply(again)
	apply(d)
	b.Run(t, `INSERT INTO weir.block_decisions (stream, id, action, reason, rule, subject, hit, generation, at, decided_by)
		VALUES ('live', '1', 'written', '', 'flood', '', 'h', 1, $1, '') ON CONFLICT DO NOTHING`, postgres.Timestamp(again.At))
	released := d
	released.ID, released.Action = "2", blocklist.ActionReleased
	apply(released)
	all, err := b.Decisions(t.Context(), history.DecisionQuery{Hit: "h"})
	if err != nil || len(all) != 2 || all[0].At != d.At || all[1].At != d.At {
		t.Errorf("%+v, %v", all, err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.block_decisions WHERE action = 'released'"); n != 1 {
		t.Errorf("%d releases without a day", n)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.block_decisions_by_day"); n != 1 {
		t.Errorf("%d rows with a day", n)
	}
}

// keeper keeps 10 days, as of a clock.
func (b *bed) keeper(t *testing.T, now traffic.Time) *retention.Keeper {
	t.Helper()
	const keep = 10 * 24 * time.Hour
	clock := func() traffic.Time { return now }
	k, err := retention.NewKeeper(retention.Options{
		DB: b.DB, Days: retention.NewDays(b.Store, keep, clock), Keep: keep, Logger: slog.New(slog.DiscardHandler),
		Now: func(context.Context) (traffic.Time, error) { return now, nil },
	}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What is older than retention goes, whole days and rows without one; what is not stays, and so do decisions whose blocks are in force.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	now := dawn.Add(20 * 24 * time.Hour)
	var hits []detectors.Hit
	for n := range 20 {
		h := hitNumber(n)
		h.Opened = dawn.Add(time.Duration(n) * 24 * time.Hour)
		h.First, h.Last = h.Opened, h.Opened.Add(time.Minute)
		if n%2 == 0 {
			h.Opened = 0
		}
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	refused := func(day int) detectors.Hit {
		at := dawn.Add(time.Duration(day) * 24 * time.Hour)
		return detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindRefused, ID: fmt.Sprint("refused-", day),
			Rule: "flood", Block: hits[0].ID[:16], Count: 5, First: at, Last: at, Seen: at}
	}
	b.record(t, history.Live, refused(0), refused(9), refused(11), refused(19))
	replay := postgres.Timestamp(now.Add(-11 * 24 * time.Hour))
	for _, name := range []string{"replay/old", "replay/new"} {
		b.record(t, name, append(hits[:3:3], refused(0))...)
		b.Run(t, "INSERT INTO weir.streams (name, requests_partitions, keyed_partitions, hits_partitions, created_at) VALUES ($1, 1, 1, 1, $2)", name, replay)
		replay = postgres.Timestamp(now)
	}
	decisions, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", &letterBox{}, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var batch []traffic.Message
	for i, until := range []time.Duration{-time.Hour, 1000 * time.Hour} {
		d := blocklist.Decision{Format: blocklist.DecisionFormat, ID: fmt.Sprint(i), Action: blocklist.ActionWritten, Rule: "flood", Subject: "ip=192.0.2.7%2F32",
			At: dawn, Until: traffic.At(time.Now().Add(until))}
		value, err := blocklist.EncodeDecision(&d)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, traffic.Message{Value: value})
	}
	if err := decisions.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	k := b.keeper(t, now)
	for range 2 { // once more changes nothing
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for sql, want := range map[string]int64{
		"SELECT count(*) FROM weir.hits_v WHERE stream = 'live' AND last < '2026-11-11 00:00Z'":           0,
		"SELECT count(*) FROM weir.hits_v WHERE stream = 'live' AND last >= '2026-11-12 00:00Z'":          9,
		"SELECT count(*) FROM weir.hits_v WHERE stream = 'replay/old'":                                    0,
		"SELECT count(*) FROM weir.hits_v WHERE stream = 'replay/new'":                                    3,
		"SELECT sum(events) FROM weir.refusals_v WHERE stream = 'live' AND minute >= '2026-11-11 00:00Z'": 2 * 5,
		// These are the new replay's.
		"SELECT count(*) FROM weir.refusals WHERE minute < '2026-11-11 00:00Z'":                                                    1,
		"SELECT count(*) FROM weir.refusals WHERE stream = 'replay/old'":                                                           0,
		"SELECT count(*) FROM weir.block_decisions_v":                                                                              1,
		"SELECT count(*) FROM weir.block_decisions_v WHERE id = '1'":                                                               1,
		"SELECT count(*) FROM pg_class WHERE relname LIKE 'hits_by_day_2%' AND relkind = 'r' AND relname < 'hits_by_day_20261111'": 0,
	} {
		if got := b.Number(t, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	days, err := retention.Existing(t.Context(), b.DB, "hits_by_day")
	if err != nil || !slices.Contains(days, retention.DayOf(now)+7) || !slices.Contains(days, retention.DayOf(now)-1) {
		t.Errorf("days %v, %v", days, err)
	}
}

// A query that reads a day keeps it for longer; nobody waits for its end meanwhile, which comes after the keeper has
// gone on; and the day goes later.
func TestADayIsDroppedAfterItsReaders(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	newest := hitNumber(2)
	newest.Opened = dawn.Add(19 * 24 * time.Hour)
	b.record(t, history.Live, hitNumber(1), newest)
	k := b.keeper(t, dawn.Add(20*24*time.Hour))
	b.Run(t, "BEGIN")
	b.Number(t, "SELECT count(*) FROM weir.hits_v")
	if err := k.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "a query has been reading it") {
		t.Errorf("%v", err)
	}
	b.Run(t, "COMMIT")
	if err := k.Once(t.Context()); err != nil {
		t.Error(err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_v"); n != 1 {
		t.Errorf("%d rows are left, want the newest", n)
	}
}

// A keeper whose own clock is far ahead drops nothing, since the database's is not; and where that one is ahead as
// well, the newest day stays.
func TestAClockAheadDropsNoHistory(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const days = 5
	now := time.Now()
	good := retention.NewDays(b.Store, 0, func() traffic.Time { return traffic.At(now) })
	recorder, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", &letterBox{}, good,
		prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for n := range days {
		h := hitNumber(n)
		h.Opened = traffic.At(now.AddDate(0, 0, -n))
		h.First, h.Last = h.Opened, h.Opened
		if err := recorder.Apply(t.Context(), messages(t, h)); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_by_day"); n != days {
		t.Fatalf("%d rows have a day", n)
	}
	ahead := traffic.At(now.AddDate(0, 0, 91))
	own := retention.Options{DB: b.DB, Days: retention.NewDays(b.Store, retention.DefaultKeep,
		func() traffic.Time { return ahead }),
		Keep: retention.DefaultKeep, Logger: slog.New(slog.DiscardHandler)}
	both := own
	both.Now = func(context.Context) (traffic.Time, error) { return ahead, nil }
	for _, of := range []struct {
		name    string
		options retention.Options
		left    int64
	}{{"own", own, days}, {"both", both, 1}} {
		k, err := retention.NewKeeper(of.options, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := b.Number(t, "SELECT count(*) FROM weir.hits_v"); n != of.left {
			t.Errorf("%s clock ahead: %d rows are left, want %d", of.name, n, of.left)
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_v WHERE id = $1", hitNumber(0).ID); n != 1 {
		t.Error("the newest row is gone")
	}
}

// A day that is gone while RECORD believes that it is there is made again.
func TestAMissingDayIsMade(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	box := &letterBox{}
	recorder := b.hitRecorder(t, box)
	for n := range 2 {
		if err := recorder.Apply(t.Context(), messages(t, hitNumber(n))); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			b.Run(t, "DROP TABLE weir.hits_by_day_20261101, weir.hits_beside_by_day_20261101, weir.block_decisions_by_day_20261101")
		}
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_by_day"); n != 1 || len(box.letters) > 0 {
		t.Errorf("%d rows, dead letters %+v", n, box.letters)
	}
}

// Times that no day is made for have none: they are stored all the same, and found.
func TestTimesWithoutDays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var hits []detectors.Hit
	for n, at := range []traffic.Time{traffic.BeforeTime, -1, 1, dawn.Add(-3000 * time.Hour), dawn.Add(33 * 24 * time.Hour), traffic.EndOfTime} {
		h := hitNumber(n)
		h.Opened, h.First, h.Last = at, at, at
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	if n := b.Number(t, "SELECT count(*) FROM weir.hits WHERE stream = 'live'"); n != int64(len(hits)) {
		t.Errorf("%d of %d rows are without a day", n, len(hits))
	}
	found, err := b.Hits(t.Context(), history.HitQuery{Since: dawn.Add(32 * 24 * time.Hour)})
	if err != nil || len(found) != 2 {
		t.Errorf("%d found, %v", len(found), err)
	}
}

// A question about a time looks into the tables of its days only.
func TestQuestionsPruneDays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for n := range 15 {
		h := hitNumber(n)
		h.Opened = dawn.Add(time.Duration(n) * 24 * time.Hour)
		h.First, h.Last = h.Opened, h.Opened
		b.record(t, history.Live, h)
	}
	q := history.HitQuery{Stream: history.Live, Since: dawn.Add(7 * 24 * time.Hour), Until: dawn.Add(8 * 24 * time.Hour)}
	w := q.Where()
	sql := "EXPLAIN SELECT * FROM " + q.From() + w.String()
	var plan string
	for i, arg := range w.Args { // as the planner sees them the first five times
		text := ""
		switch v := arg.(type) {
		case postgres.Timestamp:
			text = "'" + traffic.Time(v).String() + "'::timestamptz"
		case time.Time:
			text = "'" + v.Format(time.DateOnly) + "'"
		default:
			text = fmt.Sprintf("'%v'", v)
		}
		sql = strings.Replace(sql, fmt.Sprintf("$%d", i+1), text, 1)
	}
	if _, err := b.Conn.Exec(t.Context(), "SET search_path TO weir"); err != nil {
		t.Fatal(err)
	}
	rows, err := b.Conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan = strings.Join(lines, "\n")
	for n := range 15 {
		name := "hits_by_day_202611" + fmt.Sprintf("%02d", n+1)
		within := n+1 >= 6 && n+1 <= 11 // the 8th, less and more two days, an episode's length
		if strings.Contains(plan, name) != within {
			t.Errorf("day %d is read: %v, want %v", n+1, !within, within)
		}
	}
	if t.Failed() {
		t.Log(plan)
	}
}
