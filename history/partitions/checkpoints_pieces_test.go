package partitions_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// randomPieces are n pieces of a size, as little alike as snapshots are.
func randomPieces(n, size int) [][]byte {
	chacha := rand.NewChaCha8([32]byte{7})
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, size)
		_, _ = chacha.Read(out[i])
	}
	return out
}

func (b *bed) takes(t *testing.T, owner string) ingest.Claim {
	t.Helper()
	claim, err := b.Partitions.Take(t.Context(), streams.Live, 1, owner, 0)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

func (b *bed) writes(t *testing.T, cp ingest.Checkpoint, pieces ...[]byte) {
	t.Helper()
	for n, data := range pieces {
		err := b.Partitions.Write(t.Context(), streams.Live, 1, cp, ingest.Piece{Number: n, Last: n == len(pieces)-1, Data: data})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The statements of the build before pieces, as it sends them: it runs beside this one while an installation is upgraded.
const (
	formerWrite = `
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
	formerTake = `
	INSERT INTO partition_owners AS o (stream, partition, epoch, owner) VALUES ($1, $2, 1, $3)
	ON CONFLICT (stream, partition) DO UPDATE SET epoch = o.epoch + 1, owner = excluded.owner, taken_at = now()
	WHERE NOT (o.epoch = $4 AND o.owner = excluded.owner)
	RETURNING epoch`
	formerLoad = `
		SELECT c.data FROM checkpoints c JOIN partition_owners o USING (stream, partition)
		WHERE stream = $1 AND partition = $2 ORDER BY c.slot = o.slot DESC`
)

// former takes partition 1 as the build before pieces does, and gives what that reads, newest first.
func (b *bed) former(t *testing.T) (epoch int64, found [][]byte) {
	t.Helper()
	if err := b.Conn.QueryRow(t.Context(), formerTake, streams.Live, 1, "former", 0).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	rows, err := b.Conn.Query(t.Context(), formerLoad, streams.Live, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			t.Fatal(err)
		}
		found = append(found, data)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return epoch, found
}

// While processes of the build before may be there, each reads what the other one wrote, large or small, newest first.
func TestFormerBuildSharesCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.PublishRecordFormat(t, 2)
	large := randomPieces(3, 4<<20+1000)
	small := []byte("small")
	for round := range 2 { // each form takes the place of each other one
		ours := b.takes(t, "ours")
		b.writes(t, ingest.Checkpoint{Epoch: ours.Epoch, Offset: 1, Attempt: 1}, large...)
		b.writes(t, ingest.Checkpoint{Epoch: ours.Epoch, Offset: 2, Attempt: 2}, small)
		epoch, found := b.former(t)
		if want := [][]byte{small, slices.Concat(large...)}; !slices.EqualFunc(found, want, bytes.Equal) {
			t.Fatalf("round %d: the former build reads %d snapshots, not ours", round, len(found))
		}
		for i, data := range [][]byte{small, slices.Concat(large...)} {
			tag, err := b.Conn.Exec(t.Context(), formerWrite, streams.Live, 1, epoch, 3+i, data)
			if err != nil || tag.RowsAffected() != 1 {
				t.Fatal(tag, err)
			}
		}
		claim := b.takes(t, "ours")
		got := b.stored(t, 1, claim)
		want := []generation{{epoch, 4, string(slices.Concat(large...))}, {epoch, 3, string(small)}}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: of the former build's snapshots we read %d, of other content", round, len(got))
		}
		if claim.Generations[0].Pieces < 3 {
			t.Errorf("%d bytes come in %d pieces", claim.Generations[0].Size, claim.Generations[0].Pieces)
		}
	}
}

// Once the operator has said that no older build is left, a large snapshot stays in pieces. Should one come back all the
// same, it refuses the partition, and neither takes the mark for a torn snapshot nor begins anew; what it writes over the mark is read.
func TestFormerBuildRefusesPieces(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.PublishRecordFormat(t, 3)
	pieces := randomPieces(2, 5000)
	ours := b.takes(t, "ours")
	for n := range int64(2) {
		b.writes(t, ingest.Checkpoint{Epoch: ours.Epoch, Offset: n, Attempt: 1 + n}, pieces...)
	}
	epoch, found := b.former(t)
	for _, data := range found {
		var newer *detectors.UnknownFormatError
		if _, err := detectors.RestoreFrom(detectors.Config{Sources: 1}, int64(len(data)), func() ([]byte, error) { return data, nil }); !errors.As(err, &newer) {
			t.Errorf("of %d bytes the former build says: %v", len(data), err)
		}
	}
	if len(found) != 2 {
		t.Errorf("the former build reads %d generations", len(found))
	}
	if _, err := b.Conn.Exec(t.Context(), formerWrite, streams.Live, 1, epoch, 9, []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	got := b.stored(t, 1, b.takes(t, "ours"))
	if want := []generation{{epoch, 9, "theirs"}, {ours.Epoch, 1, string(slices.Concat(pieces...))}}; !slices.Equal(got, want) {
		t.Errorf("got %d generations, not theirs and ours", len(got))
	}
}

// Damage of a piece, or one that is gone, is damage of the snapshot; that somebody else has the partition is not.
func TestLoadTellsDamageFromOwnership(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.PublishRecordFormat(t, 3)
	claim := b.takes(t, "ours")
	b.writes(t, ingest.Checkpoint{Epoch: claim.Epoch, Offset: 7, Attempt: 1}, randomPieces(3, 1000)...)
	claim = b.takes(t, "ours")
	cp := claim.Generations[0]
	for n, harm := range []string{
		"UPDATE checkpoint_pieces SET data = set_bit(data, 777, 1 - get_bit(data, 777)) WHERE number = 0",
		"UPDATE checkpoint_pieces SET data = substring(data FROM 1 FOR 10) WHERE number = 1",
		"DELETE FROM checkpoint_pieces WHERE number = 2",
	} {
		if _, err := b.Partitions.Load(t.Context(), streams.Live, 1, claim.Epoch, cp, n); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Conn.Exec(t.Context(), harm); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Partitions.Load(t.Context(), streams.Live, 1, claim.Epoch, cp, n); !errors.Is(err, detectors.ErrSnapshot) {
			t.Errorf("after %s: %v", harm, err)
		}
	}
	b.takes(t, "another")
	for n := range 3 {
		_, err := b.Partitions.Load(t.Context(), streams.Live, 1, claim.Epoch, cp, n)
		if !errors.Is(err, ingest.ErrFenced) || errors.Is(err, detectors.ErrSnapshot) {
			t.Errorf("piece %d, of a partition that was taken since: %v", n, err)
		}
	}
}

// A snapshot of which a piece is missing is never made current, and what attempts leave behind does not pile up.
func TestInterruptedSnapshotsStayUnseen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.PublishRecordFormat(t, 3)
	claim := b.takes(t, "ours")
	for attempt := int64(1); attempt <= 10; attempt++ {
		cp := ingest.Checkpoint{Epoch: claim.Epoch, Offset: attempt, Attempt: attempt}
		for n := range 2 {
			if err := b.Partitions.Write(t.Context(), streams.Live, 1, cp, ingest.Piece{Number: n, Data: []byte(fmt.Sprint(n))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cp := ingest.Checkpoint{Epoch: claim.Epoch, Offset: 10, Attempt: 10}
	if err := b.Partitions.Write(t.Context(), streams.Live, 1, cp, ingest.Piece{Number: 3, Last: true, Data: []byte("x")}); err == nil {
		t.Error("a snapshot without its third piece was stored")
	}
	var left int
	if err := b.Conn.QueryRow(t.Context(), "SELECT count(*) FROM checkpoint_pieces").Scan(&left); err != nil || left > 5 {
		t.Errorf("%d pieces are left of ten attempts (%v)", left, err)
	}
	if next := b.takes(t, "next"); len(next.Generations) != 0 {
		t.Errorf("found %+v", next.Generations)
	}
	b.writes(t, ingest.Checkpoint{Epoch: claim.Epoch + 1, Offset: 11, Attempt: 1}, []byte("whole"))
	if err := b.Conn.QueryRow(t.Context(), "SELECT count(*) FROM checkpoint_pieces").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d pieces of the former owner are left (%v)", left, err)
	}
}

// An attempt that is begun before the one before is whole, or whose last piece is under way still, takes nothing from it.
func TestAttemptSparesTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.PublishRecordFormat(t, 3)
	claim := b.takes(t, "ours")
	write := func(attempt int64, n int) {
		t.Helper()
		cp := ingest.Checkpoint{Epoch: claim.Epoch, Offset: attempt, Attempt: attempt}
		piece := ingest.Piece{Number: n, Last: n == 1, Data: []byte(fmt.Sprint(attempt, n))}
		if err := b.Partitions.Write(t.Context(), streams.Live, 1, cp, piece); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range [][2]int{{1, 0}, {2, 0}, {1, 1}, {2, 1}, {1, 1}} {
		write(int64(w[0]), w[1])
	}
	got := b.stored(t, 1, b.takes(t, "next"))
	if want := []generation{{claim.Epoch, 1, "1 01 1"}, {claim.Epoch, 2, "2 02 1"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Whoever takes a partition learns when each of its snapshots was whole, also where one was stored twice.
func TestSnapshotsSayWhenTheyWereStored(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	claim := b.takes(t, "first")
	var least []traffic.Time
	for _, attempt := range []int64{1, 2, 3} {
		least = append(least, traffic.At(time.Now()))
		b.writes(t, ingest.Checkpoint{Epoch: claim.Epoch, Offset: min(attempt, 2), Attempt: attempt}, randomPieces(int(attempt), 1000)...)
	}
	next := b.takes(t, "next")
	if len(next.Generations) != 2 {
		t.Fatalf("found %+v", next.Generations)
	}
	for i, between := range [][2]traffic.Time{{least[2], traffic.At(time.Now())}, {least[0], least[1]}} {
		if at := next.Generations[i].Written; at < between[0] || at > between[1] {
			t.Errorf("generation %d was stored at %s, and is said to be of %s", i, between, at)
		}
	}
}
