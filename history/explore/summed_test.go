package explore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/sums"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// fataler is of testing and of rapid.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// hoursAgo is the beginning of an hour in the past: sums are of hours that are over by PostgreSQL's clock.
func hoursAgo(n int) traffic.Time {
	return traffic.At(time.Now().Truncate(time.Hour).Add(-time.Duration(n) * time.Hour))
}

// sumUp makes all sums since then that are missing or stale.
func (s *scene) sumUp(ctx context.Context, t fataler, since traffic.Time) {
	t.Helper()
	for {
		if _, err := s.Conn.Exec(ctx, "UPDATE weir.hit_sums_stale SET since = now() - interval '1 day'"); err != nil {
			t.Fatalf("%v", err)
		}
		made, err := sums.NewMaker(s.DB).Once(ctx, since)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if made == (sums.Made{}) {
			return
		}
	}
}

// sameAsRows compares the sums that Groups tells with those of the rows that analysts see, each of which is an episode in these tests.
func (s *scene) sameAsRows(ctx context.Context, t fataler, since, until traffic.Time) {
	t.Helper()
	for by, key := range map[explore.Group]string{
		explore.ByRule: "rule, to_timestamp(0)", explore.ByHour: "'', date_trunc('hour', greatest(first, $1), 'UTC')", explore.ByDay: "'', date_trunc('day', greatest(first, $1), 'UTC')",
	} {
		rows, err := s.Conn.Query(ctx, `SELECT `+key+`, count(*), count(DISTINCT (rule, subject)), sum(events)::bigint, sum(refused)::bigint, max(peak), min(first), max(last)
			FROM weir.hits_v WHERE stream = 'live' AND phase <> 'merged' AND last >= $1 AND first < $2 GROUP BY 1, 2`, postgres.Timestamp(since), postgres.Timestamp(until))
		if err != nil {
			t.Fatalf("%v", err)
		}
		want := map[string]explore.GroupRow{}
		if _, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r explore.GroupRow, err error) {
			err = row.Scan(&r.Rule, postgres.ScanTime(&r.At), &r.Episodes, &r.Sources, &r.Events, &r.WouldRefuse,
				&r.Peak, postgres.ScanTime(&r.First), postgres.ScanTime(&r.Last))
			want[groupKey(r)] = r
			return r, err
		}); err != nil {
			t.Fatalf("%v", err)
		}
		f := explore.Filter{Since: since, Until: until}
		if until == traffic.EndOfTime {
			f.Until = 0
		}
		got, err := s.Groups(ctx, f, by, explore.ByEpisodes, explore.Page{Limit: 1000})
		if err != nil {
			t.Fatalf("%v", err)
		}
		if len(got.Rows) != len(want) || got.Total.N != int64(len(want)) {
			t.Fatalf("by %s since %s until %s: %d groups, want %d", by, since, until, len(got.Rows), len(want))
		}
		for _, r := range got.Rows {
			if r != want[groupKey(r)] {
				t.Fatalf("by %s since %s until %s: %+v, want %+v", by, since, until, r, want[groupKey(r)])
			}
		}
	}
}

// numbered is one of few episodes: two for a source, half a day apart, so that each row is an episode whatever runs.
func numbered(n int, base traffic.Time) detectors.Hit {
	h := hit(n, []string{"flood", "login"}[n%4/2], n/2, n/2, base.Add(time.Duration(n%2)*12*time.Hour+time.Duration(n*23%300)*time.Minute), 0)
	h.Phase = detectors.PhaseOpen
	return h
}

