package history_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
)

// The reconcilers read the decisions that hold every minute. However many there are beside the few releases, and whether
// the server plans for the values asked about or once for all, no page is found by reading the whole table.
func TestNoPageOfActiveBlocksReadsTheWholeTable(t *testing.T) {
	b := newBed(t)
	b.exec(t, `INSERT INTO `+b.Schema()+`.block_decisions
			(stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
		SELECT 'live', md5(i::text), CASE WHEN i % 2000 = 0 THEN 'released' WHEN i % 5 = 0 THEN 'written' ELSE 'extended' END,
			'', 'flood', 'device=tv-' || i, md5('h' || i), 1, now(), now() + i * interval '1 second', now(), ''
		FROM generate_series(1, 60000) i`)
	b.exec(t, `ANALYZE `+b.Schema()+`.block_decisions`)
	scans := func(t *testing.T, index string) int64 {
		t.Helper()
		return b.number(t, `SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = $2`, b.Schema(), index)
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for index, released := range map[string]bool{"block_decisions_released": true, "block_decisions_until": false} {
			t.Run(fmt.Sprint(mode, " ", index), func(t *testing.T) {
				const asked = 4
				before, s := scans(t, index), newStore(t, planning(t, b.url, mode))
				q := blocklist.ActiveQuery{Released: released, Limit: 1000}
				for range asked {
					page, err := s.ActiveBlocks(t.Context(), q)
					if err != nil || len(page) == 0 {
						t.Fatalf("a page of %d, %v", len(page), err)
					}
					q.After = &page[len(page)/2] // all releases come in one page
				}
				s.Close() // a session that ends has its counts published
				testbed.Eventually(t, 20*time.Second, func() error {
					if got := scans(t, index) - before; got < asked {
						return fmt.Errorf("%d pages were found by %s, want %d", got, index, asked)
					}
					return nil
				})
			})
		}
	}
	if got := b.number(t, `SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'block_decisions'`, b.Schema()); got != 0 {
		t.Errorf("the table was read as a whole %d times", got)
	}
}

// planning is the URL of a database for sessions that plan their statements so.
func planning(t *testing.T, address, mode string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("plan_cache_mode", mode)
	u.RawQuery = q.Encode()
	return u.String()
}
