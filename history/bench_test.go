package history_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/traffic"
)

// BenchmarkHitRecorder stores fresh hits, 10,000 a batch, with all indexes on. Beside it stands a bare COPY with ON
// CONFLICT DO NOTHING into the same table, from rows that are ready: what PostgreSQL alone costs.
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
	if rows := bed.Number(b, "SELECT count(*) FROM weir.hits WHERE events = 1"); rows != int64(next) || len(box.letters) > 0 {
		b.Fatalf("%d rows and %d dead letters of %d hits", rows, len(box.letters), next)
	}
}

func benchmarkBareCopy(b *testing.B) {
	bed := newBed(b)
	bed.record(b, "live", hitNumber(0))
	bed.Run(b, "SET search_path TO weir")
	bed.Run(b, "CREATE TEMP TABLE incoming ON COMMIT DELETE ROWS AS SELECT * FROM hits WITH NO DATA")
	rows, err := bed.Conn.Query(b.Context(), "SELECT * FROM hits")
	if err != nil {
		b.Fatal(err)
	}
	var columns []string
	for _, f := range rows.FieldDescriptions() {
		columns = append(columns, f.Name)
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
			batch[i][1], batch[i][6], batch[i][9] = h.ID, string(h.Subject), h.ID
			next++
		}
		b.StartTimer()
		err := pgx.BeginFunc(b.Context(), bed.Conn, func(tx pgx.Tx) error {
			if _, err := tx.CopyFrom(b.Context(), pgx.Identifier{"incoming"}, columns, pgx.CopyFromRows(batch)); err != nil {
				return err
			}
			_, err := tx.Exec(b.Context(), "INSERT INTO hits SELECT * FROM incoming ON CONFLICT DO NOTHING")
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "hits/s")
	if stored := bed.Number(b, "SELECT count(*) FROM weir.hits"); stored != int64(next) {
		b.Fatalf("%d rows of %d", stored, next)
	}
}
