package historytest

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// scans is how often a table was read whole, and how often by an index.
type scans struct{ Whole, Index int64 }

// ReadsDays fails the test where a question about the time from since on looks into the tables of earlier days, or reads the table of a day of hits
// from one end to the other. PostgreSQL is told to do without the latter where it can: it would rather read tables as small as those of tests, and
// rightly those of days of which it needs all rows.
func (b *Bed) ReadsDays(tb testing.TB, name string, since traffic.Time, ask func(*Bed) error) {
	tb.Helper()
	address, err := url.Parse(b.URL)
	if err != nil {
		tb.Fatal(err)
	}
	const probe = "probe"
	q := address.Query()
	q.Set("application_name", probe)
	q.Set("enable_seqscan", "off")
	address.RawQuery = q.Encode()
	b.settle(tb)
	before := b.scans(tb)
	store := Open(tb, address.String())
	err = ask(&Bed{Store: store, URL: b.URL})
	store.Close()
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	testbed.Eventually(tb, 20*time.Second, func() error { // a connection tells what it has read when it ends, if not before
		if n := b.Number(tb, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", probe); n > 0 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	earliest := "hits_by_day_" + (retention.DayOf(since) - 2).Date().Format("20060102") // an episode may have begun so long before
	read := 0
	for table, after := range b.scans(tb) {
		whole, index := after.Whole-before[table].Whole, after.Index-before[table].Index
		if table < earliest && whole+index > 0 {
			tb.Errorf("%s looks into %s: since %s none before %s matters", name, table, since, earliest)
		}
		if whole > 0 {
			tb.Errorf("%s reads %s whole, %d times", name, table, whole)
		}
		if index > 0 {
			read++
		}
	}
	if read == 0 {
		tb.Errorf("%s looks into no day", name)
	}
}

// settle has all other connections tell what they have read before, which they else do when they have been idle for some seconds: they are ended, and the
// store makes new ones. Its own connection tells at once.
func (b *Bed) settle(tb testing.TB) {
	tb.Helper()
	const others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
	testbed.Eventually(tb, 20*time.Second, func() error {
		if n := b.Number(tb, "SELECT count(pg_terminate_backend(pid)) "+others); n > 0 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	b.Run(tb, "SELECT pg_stat_force_next_flush()")
	testbed.Eventually(tb, 20*time.Second, func() error { return b.DB.Ping(tb.Context()) })
}

func (b *Bed) scans(tb testing.TB) map[string]scans {
	tb.Helper()
	rows, err := b.Conn.Query(tb.Context(), `SELECT relname, coalesce(seq_scan, 0), coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname LIKE 'hits\_by\_day\_2%'`)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]scans{}
	var table string
	var s scans
	if _, err := pgx.ForEachRow(rows, []any{&table, &s.Whole, &s.Index}, func() error { out[table] = s; return nil }); err != nil {
		tb.Fatal(err)
	}
	return out
}
