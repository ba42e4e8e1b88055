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
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// scaleRows is how many hits the loader makes: WEIR_HISTORY_ROWS, such as 10000000; a small number without it.
func scaleRows(tb testing.TB) int64 {
	text, set := os.LookupEnv("WEIR_HISTORY_ROWS")
	if !set {
		return 30_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < historytest.MonthDays {
		tb.Fatalf("WEIR_HISTORY_ROWS: got %q; allowed: a number from %d", text, historytest.MonthDays)
	}
	return n
}

// newMonth is a scene whose history is a month of hits.
func newMonth(tb testing.TB, hits int64) (*scene, historytest.Month) {
	b, m := historytest.NewMonth(tb, hits)
	return &scene{b, explore.New(b.Store)}, m
}

// scaleQuestion is one whose answer people wait for; least is how many rows it has at least.
type scaleQuestion struct {
	name  string
	least int
	since traffic.Time // that it asks about
	ask   func(ctx context.Context) (int, error)
}

// scaleQuestions are those whose answers people wait for.
func (s *scene) scaleQuestions(m historytest.Month) []scaleQuestion {
	month, week, day := explore.Filter{Since: m.Begin}, explore.Filter{Since: m.End.Add(-7 * 24 * time.Hour)}, explore.Filter{Since: m.End.Add(-24 * time.Hour)}
	rule := month
	rule.Rule = historytest.MonthQuiet
	hits := func(f explore.Filter) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			page, err := s.Hits(ctx, f, explore.Page{})
			return len(page.Hits), err
		}
	}
	groups := func(f explore.Filter, by explore.Group) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			sums, err := s.Groups(ctx, f, by, "", explore.Page{Limit: 50})
			return len(sums.Rows), err
		}
	}
	source := func(f explore.Filter) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) {
			line, err := s.Timeline(ctx, historytest.MonthAddress, f, explore.Page{})
			if err != nil {
				return 0, err
			}
			_, err = s.Pivots(ctx, historytest.MonthAddress, f)
			return len(line.Entries), err
		}
	}
	return []scaleQuestion{
		{"first-page", 100, m.Begin, hits(month)},
		{"first-page-of-a-rule", 100, m.Begin, hits(rule)},
		{"source-of-a-week", 1, week.Since, source(week)},
		{"source-of-a-month", 1, m.Begin, source(month)},
		{"day-by-rule", 20, day.Since, groups(day, explore.ByRule)},
		{"day-by-source", 50, day.Since, groups(day, explore.BySource)},
		{"day-by-hour", 24, day.Since, groups(day, explore.ByHour)},
		{"day-by-day", 1, day.Since, groups(day, explore.ByDay)},
	}
}

// BenchmarkScale loads WEIR_HISTORY_ROWS hits over 30 days and measures the questions that pages ask, and the dropping of a day. With
// WEIR_HISTORY_URL it finds there what was loaded before, and drops none.
func BenchmarkScale(b *testing.B) {
	rows := scaleRows(b)
	s, m := newMonth(b, rows)
	for _, q := range s.scaleQuestions(m) {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := q.ask(b.Context()); err != nil || n < q.least {
					b.Fatalf("%d rows, want %d or more; %v", n, q.least, err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms")
			b.ReportMetric(float64(m.Hits), "hits")
		})
	}
	if m.Kept {
		return
	}
	took := s.dropOldest(b, m) // once: the day is gone then
	b.Run("drop-a-day", func(b *testing.B) {
		b.ReportMetric(took.Seconds()*1000, "ms")
	})
}

// dropOldest lets the oldest day be over, and returns how long its dropping took.
func (s *scene) dropOldest(tb testing.TB, m historytest.Month) time.Duration {
	tb.Helper()
	oldest := retention.DayOf(m.Begin)
	now := (oldest + 1).Start().Add(40 * 24 * time.Hour)
	clock := func() traffic.Time { return now }
	const keep = 40 * 24 * time.Hour
	days := retention.NewDays(s.Store, keep, clock)
	if err := days.Ahead(tb.Context()); err != nil { // what is made ahead is not what is measured
		tb.Fatal(err)
	}
	k, err := retention.NewKeeper(retention.Options{DB: s.DB, Days: days, Keep: keep,
		Logger: slog.New(slog.DiscardHandler),
		Now:    func(context.Context) (traffic.Time, error) { return now, nil }}, prometheus.NewRegistry())
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
	const rows = 30_000
	s, m := newMonth(t, rows)
	if n := s.Number(t, "SELECT count(*) FROM weir.hits_v WHERE stream = 'live'"); n != rows {
		t.Fatalf("%d hits, want %d", n, rows)
	}
	if n := s.Number(t, "SELECT sum(episodes)::bigint FROM weir.rule_days_v"); n != rows {
		t.Errorf("%d episodes, want %d", n, rows)
	}
	for _, q := range s.scaleQuestions(m) {
		if n, err := q.ask(t.Context()); err != nil || n < q.least {
			t.Errorf("%s: %d rows, want %d or more; %v", q.name, n, q.least, err)
		}
	}
	for i, q := range s.scaleQuestions(m) {
		s.ReadsDays(t, q.name, q.since, func(b *historytest.Bed) error {
			_, err := (&scene{b, explore.New(b.Store)}).scaleQuestions(m)[i].ask(t.Context())
			return err
		})
	}
	page, err := s.Hits(t.Context(), explore.Filter{Rule: historytest.MonthQuiet}, explore.Page{Limit: 10})
	if err != nil || len(page.Hits) != 10 || page.Total.N != rows/20 || page.Next == "" {
		t.Errorf("%d hits of %s, %v", len(page.Hits), fmt.Sprint(page.Total), err)
	}
	s.dropOldest(t, m)
}
