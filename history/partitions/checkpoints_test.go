package partitions_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

// bed is a migrated store with a live stream.
type bed struct{ *historytest.Bed }

func newBed(t testing.TB) *bed {
	t.Helper()
	return &bed{historytest.New(t)}
}

// generation is a stored snapshot with its bytes.
type generation struct {
	epoch, offset int64
	data          string
}

// naiveCheckpoints is Checkpoints for one partition, as the contract says it.
type naiveCheckpoints struct {
	epoch int64
	owner string
	kept  []generation // newest first
}

func (n *naiveCheckpoints) take(owner string, held int64) (epoch int64, kept bool, found []generation) {
	if held != 0 && held == n.epoch && owner == n.owner {
		return held, true, nil
	}
	n.epoch, n.owner = n.epoch+1, owner
	return n.epoch, false, slices.Clone(n.kept)
}

func (n *naiveCheckpoints) publish(g generation) {
	if len(n.kept) > 0 && n.kept[0].epoch == g.epoch && n.kept[0].offset == g.offset {
		n.kept = n.kept[1:]
	}
	n.kept = append([]generation{g}, n.kept...)
	n.kept = n.kept[:min(2, len(n.kept))]
}

// attempt is a snapshot that is being written.
type attempt struct {
	cp     ingest.Checkpoint
	pieces []string
	next   int
}

func (a *attempt) piece(n int) ingest.Piece {
	return ingest.Piece{Number: n, Last: n == len(a.pieces)-1, Data: []byte(a.pieces[n])}
}

// stored loads all that a claim tells of.
func (b *bed) stored(t testing.TB, partition int, claim ingest.Claim) (out []generation) {
	t.Helper()
	for _, cp := range claim.Generations {
		g := generation{epoch: cp.Epoch, offset: cp.Offset}
		for n := range cp.Pieces {
			piece, err := b.Partitions.Load(t.Context(), streams.Live, partition, claim.Epoch, cp, n)
			if err != nil {
				t.Fatalf("piece %d of %+v: %v", n, cp, err)
			}
			g.data += string(piece)
		}
		if int64(len(g.data)) != cp.Size {
			t.Fatalf("%d bytes, %d were told", len(g.data), cp.Size)
		}
		out = append(out, g)
	}
	return out
}

// Whatever is written in pieces, interrupted, begun anew and written again by owners that take the partition from each
// other: what was made whole last is found, with the one before; of the rest, nothing is seen and little is left.
func TestCheckpointsAgainstNaive(t *testing.T) {
	t.Parallel()
	for _, format := range []int{2, 3} {
		t.Run(fmt.Sprint("record format ", format), func(t *testing.T) {
			b := newBed(t)
			b.PublishRecordFormat(t, format)
			partition := 0
			rapid.Check(t, func(r *rapid.T) {
				partition++
				checkpointsAgainstNaive(t, r, b, partition)
			})
		})
	}
}

