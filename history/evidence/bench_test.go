package evidence_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkGather is the dossier of one rule of twenty over 7 days, where history holds 30 days of them: WEIR_BENCH_HITS hits, 200,000 where
// nothing is said, a tenth of them decided upon, with minutes of 8 keyed partitions.
func BenchmarkGather(b *testing.B) {
	hits := 200_000
	if n, err := strconv.Atoi(os.Getenv("WEIR_BENCH_HITS")); err == nil {
		hits = n
	}
	bed := historytest.New(b)
	bed.Publish(b, historytest.Routing().Format)
	bed.Apply(b, historytest.Document("rule-7"))
	const days = 30
	begin := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	bed.Run(b, "UPDATE weir.rule_versions SET created_at = $1", begin.AddDate(0, 0, -1))
	bed.Run(b, "SET search_path = weir")
	for day := range days + 1 {
		at := begin.AddDate(0, 0, day)
		for _, table := range []string{"hits_by_day", "block_decisions_by_day"} {
			bed.Run(b, fmt.Sprintf("CREATE TABLE %s_%s PARTITION OF %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')", table, at.Format("20060102"), at.Format(time.DateOnly), at.AddDate(0, 0, 1).Format(time.DateOnly)))
		}
		if day < days {
			fillDay(b, bed, at, day*hits/days, hits/days)
		}
	}
	bed.Run(b, "ANALYZE")
	s := evidence.New(bed.DB, bed.Rules)
	q := evidence.Question{Rule: "rule-7", Since: traffic.At(begin.AddDate(0, 0, 20)), Until: traffic.At(begin.AddDate(0, 0, 27))}
	b.ResetTimer()
	for range b.N {
		d, err := s.Gather(b.Context(), q)
		if err != nil {
			b.Fatal(err)
		}
		over, _ := d.Held.Over.Known()
		episodes, _ := d.Held.Episodes.Known()
		if wanted := int64(hits / days * 7 / 20); episodes < wanted*9/10 || episodes > wanted*11/10 || d.Observed.Minutes != 7*24*60 || d.Overlap.Sources.Part == 0 || len(d.Top[0].Samples) == 0 {
			b.Fatalf("%d sources with %d episodes, observed %d, overlap %+v", over, episodes, d.Observed.Minutes, d.Overlap)
		}
		b.ReportMetric(float64(episodes), "episodes")
		b.ReportMetric(float64(over), "sources")
	}
}

// fillDay makes the rows of a day: hits of 20 rules, from numbers on.
func fillDay(b *testing.B, bed *historytest.Bed, day time.Time, from, hits int) {
	b.Helper()
	bed.Run(b, `INSERT INTO hits_by_day (day, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, grouped, rule_limit, window_ms, events, peak, first, last, seen_first, seen_last,
			cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank, at_least, reason, opened, known_good, refused)
		SELECT $1::timestamptz::date, md5(i::text), 'rule-' || i % 20, 1, 1, 3, s.subject, s.subject, s.ip::cidr, 'tv-' || s.n, false, 5, 60000, 6 + i % 50, 6 + i % 400, s.at, s.at + interval '1 min', s.at, s.at,
			false, 1, 0, i, i % 8, '', i % 9, i % 4, ARRAY[repeat('{"path": "/v1/guest-tokens"}', 9)], 1, false, '', s.at, i % 3, i % 100
		FROM generate_series($2::bigint, $2::bigint + $3::bigint - 1) i
		CROSS JOIN LATERAL (SELECT (i * 7919) % 1000003 AS n, $1::timestamptz + (i % 86000) * interval '1 s' AS at) t
		CROSS JOIN LATERAL (SELECT t.n, t.at, host('10.0.0.0'::inet + t.n) AS ip, 'ip=' || host('10.0.0.0'::inet + t.n) || '%2F32&device=tv-' || t.n AS subject) s`, day, from, hits)
	bed.Run(b, `INSERT INTO block_decisions_by_day (day, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
		SELECT day, id || 'd', 'written', '', 'rule-9', split_part(subject, '&', 1), id, 1, first, last + interval '1 hour', first, 'e' FROM hits_by_day WHERE day = $1::timestamptz::date AND source_offset % 10 = 7`, day)
	bed.Run(b, `INSERT INTO event_minutes (stream, router, part, minute, events, refused, unwatched, good, unjudged, seen)
		SELECT 'live', r, 0, m, 60000, 100, 1000, 20000, 10000, m FROM generate_series($1::timestamptz, $1::timestamptz + interval '1439 min', interval '1 min') m, (VALUES ('a'), ('b')) AS v (r)`, day)
	bed.Run(b, `INSERT INTO rule_event_minutes (stream, router, part, rule, minute, matched, seen)
		SELECT 'live', r, 0, 'rule-' || n, m, 600, m FROM generate_series($1::timestamptz, $1::timestamptz + interval '1439 min', interval '1 min') m, (VALUES ('a'), ('b')) AS v (r), generate_series(6, 8) n`, day)
	bed.Run(b, `INSERT INTO rule_minutes (stream, id, rule, rule_version, lineage, kind, minute, keyed_partition, events, reached, refused, refused_good, limits, refused_at, seen, at_least)
		SELECT 'live', 'm' || n || p || extract(epoch FROM m), 'rule-' || n, 1, 1, 'hit', m, p, 100, 120, 10, 1, l.steps, l.steps, m, false
		FROM generate_series($1::timestamptz, $1::timestamptz + interval '1439 min', interval '1 min') m, generate_series(0, 7) p, generate_series(6, 8) n,
			(SELECT array_agg(x) AS steps FROM generate_series(5, 28) x) l`, day)
}
