package history_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/traffic"
)

// BenchmarkHitRecorder stores fresh hits, 10,000 a batch, with all indexes on. Beside it stands a bare COPY with an upsert into the same
// table, from rows that are ready: what PostgreSQL alone costs.
func BenchmarkHitRecorder(b *testing.B) {
	b.Run("recorder", benchmarkRecorder)
	b.Run("bare", benchmarkBareCopy)
}

const benchBatch = 10_000

func benchmarkRecorder(b *testing.B) {
	bed := newBed(b)
	box := &letterBox{}
	recorder := bed.hitRecorder(b, box)
	batch := make([]traffic.Message, benchBatch)
	next := 0
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = message(b, hitNumber(next))
			next++
		}
		b.StartTimer()
		if err := recorder.Apply(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "hits/s")
	if rows := bed.Number(b, "SELECT count(*) FROM weir.hits_all WHERE events = 1"); rows != int64(next) || len(box.letters) > 0 {
		b.Fatalf("%d rows and %d dead letters of %d hits", rows, len(box.letters), next)
	}
}

// benchmarkBareCopy writes rows that are ready, by the statements that PostgreSQL cannot do without: COPY, and an upsert into the same table.
func benchmarkBareCopy(b *testing.B) {
	bed := newBed(b)
	bed.record(b, "live", hitNumber(0))
	bed.Run(b, "SET search_path TO weir")
	bed.Run(b, "CREATE TEMP TABLE incoming ON COMMIT DELETE ROWS AS SELECT * FROM hits_by_day WITH NO DATA")
	rows, err := bed.Conn.Query(b.Context(), "SELECT * FROM hits_by_day")
	if err != nil {
		b.Fatal(err)
	}
	var columns, updates []string
	at := map[string]int{}
	for i, f := range rows.FieldDescriptions() {
		columns, at[f.Name] = append(columns, f.Name), i
		if f.Name != "id" && f.Name != "day" {
			updates = append(updates, f.Name+" = excluded."+f.Name)
		}
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		b.Fatal(err)
	}
	next := 1
	batch := make([][]any, benchBatch)
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = append([]any{}, all[0]...)
			h := hitNumber(next)
			values, err := h.Subject.Values()
			if err != nil {
				b.Fatal(err)
			}
			batch[i][at["id"]], batch[i][at["subject"]], batch[i][at["block_subject"]] = h.ID, string(h.Subject), string(h.Subject)
			batch[i][at["ip"]], batch[i][at["device"]] = netip.MustParsePrefix(values[0].Value), values[1].Value
			next++
		}
		b.StartTimer()
		err := pgx.BeginFunc(b.Context(), bed.Conn, func(tx pgx.Tx) error {
			if _, err := tx.CopyFrom(b.Context(), pgx.Identifier{"incoming"}, columns, pgx.CopyFromRows(batch)); err != nil {
				return err
			}
			_, err := tx.Exec(b.Context(), "INSERT INTO hits_by_day SELECT * FROM incoming ON CONFLICT (id, day) DO UPDATE SET "+strings.Join(updates, ", "))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "hits/s")
	if stored := bed.Number(b, "SELECT count(*) FROM weir.hits_by_day"); stored != int64(next) {
		b.Fatalf("%d rows of %d", stored, next)
	}
}
