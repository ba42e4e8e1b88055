package history_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// flood is the log of one hits partition: sources, each over once, in minutes, in the order in which two keyed partitions tell of them.
// Every third has an update, two of three have ended, and some were merged.
func flood(sources, minutes int) []detectors.Hit {
	var log []detectors.Hit
	places := map[int]int64{}
	tell := func(h detectors.Hit, phase detectors.Phase, count int64) {
		places[h.Keyed]++
		h.Phase, h.Count, h.Peak = phase, count, int(count)+2
		h.Place, h.Nth = 1+places[h.Keyed]/3, 1+int(places[h.Keyed]%3) // up to three hits of one record
		log = append(log, h)
	}
	for n := range sources {
		h := hitNumber(n)
		sum := fnv.New128a()
		_, _ = fmt.Fprint(sum, n)
		h.ID, h.Keyed = fmt.Sprintf("%x", sum.Sum(nil)), n%2
		h.Opened = dawn.Add(time.Duration(n%minutes)*time.Minute + time.Duration(n%59)*time.Second)
		h.First, h.Last = h.Opened, h.Opened
		if n%5 == 0 {
			h.Kind = detectors.KindCandidate
		}
		tell(h, detectors.PhaseOpen, 1)
		if n%3 == 0 {
			tell(h, detectors.PhaseUpdate, 2)
		}
		switch {
		case n%3 == 2:
		case n%17 == 0:
			tell(h, detectors.PhaseMerged, 2)
		default:
			tell(h, detectors.PhaseClosed, int64(3+n%7))
		}
	}
	// What ends, ends long after others have begun.
	ended := func(h detectors.Hit) int { return strings.Index("closed", string(h.Phase)) }
	slices.SortStableFunc(log, func(a, b detectors.Hit) int { return cmp.Compare(ended(a), ended(b)) })
	clear(places)
	for i := range log {
		places[log[i].Keyed]++
		log[i].Place, log[i].Nth = 1+places[log[i].Keyed]/3, 1+int(places[log[i].Keyed]%3)
	}
	return log
}

// bounded is what a log leaves in history, reckoned from the whole of it.
func bounded(log []detectors.Hit, rows, samples int) []string {
	type group struct {
		kind   detectors.Kind
		minute traffic.Time
	}
	ids, last := map[group][]string{}, map[string]detectors.Hit{}
	for i := range log {
		h := log[i]
		if h.Phase == detectors.PhaseOpen {
			g := group{h.Kind, h.Opened - h.Opened%60_000_000}
			ids[g] = append(ids[g], h.ID)
		}
		last[h.ID] = h
	}
	var want []string
	for g, all := range ids {
		slices.Sort(all)
		var out, merged, ended, events, peak int64
		for n, id := range all {
			h := last[id]
			if n < rows {
				want = append(want, fmt.Sprintf("row %s %s %d samples=%t", id, h.Phase, h.Count, n < samples))
				continue
			}
			out++
			switch h.Phase {
			case detectors.PhaseMerged:
				merged++
			case detectors.PhaseClosed:
				ended, events, peak = ended+1, events+h.Count, max(peak, int64(h.Peak))
			}
		}
		if without := int64(min(rows, len(all)) - samples); without > 0 {
			want = append(want, fmt.Sprintf("out %s %d: %d %d %d %d %d %d", g.kind, g.minute, out, merged, ended, events, peak, without))
		}
	}
	slices.Sort(want)
	return want
}

