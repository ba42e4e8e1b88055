package streams

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/ingest"
)

// Positions are how far the database has what one stage of a stream has read.
type Positions struct {
	store         *Store
	stream, stage string
}

// PositionsOf are those of a stage of a stream. All that a stage has stored before a position was kept is in a database
// that has the position.
func (s *Store) PositionsOf(stream, stage string) *Positions {
	return &Positions{store: s, stream: stream, stage: stage}
}

// Kept gives the offset before which the database has everything, by partition.
func (p *Positions) Kept(ctx context.Context) (map[int]int64, error) {
	rows, err := p.store.db.Query(ctx,
		"SELECT partition, next_offset FROM read_positions WHERE stream = $1 AND stage = $2", p.stream,
		p.stage)
	if err != nil {
		return nil, p.store.db.Fail("reading positions of "+p.stage, err)
	}
	kept, err := scanPositions(rows)
	if err != nil {
		return nil, p.store.db.Fail("reading positions of "+p.stage, err)
	}
	return kept, nil
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

// Keep stores positions where the database has those before, and gives what it has of the other partitions.
func (p *Positions) Keep(ctx context.Context, all []ingest.Kept) (others map[int]int64, err error) {
	partitions := make([]int, len(all))
	for i, k := range all {
		partitions[i] = k.Partition
	}
	err = p.store.db.Transact(ctx, fmt.Sprintf("storing positions of %s", p.stage), func(tx pgx.Tx) error {
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
			case at != k.Now:
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
	return others, err
}
