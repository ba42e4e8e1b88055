package history_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestActiveBlocks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", &letterBox{}, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	now := traffic.At(time.Now())
	n := 0
	var batch []traffic.Message
	decide := func(action blocklist.Action, who traffic.Subject, hit string, generation int64, at, until time.Duration) {
		n++
		value, err := blocklist.EncodeDecision(&blocklist.Decision{Format: blocklist.DecisionFormat, ID: fmt.Sprint(n), Action: action,
			Rule: "flood", Subject: who, Hit: hit, Generation: generation, At: now.Add(at), Until: now.Add(until)})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, traffic.Message{Value: value})
	}
	const hour = time.Hour
	decide(blocklist.ActionWritten, "device=a", "h1", 1, -3*hour, hour)
	decide(blocklist.ActionExtended, "device=a", "h1", 1, -2*hour, 2*hour)
	decide(blocklist.ActionWritten, "device=a", "h2", 1, -hour, hour)
	decide(blocklist.ActionWritten, "device=b", "h3", 1, -3*hour, -hour) // expired
	decide(blocklist.ActionWithheld, "device=b", "h3", 1, -2*hour, hour)
	decide(blocklist.ActionWritten, "device=c", "h4", 1, -3*hour, hour)
	decide(blocklist.ActionReleased, "device=c", "h4", 1, -2*hour, 24*hour)
	decide(blocklist.ActionWritten, "device=d", "h5", 1, -3*hour, 5*hour)
	decide(blocklist.ActionWritten, "device=d", "h5", 3, -hour, hour)
	decide(blocklist.ActionReleased, "device=e", "", 1, -30*hour, -hour) // the tombstone is gone
	if err := recorder.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	read := func(released bool, limit int) []string {
		t.Helper()
		var got []string
		q := blocklist.ActiveQuery{Released: released, Limit: limit}
		for {
			page, err := b.ActiveBlocks(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("%d decisions in a page of %d", len(page), limit)
			}
			for i := range page {
				d := &page[i]
				got = append(got, fmt.Sprintf("%s %s %s/%d %s", d.Action, d.Subject, d.Hit, d.Generation, d.Until.Sub(now)))
				q.After = d
			}
			if len(page) < limit {
				return got
			}
		}
	}
	blocks := []string{
		"written device=d h5/1 5h0m0s", "extended device=a h1/1 2h0m0s", "written device=d h5/3 1h0m0s",
		"written device=c h4/1 1h0m0s", "written device=a h2/1 1h0m0s", "written device=a h1/1 1h0m0s",
	}
	for limit := 1; limit < 8; limit++ {
		if got := read(false, limit); !slices.Equal(got, blocks) {
			t.Errorf("blocks in pages of %d\n got %q\nwant %q", limit, got, blocks)
		}
		if got, want := read(true, limit), []string{"released device=c h4/1 24h0m0s"}; !slices.Equal(got, want) {
			t.Errorf("releases in pages of %d: got %q, want %q", limit, got, want)
		}
	}
}

// The reconciler never holds all blocks at once: it gets each of them, and none twice, in pages.
func TestActiveBlocksComeInPages(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Run(t, "SET weir.days TO 'known'") // which spares a look for each row into the days
	b.Run(t, `INSERT INTO `+b.Schema()+`.block_decisions
			(stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
		SELECT 'live', md5(i::text), 'written', '', 'flood', 'device=tv-' || i, md5('h' || i), 1, now(),
			now() + (i / 1000 - 15) * interval '1 hour', now(), '' FROM generate_series(1, 20000) i`)
	seen := map[traffic.Subject]bool{}
	q := blocklist.ActiveQuery{Limit: 300} // less than end at one moment
	for {
		page, err := b.ActiveBlocks(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page {
			if seen[page[i].Subject] {
				t.Fatalf("%s is in two pages", page[i].Subject)
			}
			seen[page[i].Subject] = true
			q.After = &page[i]
		}
		if len(page) < q.Limit {
			break
		}
	}
	if len(seen) != 4001 { // those of 16000 and up: the others have ended
		t.Errorf("%d blocks in all pages, want 4001", len(seen))
	}
}

// The reconcilers read the decisions that hold every minute. However many there are beside the few releases, and whether
// the server plans for the values asked about or once for all, no page is found by reading the whole table.
func TestNoPageOfActiveBlocksReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Run(t, "SET weir.days TO 'known'") // which spares a look for each row into the days
	b.Run(t, `INSERT INTO `+b.Schema()+`.block_decisions
			(stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by)
		SELECT 'live', md5(i::text), CASE WHEN i % 2000 = 0 THEN 'released' WHEN i % 5 = 0 THEN 'written' ELSE 'extended' END,
			'', 'flood', 'device=tv-' || i, md5('h' || i), 1, now(), now() + i * interval '1 second', now(), ''
		FROM generate_series(1, 60000) i`)
	b.Run(t, `ANALYZE `+b.Schema()+`.block_decisions`)
	scans := func(t *testing.T, index string) int64 {
		t.Helper()
		return b.Number(t, `SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = $2`, b.Schema(), index)
	}
	whole := func() int64 {
		return b.Number(t, `SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'block_decisions'`, b.Schema())
	}
	b.Store.Close()
	ended := func(t *testing.T) {
		t.Helper()
		testbed.Eventually(t, 20*time.Second, func() error {
			if n := b.Number(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`); n > 0 {
				return fmt.Errorf("%d sessions have not ended", n)
			}
			return nil
		})
	}
	readWhole(t, b)
	ended(t) // a session's counts come by and by, the last when it ends
	made := whole()
	if made == 0 {
		t.Fatal("that the table was read as a whole is not counted")
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for index, released := range map[string]bool{"block_decisions_released": true, "block_decisions_until": false} {
			t.Run(fmt.Sprint(mode, " ", index), func(t *testing.T) {
				const asked = 4
				before, s := scans(t, index), historytest.Open(t, planning(t, b.URL, mode))
				q := blocklist.ActiveQuery{Released: released, Limit: 1000}
				for range asked {
					page, err := s.ActiveBlocks(t.Context(), q)
					if err != nil || len(page) == 0 {
						t.Fatalf("a page of %d, %v", len(page), err)
					}
					q.After = &page[len(page)/2] // all releases come in one page
				}
				s.Close()
				ended(t) // and has its counts published
				if got := scans(t, index) - before; got < asked {
					t.Errorf("%d pages were found by %s, want %d", got, index, asked)
				}
			})
		}
	}
	if got := whole(); got != made {
		t.Errorf("the table was read as a whole %d times", got-made)
	}
}

// readWhole reads the decisions without an index, in a session of its own.
func readWhole(t *testing.T, b *bed) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), `SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
		SELECT count(until) FROM `+b.Schema()+`.block_decisions`)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
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