// left is the same, as it is stored.
func (b *bed) left(t *testing.T) []string {
	t.Helper()
	rows, err := b.Conn.Query(t.Context(), `
		SELECT format('row %s %s %s samples=%s', id, phase, events, CASE WHEN samples <> '{}' THEN 'true' ELSE 'false' END)
		FROM (SELECT id, phase, events, samples FROM weir.hits_v UNION ALL SELECT id, phase, events, samples FROM weir.hits_beside_v) x
		UNION ALL SELECT format('out %s %s: %s %s %s %s %s %s', kind, (extract(epoch FROM minute) * 1000000)::bigint, rows, merged, ended, events, peak, without_samples)
		FROM weir.hits_left_out_v`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// failing lets a commit fail, or has it done and says that it failed.
type failing struct {
	history.Transactions
	before, after bool
}

func (f *failing) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := f.Transactions.Begin(ctx)
	return &failingTx{tx, f}, err
}

type failingTx struct {
	pgx.Tx
	f *failing
}

var errFailing = errors.New("the server is away")

func (tx *failingTx) Commit(ctx context.Context) error {
	if tx.f.before {
		return errors.Join(errFailing, tx.Rollback(ctx))
	}
	if err := tx.Tx.Commit(ctx); err != nil || !tx.f.after {
		return err
	}
	return errFailing
}

func TestBoundsDependOnTheLogAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const rows, samples = 40, 15
	log := flood(900, 3)
	want := bounded(log, rows, samples)
	whole := messages(t, log...)
	make1 := func(t *testing.T, store history.Transactions, rows int) (apply func(batch []traffic.Message) error, registry *prometheus.Registry) {
		t.Helper()
		registry = prometheus.NewRegistry()
		r, err := history.NewHitRecorder(store, history.Live, "weir.hits", &letterBox{}, b.days(), registry)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Bound(history.Caps{Rows: rows, Samples: samples, Partitions: 1}, registry); err != nil {
			t.Fatal(err)
		}
		return func(batch []traffic.Message) error { return r.Apply(t.Context(), batch) }, registry
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stories := map[string]func(t *testing.T, random *rand.Rand){
		"one batch": func(t *testing.T, _ *rand.Rand) {
			apply, registry := make1(t, b.Store, rows)
			must(t, apply(whole))
			out := b.Number(t, "SELECT sum(rows) FROM weir.hits_left_out_v")
			expected := fmt.Sprintf("# HELP weir_history_left_out_total Rows of episodes, and samples of rows, that history has left out, by the bound that left them out: rows_per_minute, samples_per_minute.\n"+
				"# TYPE weir_history_left_out_total counter\nweir_history_left_out_total{reason=\"rows_per_minute\"} %d\nweir_history_left_out_total{reason=\"samples_per_minute\"} %d\n", out, 6*(rows-samples))
			must(t, testutil.GatherAndCompare(registry, strings.NewReader(expected), "weir_history_left_out_total"))
		},
		"batches of any size, some twice": func(t *testing.T, random *rand.Rand) {
			apply, _ := make1(t, b.Store, rows)
			for at := 0; at < len(whole); {
				end := min(at+1+random.IntN(200), len(whole))
				must(t, apply(whole[at:end]))
				if random.IntN(3) == 0 { // the commit of the offsets was lost
					at = max(0, at-random.IntN(300))
					continue
				}
				at = end
			}
		},
		"restarts": func(t *testing.T, random *rand.Rand) {
			for at := 0; at < len(whole); {
				apply, _ := make1(t, b.Store, rows)
				end := min(at+1+random.IntN(300), len(whole))
				must(t, apply(whole[at:end]))
				at = max(at+1, end-random.IntN(100))
			}
		},
		"two owners": func(t *testing.T, random *rand.Rand) {
			one, _ := make1(t, b.Store, rows)
			two, _ := make1(t, b.Store, rows)
			for at := 0; at < len(whole); {
				end := min(at+1+random.IntN(200), len(whole))
				must(t, one(whole[at:end]))
				must(t, two(whole[max(0, at-50):end]))
				at = end
			}
		},
		"a server that goes away": func(t *testing.T, random *rand.Rand) {
			store := &failing{Transactions: b.Store}
			apply, _ := make1(t, store, rows)
			for at := 0; at < len(whole); {
				end := min(at+1+random.IntN(200), len(whole))
				store.before, store.after = random.IntN(3) == 0, random.IntN(3) == 0
				if err := apply(whole[at:end]); err != nil && !errors.Is(err, errFailing) {
					t.Fatal(err)
				} else if err == nil {
					at = end
				}
			}
		},
		"hits that were sent twice": func(t *testing.T, random *rand.Rand) {
			var log []traffic.Message
			for at := 0; at < len(whole); {
				end := min(at+1+random.IntN(200), len(whole))
				log = append(log, whole[at:end]...)
				at = max(at+1, end-random.IntN(80))
			}
			apply, _ := make1(t, b.Store, rows)
			for at := 0; at < len(log); at += 100 {
				must(t, apply(log[at:min(at+100, len(log))]))
			}
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			b.Run(t, "TRUNCATE weir.hits_by_day, weir.hits_beside_by_day, weir.hits_left_out, weir.hit_counts")
			story(t, rand.New(rand.NewPCG(1, 2)))
			if got := b.left(t); !slices.Equal(got, want) {
				only := func(a, b []string) []string {
					return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
				}
				t.Errorf("%d rows, want %d; missing %q, too many %q", len(got), len(want), only(want, got), only(got, want))
			}
		})
	}
}