// Whatever happens to rows, and whenever they are summed up meanwhile, sums are those of the rows.
func TestSumsAreThoseOfTheRows(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(20)
	eraser := erasure.New(s.DB, s.Store.Streams)
	rapid.Check(t, func(r *rapid.T) {
		s.Run(t, "TRUNCATE weir.hits_by_day, weir.hits, weir.hit_hours, weir.hit_sums, weir.hit_sums_stale")
		rows := map[int]*detectors.Hit{}
		for range rapid.IntRange(3, 8).Draw(r, "acts") {
			switch rapid.IntRange(0, 7).Draw(r, "act") {
			default: // records, some of which come again
				var batch []detectors.Hit
				for range rapid.IntRange(1, 6).Draw(r, "records") {
					n := rapid.IntRange(0, 11).Draw(r, "row")
					if rows[n] == nil {
						h := numbered(n, base)
						rows[n] = &h
					}
					h := rows[n]
					h.Phase = rapid.SampledFrom([]detectors.Phase{detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseClosed, detectors.PhaseClosed, detectors.PhaseMerged}).Draw(r, "phase")
					h.Count += rapid.Int64Range(0, 3).Draw(r, "events")
					h.Last = h.Last.Add(time.Duration(rapid.IntRange(0, 90).Draw(r, "minutes")) * time.Minute)
					h.First = h.First.Add(-time.Duration(rapid.IntRange(0, 1).Draw(r, "earlier")) * 10 * time.Minute)
					h.Last = min(h.Last, h.Opened.Add(5*time.Hour))
					h.First = max(h.First, h.Opened.Add(-time.Hour))
					batch = append(batch, *h)
				}
				s.Record(t, batch...)
			case 4: // the counts of one that runs, or has run
				n := rapid.IntRange(0, 11).Draw(r, "row")
				h := numbered(n, base)
				h.Kind, h.Count, h.Refused = detectors.KindRunning, 40, rapid.Int64Range(0, 9).Draw(r, "refused")
				h.Last = h.Opened.Add(time.Hour)
				s.Record(t, h)
			case 5:
				device := fmt.Sprintf("tv-%d", rapid.IntRange(0, 5).Draw(r, "device"))
				if _, err := eraser.Erase(t.Context(), erasure.Request{Person: erasure.Person{Field: traffic.FieldDevice, Value: device}, By: "ann", Reason: "asked"}); err != nil {
					r.Fatalf("%v", err)
				}
			case 6, 7:
				s.sumUp(t.Context(), r, base)
			}
		}
		for _, since := range []traffic.Time{base, base.Add(150 * time.Minute)} {
			for _, until := range []traffic.Time{traffic.EndOfTime, base.Add(14 * time.Hour), base.Add(13*time.Hour + 10*time.Minute)} {
				s.sameAsRows(t.Context(), r, since, until)
			}
		}
	})
}

// The answer is from sums, not from rows, but for rules whose rows have changed since, and for hours without sums.
func TestSumsAreUsed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(20)
	var hits []detectors.Hit
	for n := range 8 {
		h := numbered(n, base)
		h.Phase = detectors.PhaseClosed
		hits = append(hits, h)
	}
	s.Record(t, hits...)
	s.sumUp(t.Context(), t, base)
	s.sameAsRows(t.Context(), t, base, traffic.EndOfTime)
	s.Run(t, "UPDATE weir.hit_sums SET episodes = episodes + 1000")
	episodes := func() map[string]int64 {
		found, err := s.Groups(t.Context(), explore.Filter{Since: base}, explore.ByRule, "", explore.Page{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int64{}
		for _, r := range found.Rows {
			out[r.Rule] = r.Episodes
		}
		return out
	}
	if got := episodes(); got["flood"] != 4004 || got["login"] != 4004 {
		t.Errorf("not from sums: %v", got)
	}
	hits[0].Count += 5
	s.Record(t, hits[0])
	if got := episodes(); got["flood"] != 3004 || got["login"] != 4004 {
		t.Errorf("one row of flood has changed: %v", got)
	}
	s.Record(t, hits...) // again, which changes nothing
	if n := s.Number(t, "SELECT count(*) FROM weir.hit_sums_stale"); n != 1 {
		t.Errorf("%d stale sums, want one", n)
	}
	s.Run(t, "DELETE FROM weir.hit_hours WHERE hour = $1", base.Std()) // in which each rule has an episode
	if got := episodes(); got["flood"] != 3004 || got["login"] != 3004 {
		t.Errorf("an hour has no sums: %v", got)
	}
	// A source of flood gets a row for another block: its rule is read from rows.
	other := hits[1]
	other.ID, other.BlockSubject = "ff"+other.ID[2:], other.BlockSubject+"&user=u"
	s.Record(t, other)
	s.sumUp(t.Context(), t, base)
	if got := episodes(); got["flood"] != 4 || got["login"] != 3004 {
		t.Errorf("rows for several blocks: %v", got)
	}
}

// A question about a day of long ago is answered from its sums, whatever has none since.
func TestSumsOfAPastDay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(240)
	var hits []detectors.Hit
	for n := range 8 {
		h := numbered(n, base)
		h.Phase = detectors.PhaseClosed
		hits = append(hits, h)
	}
	s.Record(t, hits...)
	s.sumUp(t.Context(), t, base)
	s.Run(t, "DELETE FROM weir.hit_hours WHERE hour >= $1", base.Add(72*time.Hour).Std())
	s.sameAsRows(t.Context(), t, base, base.Add(24*time.Hour))
	s.sameAsRows(t.Context(), t, base, traffic.EndOfTime)
	s.Run(t, "UPDATE weir.hit_sums SET episodes = episodes + 1000")
	for _, ask := range []struct {
		until traffic.Time
		least int64 // of 4 episodes a rule
		most  int64
	}{{base.Add(24 * time.Hour), 1000, 10_000}, {base.Add(24*time.Hour + 30*time.Minute), 1000, 10_000}, {0, 4, 4}} {
		found, err := s.Groups(t.Context(), explore.Filter{Since: base, Until: ask.until}, explore.ByRule, "", explore.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Rows) != 2 {
			t.Fatalf("until %v: %d rules, want 2", ask.until, len(found.Rows))
		}
		for _, r := range found.Rows {
			if r.Episodes < ask.least || r.Episodes > ask.most {
				t.Errorf("until %v: %s has %d episodes, want %d to %d", ask.until, r.Rule, r.Episodes, ask.least, ask.most)
			}
		}
	}
}

