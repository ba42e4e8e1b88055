package streams

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/ingest"
)

// Positions are how far the database has what one stage of a stream has read.
type Positions struct {
	store         *Store
	stream, stage string

	mu   sync.Mutex
	life string // of the database when it last answered whole, see lifeOf
}

// PositionsOf are those of a stage of a stream. All that a stage has stored before a position was kept is in a database
// that has the position.
func (s *Store) PositionsOf(stream, stage string) *Positions {
	return &Positions{store: s, stream: stream, stage: stage}
}

// begun is the stage of the row that says that a stream's positions were kept from its beginning.
const begun = ""

// Kept gives the offset before which the database has everything, by partition; whole says that it has nothing of the
// others.
func (p *Positions) Kept(ctx context.Context) (kept map[int]int64, whole bool, err error) {
	var life string
	err = p.store.db.Transact(ctx, "reading positions of "+p.stage, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lifeOf).Scan(&life); err != nil {
			return err
		}
		rows, err := tx.Query(ctx,
			"SELECT partition, next_offset FROM read_positions WHERE stream = $1 AND stage = $2", p.stream, p.stage)
		if err != nil {
			return err
		}
		if kept, err = scanPositions(rows); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM read_positions WHERE stream = $1 AND stage = $2)", p.stream,
			begun).Scan(&whole)
	})
	if err == nil {
		p.lives(life) // whoever asks begins with what there is
	}
	return kept, whole, err
}

// lifeOf names the server, its start, its timeline and the table: what was written and is not in the database when it
// is asked next, was written to another one of these.
const lifeOf = `SELECT pg_postmaster_start_time()::text || '/' || store_life() || '/' ||
	'read_positions'::regclass::oid`

// isAnew reports whether a database of this life may have lost what was written since it answered last.
func (p *Positions) isAnew(life string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life != "" && p.life != life
}

// lives notes the life of the database, once whoever asked is told whether it is another one.
func (p *Positions) lives(life string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = life
}

func scanPositions(rows pgx.Rows) (map[int]int64, error) {
	defer rows.Close()
	kept := map[int]int64{}
	for rows.Next() {
		var partition int
		var offset int64
		if err := rows.Scan(&partition, &offset); err != nil {
			return nil, err
		}
		kept[partition] = offset
	}
	return kept, rows.Err()
}

// Keep stores positions where the database has those before, and gives what it has of the other partitions. A database
// that was started anew, failed over or put back since it was asked last is given none: rows that were written before
// may be lost.
func (p *Positions) Keep(ctx context.Context, all []ingest.Kept) (others map[int]int64, anew bool, err error) {
	partitions := make([]int, len(all))
	for i, k := range all {
		partitions[i] = k.Partition
	}
	var life string
	err = p.store.db.Transact(ctx, fmt.Sprintf("storing positions of %s", p.stage), func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lifeOf).Scan(&life); err != nil {
			return err
		}
		anew = p.isAnew(life)
		rows, err := tx.Query(ctx, `SELECT partition, next_offset FROM read_positions
			WHERE stream = $1 AND stage = $2 AND partition = ANY($3) ORDER BY partition FOR UPDATE`,
			p.stream, p.stage, partitions)
		if err != nil {
			return err
		}
		has, err := scanPositions(rows)
		if err != nil {
			return err
		}
		others = map[int]int64{}
		var batch pgx.Batch
		for _, k := range all {
			at, ok := has[k.Partition]
			if !ok {
				at = -1
			}
			switch {
			case at != k.Before:
				others[k.Partition] = at
			case at != k.Now && !anew:
				batch.Queue(`INSERT INTO read_positions AS r (stream, stage, partition, next_offset)
					VALUES ($1, $2, $3, $4)
					ON CONFLICT (stream, stage, partition) DO UPDATE SET next_offset = excluded.next_offset
					WHERE r.next_offset = $5`, p.stream, p.stage, k.Partition, k.Now, k.Before)
			}
		}
		if batch.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err == nil {
		p.lives(life)
	}
	return others, anew, err
}
