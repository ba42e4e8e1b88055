package historytest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/history/sums"
	"github.com/weirhq/weir/traffic"
)

// Month is a history of 30 days for benchmarks, which PostgreSQL makes itself: hits of 20 rules, their block decisions, and the minutes that the
// dossiers of three of them are made of.
type Month struct {
	Begin, End traffic.Time // End is now: the last episodes are running
	Hits       int64
	Kept       bool // in a database of before, for the benchmarks to come: nothing of it is to be changed
}

// MonthDays is over how many days a month spreads its hits.
const MonthDays = 30

// minutesFrom is from how many hits on a month has minutes, a million rows: tests, whose months have fewer, do not wait for them.
const minutesFrom = 100_000

// Rules of a month that questions are asked about.
const (
	MonthBusy  = "flood" // has three hits of ten
	MonthQuiet = "login" // has one of twenty, as the 18 others have about
)

// MonthAddress is an address of a month: of a thousand hits, or of a thousandth of all where these are few.
const MonthAddress = "10.0.0.7"

// LoadMonth fills history with hits over 30 days: a thousandth as many addresses and a hundredth as many devices, each of which is met with all
// the others, so that few hits have a source in common; samples of a size that gateways make. Rules have to be applied before.
func (b *Bed) LoadMonth(tb testing.TB, hits int64) Month {
	tb.Helper()
	end := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	m := Month{Begin: traffic.At(end.AddDate(0, 0, -MonthDays)), End: traffic.At(end), Hits: hits / MonthDays * MonthDays}
	b.Run(tb, "SET search_path = weir")
	days := retention.NewDays(b.Store, 0, func() traffic.Time { return m.End })
	for day := retention.DayOf(m.Begin); day.Start() < m.End; day++ {
		b.loadDay(tb, days, day, m.Hits)
	}
	if err := days.Ahead(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	b.Run(tb, "UPDATE hits_by_day SET phase = 1 WHERE last > $1", m.End.Add(-time.Minute).Std())
	if hits >= minutesFrom {
		b.loadMinutes(tb, m)
	}
	b.sumUp(tb, m)
	b.Run(tb, "VACUUM ANALYZE") // as autovacuum would have done meanwhile
	return m
}

// sumUp makes the sums of the month's hours, as RECORD's keeper has done meanwhile.
func (b *Bed) sumUp(tb testing.TB, m Month) {
	tb.Helper()
	for {
		made, err := sums.NewMaker(b.DB).Once(tb.Context(), m.Begin)
		if err != nil {
			tb.Fatal(err)
		}
		if made == (sums.Made{}) {
			return
		}
	}
}

// loadDay makes the rows of a day. The table of its hits gets its indexes when all rows are in it, which is when it becomes a day.
func (b *Bed) loadDay(tb testing.TB, days *retention.Days, day retention.Day, hits int64) {
	tb.Helper()
	table := "hits_by_day_" + day.Date().Format("20060102")
	b.Run(tb, "CREATE TABLE "+table+" (LIKE hits_by_day INCLUDING ALL EXCLUDING INDEXES)")
	b.Run(tb, `INSERT INTO `+table+` (day, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, grouped, rule_limit, window_ms,
			events, peak, first, last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices,
			samples, samples_rank, at_least, reason, opened, known_good, refused)
		SELECT $1::date, md5($1::text || i), CASE WHEN i % 100 < 5 THEN '`+MonthQuiet+`' WHEN i % 100 < 35 THEN '`+MonthBusy+`' ELSE 'rule-' || (i % 100 - 35) % 18 + 1 END,
			1, 1, 3, s, s, ip, device, false, 5, 60000, 1 + i % 50, 6 + i % 90, at, at + make_interval(secs => i % 600), at, at, false, 1, 1, i, i % 64, '',
			i % 9, i % 4, ARRAY['{"time":"2026-11-20T00:00:00.000000Z","ip":"' || host(ip) || '","device":"' || device || '","user":"user-' || i % 1000 ||
				'","method":"POST","path":"/v1/guest-tokens","status":201,"user_agent":"Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36"}'],
			9, false, '', at, i % 3, i % 7
		FROM (SELECT i, at, ip, device, 'ip=' || host(ip) || '%2F32&device=' || device AS s
			FROM (SELECT i, set_masklen(('10.0.0.0'::inet + (hashint8extended(i, d) & 2147483647) % greatest($2::bigint / 1000, 10)), 32)::cidr AS ip,
					'tv-' || (hashint8extended(i, d + 100) & 2147483647) % greatest($2::bigint / 100, 100) AS device,
					$1::date::timestamp AT TIME ZONE 'UTC' + make_interval(secs => i * 85800.0 / $3::bigint) AS at
				FROM generate_series(1, $3::bigint) i, CAST($4 AS bigint) d) a) b`, day.Date(), hits, hits/MonthDays, int64(day))
	b.Run(tb, fmt.Sprintf("ALTER TABLE hits_by_day ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')", table, day, day+1))
	if err := days.Need(tb.Context(), []retention.Day{day}); err != nil {
		tb.Fatal(err)
	}
	b.Run(tb, `INSERT INTO block_decisions_by_day (day, id, action, reason, rule, subject, ip, device, hit, generation, since, until, at, decided_by)
		SELECT day, id, 'written', '', CASE WHEN narrow THEN 'rule-9' ELSE rule END, CASE WHEN narrow THEN split_part(subject, '&', 1) ELSE subject END, ip,
			CASE WHEN NOT narrow THEN device END, id, 1, first, last + interval '15 min', first, 'e'
		FROM (SELECT *, source_offset % 20 = 7 AS narrow FROM `+table+` WHERE source_offset % 10 = 7) h`)
}

// loadMinutes makes what ROUTE and DETECT have told by the minute: of two routers, and of eight keyed partitions.
func (b *Bed) loadMinutes(tb testing.TB, m Month) {
	tb.Helper()
	const minutes = "generate_series($1::timestamptz, $2::timestamptz - interval '1 min', interval '1 min') m"
	const told = "unnest(ARRAY['" + MonthBusy + "', '" + MonthQuiet + "', 'rule-9']) AS r (rule)"
	begin, end := m.Begin.Std(), m.End.Std()
	b.Run(tb, `INSERT INTO event_minutes (stream, router, part, minute, events, refused, unwatched, good, unjudged, seen)
		SELECT 'live', router, 0, m, 60000, 100, 1000, 20000, 10000, m FROM `+minutes+`, (VALUES ('a'), ('b')) AS v (router)`, begin, end)
	b.Run(tb, `INSERT INTO rule_event_minutes (stream, router, part, rule, minute, matched, seen)
		SELECT 'live', router, 0, rule, m, 600, m FROM `+minutes+`, (VALUES ('a'), ('b')) AS v (router), `+told, begin, end)
	b.Run(tb, `INSERT INTO rule_minutes (stream, id, rule, rule_version, lineage, kind, minute, keyed_partition, events, reached, refused, refused_good, limits, refused_at, seen, at_least)
		SELECT 'live', md5(rule || p || m), rule, 1, 1, 'hit', m, p, 100, 120, 10, 1, l.steps, l.steps, m, false
		FROM `+minutes+`, generate_series(0, 7) p, `+told+`, (SELECT array_agg(x::bigint) AS steps FROM generate_series(5, 28) x) l`, begin, end)
}

// monthURL names the database that keeps a month from one benchmark to the next.
const monthURL = "WEIR_HISTORY_URL"

// NewMonth gives benchmarks a bed with a month of hits and the rules of it. WEIR_HISTORY_URL may name a database that keeps it: the first
// benchmark fills it, all others find it there, and what they change stays changed.
func NewMonth(tb testing.TB, hits int64) (*Bed, Month) {
	tb.Helper()
	url := os.Getenv(monthURL)
	if url == "" {
		b := New(tb)
		b.applyMonth(tb)
		return b, b.LoadMonth(tb, hits)
	}
	if err := prepare(url); err != nil {
		tb.Fatal(err)
	}
	b := at(tb, url)
	if n := b.Number(tb, "SELECT count(*) FROM pg_class WHERE relname LIKE 'hits_by_day_2%' AND relkind = 'r'"); n == 0 {
		b.applyMonth(tb)
		m := b.LoadMonth(tb, hits)
		m.Kept = true
		return b, m
	}
	end := traffic.At(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	m := Month{Begin: end.Add(-MonthDays * 24 * time.Hour), End: end, Hits: hits / MonthDays * MonthDays, Kept: true}
	b.sumUp(tb, m) // of a month that a build without sums has loaded
	return b, m
}

// applyMonth applies the rules of which a month has minutes, from before its beginning on.
func (b *Bed) applyMonth(tb testing.TB) {
	tb.Helper()
	b.Publish(tb, Routing().Format)
	b.Apply(tb, Document(MonthBusy), Document(MonthQuiet), Document("rule-9"))
	b.Run(tb, "ALTER TABLE weir.rule_versions DISABLE TRIGGER rule_versions_stay")
	b.Run(tb, "UPDATE weir.rule_versions SET created_at = '2026-10-01'")
}