// Who changes a row while sums are begun is waited for.
func TestSumsWaitForWriters(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(20)
	h := numbered(0, base)
	h.Phase = detectors.PhaseClosed
	s.Record(t, h)
	tx, err := s.Conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE weir.hits_by_day SET events = events + 7"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := sums.NewMaker(s.DB).Once(t.Context(), base)
		done <- err
	}()
	testbed.Eventually(t, 20*time.Second, func() error {
		var waiting int
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting); err != nil || waiting == 0 {
			return fmt.Errorf("nobody waits; %w", err)
		}
		return nil
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := s.Number(t, "SELECT count(*) FROM weir.hit_sums WHERE events = $1", h.Count+7); n != 1 {
		t.Error("the sum is not of the rows")
	}
	s.sameAsRows(t.Context(), t, base, traffic.EndOfTime)
}

// A day that is dropped takes its sums with it, and those of the next days that its last episodes are in.
func TestSumsOfADroppedDay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	midnight := traffic.At(time.Now().UTC().Truncate(24 * time.Hour).Add(-3 * 24 * time.Hour))
	var hits []detectors.Hit
	for n, first := range []time.Duration{-5 * time.Hour, -time.Hour, 30 * time.Minute} {
		h := hit(n, "flood", n, n, midnight.Add(first), 2*time.Hour)
		hits = append(hits, h)
	}
	s.Record(t, hits...)
	s.sumUp(t.Context(), t, midnight.Add(-24*time.Hour))
	now := midnight.Add(retention.LeastKeep)
	clock := func() traffic.Time { return now }
	k, err := retention.NewKeeper(retention.Options{
		DB: s.DB, Days: retention.NewDays(s.Store, retention.LeastKeep,
			clock), Keep: retention.LeastKeep, Logger: slog.New(slog.DiscardHandler),
		Now: func(context.Context) (traffic.Time, error) { return now, nil },
	}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Number(t, "SELECT count(*) FROM weir.hits_v"); n != 1 {
		t.Fatalf("%d rows, want one", n)
	}
	if n := s.Number(t, "SELECT count(*) FROM weir.hit_sums WHERE hour < $1", midnight.Std()); n != 0 {
		t.Errorf("%d sums of the day that is gone", n)
	}
	s.sameAsRows(t.Context(), t, midnight, traffic.EndOfTime)
	s.sumUp(t.Context(), t, midnight)
	s.sameAsRows(t.Context(), t, midnight, traffic.EndOfTime)
}

// Of many sources in an hour the number is about right, and said to be about; with hours that have fewer it is counted.
func TestManySourcesAreEstimated(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(20)
	const many = 2000
	var hits []detectors.Hit
	for n := range many {
		h := hit(n, "flood", n%250, n, base.Add(time.Duration(n%4)*time.Hour), time.Minute)
		hits = append(hits, h)
	}
	for n := range 100 {
		hits = append(hits, hit(many+n, "login", n, 0, base.Add(time.Duration(n%2)*time.Hour), time.Minute))
	}
	s.Record(t, hits...)
	s.sumUp(t.Context(), t, base)
	found, err := s.Groups(t.Context(), explore.Filter{Since: base}, explore.ByRule, "", explore.Page{})
	if err != nil || len(found.Rows) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	flood, login := found.Rows[0], found.Rows[1]
	if flood.Episodes != many || !flood.SourcesAbout || flood.Sources < many*9/10 || flood.Sources > many*11/10 {
		t.Errorf("%+v, want about %d sources", flood, many)
	}
	if login.Sources != 100 || login.SourcesAbout {
		t.Errorf("%+v, want 100 sources", login)
	}
}

