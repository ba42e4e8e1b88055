package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
)

// takePartition raises the epoch unless the caller still holds it. The row's lock makes it compare-and-set: a second
// taker waits, and then sees the first one's epoch. No row comes back where the claim is kept.
const takePartition = `
	INSERT INTO partition_owners AS o (stream, partition, epoch, owner) VALUES ($1, $2, 1, $3)
	ON CONFLICT (stream, partition) DO UPDATE SET epoch = o.epoch + 1, owner = excluded.owner, taken_at = now()
	WHERE NOT (o.epoch = $4 AND o.owner = excluded.owner)
	RETURNING epoch`

// Take claims partition for owner. held is the epoch under which the caller's memory is warm, 0 for none. If the
// store's epoch is held and its owner is owner, the claim is kept; otherwise the epoch is raised by one and what is
// stored is told, newest first: Load gives its pieces.
func (s *Store) Take(ctx context.Context, stream string, partition int, owner string, held int64) (ingest.Claim, error) {
	var claim ingest.Claim
	err := s.transact(ctx, fmt.Sprintf("taking keyed partition %d of %s", partition, stream), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, takePartition, stream, partition, owner, held).Scan(&claim.Epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			claim = ingest.Claim{Epoch: held, Kept: true}
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
		return ingest.Claim{}, err
	}
	return claim, nil
}

// pieceBytes is in what pieces a snapshot is given whose builds stored it as one value.
const pieceBytes = 4 << 20

// inPieces stands in place of a snapshot that lies in checkpoint_pieces. Builds that know no pieces take it for a snapshot of
// a newer format: they refuse the partition and say that they are to be upgraded, and do not begin it anew.
func inPieces() []byte {
	const format = 0xff
	return binary.BigEndian.AppendUint32([]byte{format}, checksum([]byte{format}))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func loadCheckpoints(ctx context.Context, tx pgx.Tx, stream string, partition int) ([]ingest.Checkpoint, error) {
	rows, err := tx.Query(ctx, `
		SELECT c.epoch, c.keyed_offset, c.attempt, s.pieces, s.size FROM checkpoints c
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
		return c, row.Scan(&c.Epoch, &c.Offset, &c.Attempt, &c.Pieces, &c.Size)
	})
}

// loadPiece finds a piece in either form. A row comes back while the partition has an owner; without data where the
// piece is gone.
const loadPiece = `
	SELECT o.epoch = $3, coalesce(p.data, substring(c.data FROM ($7::bigint * $8 + 1)::int FOR $8::int)), p.crc FROM partition_owners o
	LEFT JOIN checkpoints c ON c.stream = $1 AND c.partition = $2 AND c.epoch = $4 AND c.keyed_offset = $5 AND c.attempt = $6
		AND c.data <> $9
	LEFT JOIN checkpoint_pieces p ON c.data IS NULL AND p.stream = $1 AND p.partition = $2 AND p.epoch = $4 AND p.attempt = $6
		AND p.number = $7::bigint
	WHERE o.stream = $1 AND o.partition = $2`

// Load gives a piece of a generation that Take has told of under epoch. ingest.ErrFenced is wrapped when the epoch is
// another one by now, detectors.ErrSnapshot when the piece is damaged or gone.
func (s *Store) Load(ctx context.Context, stream string, partition int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	doing := fmt.Sprintf("piece %d of %d of a snapshot of keyed partition %d of %s", number+1, cp.Pieces, partition, stream)
	var mine bool
	var data []byte
	var crc *int64
	err := s.pool.QueryRow(ctx, loadPiece, stream, partition, epoch, cp.Epoch, cp.Offset, cp.Attempt, number, pieceBytes, inPieces()).
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
		return nil, s.fail(doing, err)
	}
	return data, nil
}
