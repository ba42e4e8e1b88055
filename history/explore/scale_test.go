package explore_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// scaleDays is over how many days the loader spreads its hits.
const scaleDays = 30

// scaleRows is how many hits the loader makes: WEIR_HISTORY_ROWS, such as 10000000; a small number without it.
func scaleRows(tb testing.TB) int64 {
	text, set := os.LookupEnv("WEIR_HISTORY_ROWS")
	if !set {
		return 30_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < scaleDays {
		tb.Fatalf("WEIR_HISTORY_ROWS: got %q; allowed: a number from %d", text, scaleDays)
	}
	return n
}

// load fills history with hits over 30 days, day by day, by PostgreSQL itself: 20 rules, a hundredth as many devices as hits and a thousandth as
// many addresses, samples of a size that gateways make.
func (s *scene) load(tb testing.TB, rows int64) {
	tb.Helper()
	days := retention.NewDays(s.Store, 0, func() traffic.Time { return noon })
	perDay := rows / scaleDays
	for d := range int64(scaleDays) {
		day := retention.DayOf(noon) - retention.Day(d)
		if err := days.Need(tb.Context(), []retention.Day{day}); err != nil {
			tb.Fatal(err)
		}
		s.Run(tb, `INSERT INTO weir.hits_by_day (day, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, grouped, rule_limit, window_ms,
				events, peak, first, last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices,
				samples, samples_rank, at_least, reason, opened, known_good, refused)
			SELECT $1::date, md5($1::text || i), CASE i % 20 WHEN 0 THEN 'login' ELSE 'flood' END, 1, 1, 3,
				'ip=' || host(ip) || '%2F32&device=' || device, 'ip=' || host(ip) || '%2F32&device=' || device, ip, device, false, 5, 60000,
				1 + i % 50, 6 + i % 90, at, at + make_interval(secs => i % 600), at, at, false, 1, 1, i, i % 64, '', 1, 1,
				ARRAY['{"time":"2026-11-20T00:00:00.000000Z","ip":"' || host(ip) || '","device":"' || device || '","user":"user-' || i % 1000 ||
					'","method":"POST","path":"/v1/guest-tokens","status":201,"user_agent":"Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36"}'],
				9, false, '', at, 0, i % 7
			FROM (SELECT i, set_masklen(('10.0.0.0'::inet + (hashint8(i) & 2147483647) % greatest($2 / 1000, 10)), 32)::cidr AS ip,
					'tv-' || (hashint8(i * 7) & 2147483647) % greatest($2 / 100, 100) AS device,
					$1::date::timestamp AT TIME ZONE 'UTC' + make_interval(secs => i * 86000.0 / $3) AS at
				FROM generate_series(1, $3) i) g`, day.Date(), rows, perDay)
	}
	s.Run(tb, "ANALYZE weir.hits_by_day")
}

// scaleQuestions are those whose answers people wait for.
func (s *scene) scaleQuestions() []struct {
	name string
	ask  func(ctx context.Context) (int, error)
} {
	const address = "10.0.0.7"
	month := explore.Filter{Since: noon.Add(-scaleDays * 24 * time.Hour)}
	rule := month
	rule.Rule = "login"
	hits := func(f explore.Filter) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			page, err := s.Hits(ctx, f, explore.Page{})
			return len(page.Hits), err
		}
	}
	return []struct {
		name string
		ask  func(ctx context.Context) (int, error)
	}{
		{"first-page", hits(month)},
		{"first-page-of-a-rule", hits(rule)},
		{"source-page", func(ctx context.Context) (int, error) {
			line, err := s.Timeline(ctx, address, month, explore.Page{})
			if err != nil {
				return 0, err
			}
			_, err = s.Pivots(ctx, address, month)
			return len(line.Entries), err
		}},
		{"one-day-by-hour", func(ctx context.Context) (int, error) {
			day := explore.Filter{Since: noon.Add(-24 * time.Hour), Until: noon}
			sums, err := s.Groups(ctx, day, explore.ByHour, "", explore.Page{})
			return len(sums.Rows), err
		}},
	}
}

// BenchmarkScale loads WEIR_HISTORY_ROWS hits over 30 days and measures the questions that pages ask, and the dropping of a day.
func BenchmarkScale(b *testing.B) {
	s := newScene(b)
	rows := scaleRows(b)
	s.load(b, rows)
	for _, q := range s.scaleQuestions() {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := q.ask(b.Context()); err != nil || n == 0 {
					b.Fatalf("%d rows, %v", n, err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms")
			b.ReportMetric(float64(rows), "hits")
		})
	}
	took := s.dropOldest(b) // once: the day is gone then
	b.Run("drop-a-day", func(b *testing.B) {
		b.ReportMetric(took.Seconds()*1000, "ms")
	})
}

// dropOldest lets the oldest day be over, and returns how long its dropping took.
func (s *scene) dropOldest(tb testing.TB) time.Duration {
	tb.Helper()
	oldest := retention.DayOf(noon) - scaleDays + 1
	now := (oldest + 1).Start().Add(40 * 24 * time.Hour)
	clock := func() traffic.Time { return now }
	const keep = 40 * 24 * time.Hour
	days := retention.NewDays(s.Store, keep, clock)
	if err := days.Ahead(tb.Context()); err != nil { // what is made ahead is not what is measured
		tb.Fatal(err)
	}
	k, err := retention.NewKeeper(retention.Options{DB: s.DB, Days: days, Keep: keep, Clock: clock, Logger: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	before := s.Number(tb, "SELECT count(*) FROM weir.hits_by_day WHERE day = $1::date", oldest.Date())
	began := time.Now()
	if err := k.Once(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	took := time.Since(began)
	if after := s.Number(tb, "SELECT count(*) FROM weir.hits_by_day WHERE day = $1::date", oldest.Date()); after != 0 || before == 0 {
		tb.Fatalf("%d rows of %s before, %d after", before, oldest, after)
	}
	return took
}

// The loader's hits are what the questions find; the benchmark is of such a history.
func TestScaleAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const rows = 30_000
	s.load(t, rows)
	if n := s.Number(t, "SELECT count(*) FROM weir.hits_v WHERE stream = 'live'"); n != rows {
		t.Fatalf("%d hits, want %d", n, rows)
	}
	if n := s.Number(t, "SELECT sum(episodes)::bigint FROM weir.rule_days_v"); n != rows {
		t.Errorf("%d episodes, want %d", n, rows)
	}
	for _, q := range s.scaleQuestions() {
		if n, err := q.ask(t.Context()); err != nil || n == 0 {
			t.Errorf("%s: %d rows, %v", q.name, n, err)
		}
	}
	page, err := s.Hits(t.Context(), explore.Filter{Rule: "login"}, explore.Page{Limit: 10})
	if err != nil || len(page.Hits) != 10 || page.Total.N != rows/20 || page.Next == "" {
		t.Errorf("%d hits of %s, %v", len(page.Hits), fmt.Sprint(page.Total), err)
	}
	s.dropOldest(t)
}
