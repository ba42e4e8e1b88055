// Package partitions is what PostgreSQL keeps for the partitions of a stream: who owns a keyed partition, the snapshots of its
// windows, what stages report of each partition, and the gaps that operators said may be passed.
package partitions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// Store is that of one installation. It is safe for concurrent use.
type Store struct{ db *postgres.DB }

// New returns the store in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// takePartition raises the epoch unless the caller still holds it, and returns a row if it does. The row's lock makes it
// compare-and-set: a second taker waits, and then sees the first one's epoch.
const takePartition = `
	INSERT INTO partition_owners AS o (stream, partition, epoch, owner) VALUES ($1, $2, 1, $3)
	ON CONFLICT (stream, partition) DO UPDATE SET epoch = o.epoch + 1, owner = excluded.owner, taken_at = now()
	WHERE NOT (o.epoch = $4 AND o.owner = excluded.owner)
	RETURNING epoch`

// Take claims partition for owner. held is the epoch under which the caller's memory is warm, 0 for none. If the stored epoch is
// held and the stored owner is owner, the claim is kept. Otherwise the epoch is raised by one, and the claim lists the stored
// snapshots, newest first, whose pieces Load returns.
func (s *Store) Take(ctx context.Context, stream string, partition int, owner string, held int64) (ingest.Claim, error) {
	var claim ingest.Claim
	err := s.db.Transact(ctx, fmt.Sprintf("taking keyed partition %d of %s", partition, stream), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, takePartition, stream, partition, owner, held).Scan(&claim.Epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			claim = ingest.Claim{Epoch: held, Kept: true}
			return nil
		}
		if err != nil {
			return err
		}
		// A statement of its own, so that its view is younger than the lock: it sees all that the former owner has written,
		// who can write no more now.
		claim.Generations, err = loadCheckpoints(ctx, tx, stream, partition)
		return err
	})
	if err != nil {
		return ingest.Claim{}, err
	}
	return claim, nil
}

// pieceBytes is the size of the pieces in which Load returns a snapshot that an older build stored as one value.
const pieceBytes = 4 << 20

// inPieces is stored in place of a snapshot whose bytes are in checkpoint_pieces. Builds that do not know pieces take it for a
// snapshot of a newer format: they refuse the partition and ask for an upgrade, rather than begin it anew.
func inPieces() []byte {
	const format = 0xff
	return binary.BigEndian.AppendUint32([]byte{format}, checksum([]byte{format}))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func loadCheckpoints(ctx context.Context, tx pgx.Tx, stream string, partition int) ([]ingest.Checkpoint, error) {
	rows, err := tx.Query(ctx, `
		SELECT c.epoch, c.keyed_offset, c.attempt, c.written_at, s.pieces, s.size FROM checkpoints c
		JOIN partition_owners o USING (stream, partition)
		CROSS JOIN LATERAL (
			SELECT count(*) AS pieces, coalesce(sum(octet_length(p.data)), 0)::bigint AS size FROM checkpoint_pieces p
			WHERE c.data = $3 AND p.stream = $1 AND p.partition = $2 AND p.epoch = c.epoch AND p.attempt = c.attempt
			HAVING c.data = $3
			UNION ALL
			SELECT ceil(octet_length(c.data)::float8 / $4)::bigint, octet_length(c.data) WHERE c.data <> $3) s
		WHERE c.stream = $1 AND c.partition = $2 ORDER BY c.slot = o.slot DESC`, stream, partition, inPieces(), pieceBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ingest.Checkpoint, err error) {
		var written time.Time
		err = row.Scan(&c.Epoch, &c.Offset, &c.Attempt, &written, &c.Pieces, &c.Size)
		c.Written = traffic.At(written)
		return c, err
	})
}

// loadPiece finds a piece, of a snapshot in pieces or of one stored whole. It returns a row if the partition has an owner; data
// is NULL where the piece is gone.
const loadPiece = `
	SELECT o.epoch = $3, coalesce(p.data, substring(c.data FROM ($7::bigint * $8 + 1)::int FOR $8::int)), p.crc FROM partition_owners o
	LEFT JOIN checkpoints c ON c.stream = $1 AND c.partition = $2 AND c.epoch = $4 AND c.keyed_offset = $5 AND c.attempt = $6
		AND c.data <> $9
	LEFT JOIN checkpoint_pieces p ON c.data IS NULL AND p.stream = $1 AND p.partition = $2 AND p.epoch = $4 AND p.attempt = $6
		AND p.number = $7::bigint
	WHERE o.stream = $1 AND o.partition = $2`

