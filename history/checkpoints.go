package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
)

// takePartition raises the epoch unless the caller still holds it. The row's lock makes it compare-and-set: a second
// taker waits, and then sees the first one's epoch. No row comes back where the claim is kept.
const takePartition = `
	INSERT INTO partition_owners AS o (stream, partition, epoch, owner) VALUES ($1, $2, 1, $3)
	ON CONFLICT (stream, partition) DO UPDATE SET epoch = o.epoch + 1, owner = excluded.owner, taken_at = now()
	WHERE NOT (o.epoch = $4 AND o.owner = excluded.owner)
	RETURNING epoch`

// Take claims partition for owner. held is the epoch under which the caller's memory is warm, 0 for none. If the
// store's epoch is held and its owner is owner, the claim is kept; otherwise the epoch is raised by one and the stored
// generations are returned, newest first.
func (s *Store) Take(ctx context.Context, stream string, partition int, owner string, held int64) (detectors.Claim, error) {
	var claim detectors.Claim
	err := s.transact(ctx, fmt.Sprintf("taking keyed partition %d of %s", partition, stream), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, takePartition, stream, partition, owner, held).Scan(&claim.Epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			claim = detectors.Claim{Epoch: held, Kept: true}
			return nil
		}
		if err != nil {
			return err
		}
		// A statement of its own, so that its view is younger than the lock: what the former owner had written by then
		// is seen, and after it he writes no more.
		claim.Generations, err = loadCheckpoints(ctx, tx, stream, partition)
		return err
	})
	if err != nil {
		return detectors.Claim{}, err
	}
	return claim, nil
}

func loadCheckpoints(ctx context.Context, tx pgx.Tx, stream string, partition int) ([]detectors.Checkpoint, error) {
	rows, err := tx.Query(ctx, `
		SELECT c.epoch, c.keyed_offset, c.data FROM checkpoints c
		JOIN partition_owners o USING (stream, partition)
		WHERE stream = $1 AND partition = $2 ORDER BY c.slot = o.slot DESC`, stream, partition)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c detectors.Checkpoint, err error) {
		return c, row.Scan(&c.Epoch, &c.Offset, &c.Data)
	})
}

// writeCheckpoint is one statement: it finds the epoch unchanged under the owner row's lock, or writes nothing. The
// same checkpoint written again, because the answer to the first was lost, takes its own slot and not the older one's.
const writeCheckpoint = `
	WITH mine AS (
		UPDATE partition_owners o SET slot = CASE WHEN EXISTS (
				SELECT FROM checkpoints c WHERE c.stream = o.stream AND c.partition = o.partition AND c.slot = o.slot
				AND c.epoch = $3 AND c.keyed_offset = $4)
			THEN o.slot ELSE 1 - o.slot END
		WHERE o.stream = $1 AND o.partition = $2 AND o.epoch = $3
		RETURNING o.slot)
	INSERT INTO checkpoints (stream, partition, slot, epoch, keyed_offset, data)
	SELECT $1, $2, mine.slot, $3, $4, $5 FROM mine
	ON CONFLICT (stream, partition, slot) DO UPDATE SET epoch = excluded.epoch, keyed_offset = excluded.keyed_offset,
		data = excluded.data, written_at = now()`

// Write stores cp as the partition's newest generation, keeping the one before. detectors.ErrFenced is wrapped when
// the epoch is not cp.Epoch any more; then nothing was written.
func (s *Store) Write(ctx context.Context, stream string, partition int, cp detectors.Checkpoint) error {
	data := cp.Data
	if data == nil {
		data = []byte{}
	}
	tag, err := s.pool.Exec(ctx, writeCheckpoint, stream, partition, cp.Epoch, cp.Offset, data)
	if err == nil && tag.RowsAffected() == 0 {
		err = detectors.ErrFenced
	}
	if err != nil {
		return s.fail(fmt.Sprintf("checkpoint of keyed partition %d of %s", partition, stream), err)
	}
	return nil
}