// Of very many hours a part of the hashes is read: the number of sources is about right whether each hour has others or all have the same, and it is
// counted where few came, however often.
func TestSourcesOfManyHours(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const hours = 480
	base := hoursAgo(hours + 4)
	// sums that say nothing of one hour alone, and are not stale
	sum := func(rule string, sources int, name string) {
		s.Run(t, `INSERT INTO weir.hit_sums (hour, rule, begun, episodes, events, refused, peak, first, last, several, sources, hashes)
			SELECT h, $2, h, $3::bigint, 1, 0, 1, h, h, false, $3::bigint,
				(SELECT array_agg(hash ORDER BY hash) FROM (SELECT hashtextextended(`+name+`, 0) AS hash FROM generate_series(1, $3::int) i ORDER BY 1 LIMIT 256) kept)
			FROM generate_series($1::timestamptz, $1::timestamptz + make_interval(hours => $4::int - 1), interval '1 hour') h`, base.Std(), rule, sources, hours)
	}
	s.Run(t, "INSERT INTO weir.hit_hours (hour, ready) SELECT h, true FROM generate_series($1::timestamptz, now(), interval '1 hour') h", base.Std())
	sum("flood", 1000, "extract(epoch FROM h) || ' ' || i")                   // a thousand an hour, never the same
	sum("login", 200, "extract(epoch FROM h)::bigint / 3600 / 4 || ' ' || i") // two hundred, the same for four hours
	sum("office", 3000, "i::text")                                            // three thousand, always the same
	sum("few", 250, "i::text")                                                // as many as an hour keeps, always the same
	for n := range 10 {
		sum(fmt.Sprint("more-", n), 256, "extract(epoch FROM h) % 7 || ' ' || i") // so many that not all hashes are read
	}
	wanted := map[string]int64{"flood": 1000 * hours, "login": 200 * hours / 4, "office": 3000, "few": 250}
	about := func(got, want int64) bool { return got > want*85/100 && got < want*115/100 } // four standard deviations of the roughest
	for _, order := range []explore.Order{explore.ByEvents, explore.BySources} {
		found, err := s.Groups(t.Context(), explore.Filter{Since: base}, explore.ByRule, order, explore.Page{})
		if err != nil || len(found.Rows) != len(wanted)+10 {
			t.Fatalf("%d rules, %v", len(found.Rows), err)
		}
		for i, r := range found.Rows {
			if want, told := wanted[r.Rule]; told && !about(r.Sources, want) {
				t.Errorf("%s has %d sources, want about %d", r.Rule, r.Sources, want)
			}
			if r.Rule == "few" && (r.Sources != 250 || r.SourcesAbout) || r.Rule == "flood" && !r.SourcesAbout {
				t.Errorf("%+v", r)
			}
			if order == explore.BySources && i > 0 && r.Sources > found.Rows[i-1].Sources {
				t.Errorf("%s has more sources than %s before it", r.Rule, found.Rows[i-1].Rule)
			}
		}
	}
	days, err := s.Groups(t.Context(), explore.Filter{Since: base, Rule: "flood"}, explore.ByDay, "", explore.Page{Limit: 5})
	if err != nil || len(days.Rows) != 5 || days.Next == "" {
		t.Fatalf("%+v, %v", days, err)
	}
	for _, d := range days.Rows[1:] {
		if !about(d.Sources, 24_000) || d.Episodes != 24_000 {
			t.Errorf("%+v, want about 24000 sources", d)
		}
	}
	untold, err := s.Groups(t.Context(), explore.Filter{Since: base, NoSources: true}, explore.ByDay, "", explore.Page{Limit: 5})
	if err != nil || len(untold.Rows) != 5 || untold.Rows[1].Episodes == 0 || untold.Rows[1].Sources != 0 {
		t.Errorf("%+v, %v", untold, err)
	}
}