// Load returns a piece of a snapshot that Take listed under epoch. ingest.ErrFenced is wrapped when the epoch is
// another one by now, detectors.ErrSnapshot when the piece is damaged or gone.
func (s *Store) Load(ctx context.Context, stream string, partition int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	doing := fmt.Sprintf("piece %d of %d of a snapshot of keyed partition %d of %s", number+1, cp.Pieces, partition, stream)
	var mine bool
	var data []byte
	var crc *int64
	err := s.db.QueryRow(ctx, loadPiece, stream, partition, epoch, cp.Epoch, cp.Offset, cp.Attempt, number, pieceBytes, inPieces()).
		Scan(&mine, &data, &crc)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && !mine:
		err = ingest.ErrFenced
	case err != nil:
	case len(data) == 0:
		err = fmt.Errorf("%w: it is gone", detectors.ErrSnapshot)
	case crc != nil && uint32(*crc) != checksum(data):
		err = fmt.Errorf("%w: CRC %08x, its bytes give %08x", detectors.ErrSnapshot, *crc, checksum(data))
	}
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return data, nil
}

// piecesRecordFormat is the least record format under which all processes of a stream know pieces. Operators raise a stream's
// format when the last process of an older build is gone. Below it an older build may take a partition, and can read only
// snapshots that are stored whole.
const piecesRecordFormat = 3

// mostWhole bounds snapshots that are stored whole for older builds, in bytes; PostgreSQL holds values below 1 GiB.
const mostWhole = 512 << 20

// Write stores a piece of a snapshot. Its last piece makes the snapshot the partition's newest, and the newest until then the
// one before it, which is kept; until then no reader sees any piece. A piece may be written again, and a new attempt may begin
// before the last one is whole. ingest.ErrFenced is wrapped when the epoch is not cp.Epoch any more; then nothing was written.
//
// Each step is one statement: an owner that is frozen between two of them must not hold a lock that its successor needs.
func (s *Store) Write(ctx context.Context, stream string, partition int, cp ingest.Checkpoint, piece ingest.Piece) error {
	w := &checkpointWriter{db: s.db, stream: stream, partition: partition, cp: cp}
	err := w.write(ctx, piece)
	if err != nil {
		return s.db.Fail(fmt.Sprintf("piece %d of a snapshot of keyed partition %d of %s", piece.Number+1, partition, stream), err)
	}
	return nil
}

// checkpointWriter writes one generation.
type checkpointWriter struct {
	db        *postgres.DB
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
	tag, err := w.db.Exec(ctx, `
		INSERT INTO checkpoint_pieces (stream, partition, epoch, attempt, number, crc, data)
		SELECT $1, $2, $3, $4, $5, $6, $7 FROM partition_owners o WHERE o.stream = $1 AND o.partition = $2 AND o.epoch = $3
		ON CONFLICT (stream, partition, epoch, attempt, number) DO UPDATE SET crc = excluded.crc, data = excluded.data`,
		w.stream, w.partition, w.cp.Epoch, w.cp.Attempt, piece.Number, int64(checksum(piece.Data)), piece.Data)
	if err == nil && tag.RowsAffected() == 0 {
		return ingest.ErrFenced
	}
	return err
}

// publishCheckpoint writes only if the epoch is unchanged, under the owner row's lock, and all pieces are there. A checkpoint of
// the newest one's offset, as after a lost answer, replaces the newest and not the older one.
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

// publish makes the snapshot the newest: data or, if it is nil, the pieces that were added. Pieces are joined and stored whole
// where older builds may still read them.
func (w *checkpointWriter) publish(ctx context.Context, data []byte, pieces int) error {
	tag, err := w.db.Exec(ctx, publishCheckpoint, w.stream, w.partition, w.cp.Epoch, w.cp.Offset, w.cp.Attempt, data, pieces,
		inPieces(), piecesRecordFormat, mostWhole)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	var mine bool
	err = w.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM partition_owners WHERE stream = $1 AND partition = $2 AND epoch = $3)",
		w.stream, w.partition, w.cp.Epoch).Scan(&mine)
	switch {
	case err != nil:
		return err
	case mine:
		return fmt.Errorf("of its %d pieces not all are there", pieces)
	}
	return ingest.ErrFenced
}

// clean removes the pieces that interrupted attempts have left. It spares the pieces of this attempt, and of the one before,
// whose last statement may still be under way.
func (w *checkpointWriter) clean(ctx context.Context) error {
	_, err := w.db.Exec(ctx, `
		DELETE FROM checkpoint_pieces p WHERE p.stream = $1 AND p.partition = $2 AND (p.epoch < $3 OR p.epoch = $3 AND p.attempt < (
			SELECT max(attempt) FROM checkpoint_pieces WHERE stream = $1 AND partition = $2 AND epoch = $3 AND attempt < $4))
		AND NOT EXISTS (
			SELECT FROM checkpoints c WHERE c.stream = $1 AND c.partition = $2 AND c.epoch = p.epoch AND c.attempt = p.attempt
			AND c.data = $5)`, w.stream, w.partition, w.cp.Epoch, w.cp.Attempt, inPieces())
	return err
}