// TestBoundsUnderAttack: very many sources in one minute, and as many in an hour that RECORD reads all at once, leave no more rows than the bounds say,
// sums that tell of all others exactly, and a database whose size does not go with the number of sources. WEIR_TEST_SOURCES makes it more.
func TestBoundsUnderAttack(t *testing.T) {
	t.Parallel()
	// The bounds grow with the sources: what a landing has is the same in small.
	sources := 80_000
	if testbed.AtNight() {
		sources = 200_000
	}
	if text := os.Getenv("WEIR_TEST_SOURCES"); text != "" {
		var err error
		if sources, err = strconv.Atoi(text); err != nil || sources < 80_000 {
			t.Fatalf("WEIR_TEST_SOURCES: got %q; allowed: a whole number from 80000 on", text)
		}
	}
	for _, c := range []struct {
		name                                  string
		sources, minutes, batch, rows, sample int
	}{
		{"one minute", sources, 1, 5000, min(2000, sources/100), min(200, sources/1000)},
		{"a backlog of an hour, at once", sources / 4, 61, sources, min(100, sources/2000), min(10, sources/20_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			sources := c.sources
			log := flood(sources, c.minutes)
			r, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", &letterBox{}, b.days(), prometheus.NewRegistry())
			if err == nil {
				err = r.Bound(history.Caps{Rows: c.rows, Samples: c.sample, Partitions: 1}, prometheus.NewRegistry())
			}
			if err != nil {
				t.Fatal(err)
			}
			for part := range slices.Chunk(messages(t, log...), c.batch) {
				if err := r.Apply(t.Context(), part); err != nil {
					t.Fatal(err)
				}
			}
			groups := int64(2 * c.minutes) // kinds and minutes
			if n := b.Number(t, "SELECT count(*) FROM (SELECT FROM weir.hits_v UNION ALL SELECT FROM weir.hits_beside_v) x"); n != groups*int64(c.rows) {
				t.Errorf("%d rows stay of %d sources, the bound is %d", n, sources, groups*int64(c.rows))
			}
			if got, want := b.left(t), bounded(log, c.rows, c.sample); !slices.Equal(got, want) {
				t.Errorf("%d lines of what stays and what was left out, want %d", len(got), len(want))
			}
			if n := b.Number(t, "SELECT sum(rows) FROM weir.hits_left_out_v"); n != int64(sources)-groups*int64(c.rows) {
				t.Errorf("%d of %d were left out", n, sources)
			}
			// What a batch has written before it was pushed out waits for VACUUM: without the bound it would be all of them.
			b.Run(t, "VACUUM FULL")
			size := b.Number(t, `SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = 'weir' AND c.relkind = 'r' AND c.relname ~ '^hit'`)
			const row, tables = 4 << 10, 8 << 20 // bytes of a row with its samples and indexes, and of tables by day that are empty
			if most := groups*int64(c.rows)*row + tables; size > most {
				t.Errorf("history takes %d bytes, at most %d are to be", size, most)
			}
		})
	}
}