func checkpointsAgainstNaive(t *testing.T, r *rapid.T, b *bed, partition int) {
	naive, attempts := &naiveCheckpoints{}, int64(0)
	var under []*attempt // the two newest attempts of the epoch
	r.Repeat(map[string]func(*rapid.T){
		"take": func(r *rapid.T) {
			owner := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "owner")
			held := rapid.Int64Range(0, naive.epoch+1).Draw(r, "held")
			epoch, kept, want := naive.take(owner, held)
			got, err := b.Partitions.Take(t.Context(), streams.Live, partition, owner, held)
			if err != nil {
				r.Fatal(err)
			}
			if found := b.stored(t, partition, got); got.Epoch != epoch || got.Kept != kept || !slices.Equal(found, want) {
				r.Fatalf("take by %s holding %d: got %+v with %v, want epoch %d, kept %v, %v", owner, held, got, found, epoch, kept, want)
			}
		},
		"begin": func(r *rapid.T) {
			attempts++
			a := &attempt{
				cp: ingest.Checkpoint{Epoch: rapid.Int64Range(0, naive.epoch+1).Draw(r, "epoch"),
					Offset: rapid.Int64Range(0, 5).Draw(r, "offset"), Attempt: attempts},
				pieces: rapid.SliceOfN(rapid.StringN(1, 5, -1), 1, 4).Draw(r, "pieces"),
			}
			if under = append(under, a); len(under) > 2 {
				under = under[1:]
			}
		},
		"write": func(r *rapid.T) {
			if len(under) == 0 {
				return
			}
			a := rapid.SampledFrom(under).Draw(r, "attempt")
			n := rapid.IntRange(0, a.next).Draw(r, "piece") // the next one, or one again
			err := b.Partitions.Write(t.Context(), streams.Live, partition, a.cp, a.piece(n))
			if mine := naive.epoch > 0 && a.cp.Epoch == naive.epoch; mine != (err == nil) || err != nil && !errors.Is(err, ingest.ErrFenced) {
				r.Fatalf("write of %+v at epoch %d: %v", a.cp, naive.epoch, err)
			}
			if err != nil {
				return
			}
			if n == len(a.pieces)-1 {
				naive.publish(generation{a.cp.Epoch, a.cp.Offset, strings.Join(a.pieces, "")})
			}
			a.next = min(max(a.next, n+1), len(a.pieces)-1)
		},
	})
	left := 0
	err := b.Conn.QueryRow(t.Context(), "SELECT count(DISTINCT (epoch, attempt)) FROM checkpoint_pieces WHERE partition = $1", partition).Scan(&left)
	if err != nil || left > 4+len(under) {
		r.Errorf("pieces of %d attempts are left (%v)", left, err)
	}
}

// tenure is what one taker of a partition found and did.
type tenure struct {
	claim ingest.Claim
	wrote int64 // the last offset that was acknowledged under the claim; 0 for none
	err   error
}

// hold takes the partition and writes five checkpoints, or as many as it is let.
func (b *bed) hold(t *testing.T, owner string) tenure {
	claim, err := b.Partitions.Take(t.Context(), streams.Live, 1, owner, 0)
	held := tenure{claim: claim, err: err}
	for offset := int64(1); offset <= 5 && err == nil; offset++ {
		cp := ingest.Checkpoint{Epoch: claim.Epoch, Offset: offset, Attempt: offset}
		for n := 0; n < 3 && err == nil; n++ {
			err = b.Partitions.Write(t.Context(), streams.Live, 1, cp, ingest.Piece{Number: n, Last: n == 2, Data: []byte{byte(offset)}})
		}
		if err == nil {
			held.wrote = offset
		} else if !errors.Is(err, ingest.ErrFenced) {
			held.err = err
		}
	}
	return held
}

// Every taker writes as long as it is let; each must find, in what it took, the last write that was acknowledged.
func TestConcurrentTakersAreFenced(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const takers, rounds = 4, 25
	all := make([][]tenure, takers)
	var wg sync.WaitGroup
	for i := range takers {
		wg.Go(func() {
			for range rounds {
				all[i] = append(all[i], b.hold(t, fmt.Sprint("owner-", i)))
			}
		})
	}
	wg.Wait()
	byEpoch := make(map[int64]tenure)
	for _, held := range slices.Concat(all...) {
		if held.err != nil {
			t.Fatal(held.err)
		}
		byEpoch[held.claim.Epoch] = held
	}
	if len(byEpoch) != takers*rounds {
		t.Fatalf("%d takers got %d epochs", takers*rounds, len(byEpoch))
	}
	var wrote ingest.Checkpoint
	for epoch := int64(1); epoch <= takers*rounds; epoch++ {
		held := byEpoch[epoch]
		var newest ingest.Checkpoint
		if len(held.claim.Generations) > 0 {
			newest = held.claim.Generations[0]
		}
		if newest.Epoch != wrote.Epoch || newest.Offset != wrote.Offset {
			t.Fatalf("epoch %d found epoch %d offset %d newest, acknowledged was epoch %d offset %d",
				epoch, newest.Epoch, newest.Offset, wrote.Epoch, wrote.Offset)
		}
		if held.wrote > 0 {
			wrote = ingest.Checkpoint{Epoch: epoch, Offset: held.wrote}
		}
	}
}
