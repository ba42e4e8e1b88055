package dashboards_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/historytest"
)

// bulk is 90 days of history: as many rows as make the planner choose. No id of them stands in a day, and weir.days
// keeps each row from being looked for there.
const bulk = `SET search_path TO weir;
SET weir.days TO 'known';
INSERT INTO rule_versions (rule, version, lineage, document, source, hash, author, reason)
SELECT 'rule-' || i, 1, 1, '{"id":"rule-' || i || '","owner":"o","limit":5,"window":60000000000,"lateness":60000000000,"max_lag":60000000000,"block":{"ttl":900000000000,"extend":"on-hit"}}', '', '', 'a', ''
FROM generate_series(1, 8) i;
INSERT INTO rule_modes (rule, mode, generation, changed_by, reason)
SELECT 'rule-' || i, CASE WHEN i % 2 = 0 THEN 'block' ELSE 'shadow' END, 1, 'a', '' FROM generate_series(1, 8) i;
INSERT INTO hits (stream, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, grouped, rule_limit, window_ms, events, peak, first,
  last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id, users, devices, samples, samples_rank)
SELECT 'live', md5(i::text), 'rule-' || (1 + i % 8), 1, 1, 3, 'device=d' || i % 999, 'device=d' || i % 999, NULL, 'd' || i % 999, false, 5, 60000, 9, 9, at,
  at + interval '5 minutes', at, at, false, 1, 1, i, 1, '', 1, 1, ARRAY['{"path":"/x"}', repeat('x', 300)], 1
FROM (SELECT i, now() - make_interval(secs => i * 200) AS at FROM generate_series(1, 38000) i) g;
INSERT INTO block_decisions (stream, id, action, reason, rule, subject, device, hit, generation, since, until, at, decided_by)
SELECT stream, id, 'written', '', rule, subject, device, id, 1, first, first + interval '15 minutes', first, '' FROM hits;
INSERT INTO late_sums (stream, id, rule, lineage, generation, source_partition, keyed_partition, minute, latest, seen, events)
SELECT stream, id, rule, 1, 1, 1, 1, first, first, first, 1 FROM hits;
INSERT INTO uncounted_sums (stream, id, rule, reason, minute, seen, events) SELECT stream, id, rule, 'missing_field', first, first, 1 FROM hits;
INSERT INTO audit (actor, action, object, reason) SELECT 'a', 'release', 'block ' || id, '' FROM hits;
RESET weir.days;
ANALYZE`

// The newest episodes are found among so many rows that there is none with more.
func TestEpisodesHaveNoMoreRows(t *testing.T) {
	const newest = (detectors.MaxTuples + 1) * 50
	for _, b := range sqlBoards(t) {
		for _, q := range b.queries {
			if q.name == "What they asked for" && b.uid == "weir-overlimit" && !strings.Contains(q.text, fmt.Sprintf("LIMIT %d)", newest)) {
				t.Errorf("%s/%s does not read %d rows:\n%s", b.uid, q.name, newest, q.text)
			}
		}
	}
}

var fullScan = regexp.MustCompile(`Seq Scan on (hits|block_decisions|late_sums|uncounted_sums|audit)\b.*`)

// No query of a board reads a large table as a whole: what it asks is within a time range, or about few ids.
func TestSQLOfBoardsUsesIndexes(t *testing.T) {
	bed := historytest.New(t)
	bed.Run(t, bulk)
	w := &world{Bed: bed, now: time.Now()}
	conn := reader(t, bed.URL)
	if !fullScan.MatchString(explain(t, conn, "SELECT count(*) FROM weir.hits_v WHERE peak > 5")) {
		t.Fatal("a full scan goes unnoticed")
	}
	for _, b := range sqlBoards(t) {
		g := w.view(t, conn, b, 0)
		g.variables["rule"] = []string{"rule-1", "rule-2", "rule-3", "rule-4", "rule-5", "rule-6", "rule-7", "rule-8"}
		if b.uid == "weir-rule" {
			g.variables["rule"] = g.variables["rule"][:1]
		}
		for _, source := range []string{"", "d7", "00000000000000000000000000000007"} {
			g.variables["source"] = []string{source}
			for _, q := range b.queries {
				plan := explain(t, conn, g.expand(t, q.text))
				if scan := fullScan.FindString(plan); scan != "" {
					t.Errorf("%s/%s reads a table as a whole: %s\n%s", b.uid, q.name, scan, plan)
				}
			}
		}
	}
}

// Where very many blocks are in force, those of the sources that are listed are looked up, and the others not read.
func TestBlocksAreFoundBySubject(t *testing.T) {
	bed := historytest.New(t)
	bed.Run(t, bulk)
	bed.Run(t, "UPDATE weir.block_decisions SET until = now() + interval '1 day'")
	bed.Run(t, "ANALYZE weir.block_decisions")
	w := &world{Bed: bed, now: time.Now()}
	conn, found := reader(t, bed.URL), 0
	for _, b := range sqlBoards(t) {
		for _, q := range b.queries {
			if q.name != "Top sources" {
				continue
			}
			g := w.view(t, conn, b, 0)
			g.variables["rule"] = []string{"rule-2"}
			if plan := explain(t, conn, g.expand(t, q.text)); strings.Contains(plan, "block_decisions_until") || !strings.Contains(plan, "block_decisions_subject") {
				t.Errorf("%s reads all blocks for the few that it shows:\n%s", b.uid, plan)
			}
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d boards list the top sources", found)
	}
}

func explain(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "EXPLAIN "+sql)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	return strings.Join(lines, "\n")
}
