package history

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/ingest"
)

// piecesRecordFormat is the record format from which on all processes of a stream know pieces. An operator raises a
// stream's when the last process of an older build is gone: until then one of those may take a partition, and reads whole
// snapshots only.
const piecesRecordFormat = 3

// mostWhole is the most that is put together for older builds, in bytes; PostgreSQL holds values below 1 GiB.
const mostWhole = 512 << 20

// Write stores a piece of a snapshot. The last one makes the snapshot the partition's newest generation; the one before is
// kept. Until then nobody sees any of it. A piece may be written again, and a new attempt may be begun before the one before is
// whole. ingest.ErrFenced is wrapped when the epoch is not cp.Epoch any more; then nothing was written.
//
// Each step is one statement: an owner that is frozen between two of them must not hold a lock that its successor needs.
func (s *Store) Write(ctx context.Context, stream string, partition int, cp ingest.Checkpoint, piece ingest.Piece) error {
	w := &checkpointWriter{querier: s.pool, stream: stream, partition: partition, cp: cp}
	err := w.write(ctx, piece)
	if err != nil {
		return s.fail(fmt.Sprintf("piece %d of a snapshot of keyed partition %d of %s", piece.Number+1, partition, stream), err)
	}
	return nil
}

// checkpointWriter writes one generation.
type checkpointWriter struct {
	querier
	stream    string
	partition int
	cp        ingest.Checkpoint
}

func (w *checkpointWriter) write(ctx context.Context, piece ingest.Piece) error {
	var err error
	switch {
	case !piece.Last:
		err = w.add(ctx, piece)
	case piece.Number == 0:
		err = w.publish(ctx, append([]byte{}, piece.Data...), 0)
	default:
		if err = w.add(ctx, piece); err == nil {
			err = w.publish(ctx, nil, piece.Number+1)
		}
	}
	if err == nil && (piece.Last || piece.Number == 0) {
		err = w.clean(ctx)
	}
	return err
}

func (w *checkpointWriter) add(ctx context.Context, piece ingest.Piece) error {
	tag, err := w.Exec(ctx, `
		INSERT INTO checkpoint_pieces (stream, partition, epoch, attempt, number, crc, data)
		SELECT $1, $2, $3, $4, $5, $6, $7 FROM partition_owners o WHERE o.stream = $1 AND o.partition = $2 AND o.epoch = $3
		ON CONFLICT (stream, partition, epoch, attempt, number) DO UPDATE SET crc = excluded.crc, data = excluded.data`,
		w.stream, w.partition, w.cp.Epoch, w.cp.Attempt, piece.Number, int64(checksum(piece.Data)), piece.Data)
	if err == nil && tag.RowsAffected() == 0 {
		return ingest.ErrFenced
	}
	return err
}

// publishCheckpoint finds the epoch unchanged under the owner row's lock, and all pieces there, or writes nothing. A
// checkpoint of the same offset, as when the answer to the first was lost, takes its own slot and not the older one's.
const publishCheckpoint = `
	WITH pieces AS (
		SELECT count(*) AS n, sum(octet_length(data)) AS size FROM checkpoint_pieces
		WHERE stream = $1 AND partition = $2 AND epoch = $3 AND attempt = $5),
	format AS (
		SELECT max(document::json->>'record_format')::bigint AS format FROM routing_versions
		WHERE stream = $1 AND number = (SELECT max(number) FROM routing_versions WHERE stream = $1)),
	mine AS (
		UPDATE partition_owners o SET slot = CASE WHEN EXISTS (
				SELECT FROM checkpoints c WHERE c.stream = o.stream AND c.partition = o.partition AND c.slot = o.slot
				AND c.epoch = $3 AND c.keyed_offset = $4)
			THEN o.slot ELSE 1 - o.slot END
		WHERE o.stream = $1 AND o.partition = $2 AND o.epoch = $3 AND ($7 = 0 OR (SELECT n FROM pieces) = $7)
		RETURNING o.slot)
	INSERT INTO checkpoints (stream, partition, slot, epoch, keyed_offset, attempt, data)
	SELECT $1, $2, mine.slot, $3, $4, $5, CASE
		WHEN $6::bytea IS NOT NULL THEN $6
		WHEN (SELECT format FROM format) >= $9 OR (SELECT size FROM pieces) > $10 THEN $8
		ELSE (SELECT string_agg(data, ''::bytea ORDER BY number) FROM checkpoint_pieces
			WHERE stream = $1 AND partition = $2 AND epoch = $3 AND attempt = $5) END
	FROM mine
	ON CONFLICT (stream, partition, slot) DO UPDATE SET epoch = excluded.epoch, keyed_offset = excluded.keyed_offset,
		attempt = excluded.attempt, data = excluded.data, written_at = now()`

// publish makes the snapshot the newest generation: data, or the pieces that were added, which older builds are given as
// a whole while there may be one.
func (w *checkpointWriter) publish(ctx context.Context, data []byte, pieces int) error {
	tag, err := w.Exec(ctx, publishCheckpoint, w.stream, w.partition, w.cp.Epoch, w.cp.Offset, w.cp.Attempt, data, pieces,
		inPieces(), piecesRecordFormat, mostWhole)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	var mine bool
	err = w.QueryRow(ctx, "SELECT EXISTS (SELECT FROM partition_owners WHERE stream = $1 AND partition = $2 AND epoch = $3)",
		w.stream, w.partition, w.cp.Epoch).Scan(&mine)
	switch {
	case err != nil:
		return err
	case mine:
		return fmt.Errorf("of its %d pieces not all are there", pieces)
	}
	return ingest.ErrFenced
}

// clean removes pieces that are of no generation, as interrupted attempts leave them. This attempt's stay, and those of
// the one before: what it was last asked to do may be under way still.
func (w *checkpointWriter) clean(ctx context.Context) error {
	_, err := w.Exec(ctx, `
		DELETE FROM checkpoint_pieces p WHERE p.stream = $1 AND p.partition = $2 AND (p.epoch < $3 OR p.epoch = $3 AND p.attempt < (
			SELECT max(attempt) FROM checkpoint_pieces WHERE stream = $1 AND partition = $2 AND epoch = $3 AND attempt < $4))
		AND NOT EXISTS (
			SELECT FROM checkpoints c WHERE c.stream = $1 AND c.partition = $2 AND c.epoch = p.epoch AND c.attempt = p.attempt
			AND c.data = $5)`, w.stream, w.partition, w.cp.Epoch, w.cp.Attempt, inPieces())
	return err
}
