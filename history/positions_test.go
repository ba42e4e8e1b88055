package history_test

import (
	"maps"
	"testing"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
)

// A position takes the place of the one before, and of no other: who holds to one that the database does not have is
// told what it has. Stages and streams have their own.
func TestPositionsTakeThePlaceOfThoseBefore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hits, blocks := b.Streams.PositionsOf(history.Live, "record"), b.Streams.PositionsOf(history.Live, "record-blocks")
	keep := func(all []ingest.Kept, want map[int]int64) {
		t.Helper()
		if others, anew, err := hits.Keep(t.Context(), all); err != nil || anew || !maps.Equal(others, want) {
			t.Errorf("kept %+v: others are %v, want %v (%v)", all, others, want, err)
		}
	}
	kept := func(want map[int]int64) {
		t.Helper()
		if got, whole, err := hits.Kept(t.Context()); err != nil || !whole || !maps.Equal(got, want) {
			t.Errorf("kept is %v, want %v (%v)", got, want, err)
		}
	}
	kept(map[int]int64{})
	keep([]ingest.Kept{{Partition: 0, Before: -1, Now: 7}, {Partition: 3, Before: -1, Now: 0}}, map[int]int64{})
	kept(map[int]int64{0: 7, 3: 0})
	keep([]ingest.Kept{{Partition: 0, Before: 5, Now: 9}, {Partition: 3, Before: 0, Now: 4},
		{Partition: 4, Before: 2, Now: 3}},
		map[int]int64{0: 7, 4: -1})
	kept(map[int]int64{0: 7, 3: 4})
	keep([]ingest.Kept{{Partition: 0, Before: 7, Now: 7}, {Partition: 3, Before: 4, Now: 1}}, map[int]int64{})
	kept(map[int]int64{0: 7, 3: 1}) // a log that was made anew has lower ones
	if got, _, err := blocks.Kept(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("another stage has %v (%v)", got, err)
	}
	got, whole, err := b.Streams.PositionsOf("other", "record").Kept(t.Context())
	if err != nil || whole || len(got) != 0 {
		t.Errorf("another stream has %v (%v)", got, err)
	}
}

// TestADatabaseThatIsAnotherOneKeepsNoPosition: what was written before it was put back may be lost, though its
// positions are those of before. It is asked anew from there on, and a database without the row of the beginning does
// not say that it has nothing of a partition.
func TestADatabaseThatIsAnotherOneKeepsNoPosition(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	p := b.Streams.PositionsOf(history.Live, "record")
	keep := func(before, now int64, wantAnew bool, want map[int]int64) {
		t.Helper()
		others, anew, err := p.Keep(t.Context(), []ingest.Kept{{Partition: 1, Before: before, Now: now}})
		if err != nil || anew != wantAnew || !maps.Equal(others, want) {
			t.Errorf("from %d to %d: anew %v, others %v, %v", before, now, anew, others, err)
		}
	}
	keep(-1, 7, false, map[int]int64{})
	b.Run(t, `CREATE TABLE weir.copy (LIKE weir.read_positions INCLUDING ALL)`)
	b.Run(t, `INSERT INTO weir.copy SELECT * FROM weir.read_positions`)
	b.Run(t, `DROP TABLE weir.read_positions`)
	b.Run(t, `ALTER TABLE weir.copy RENAME TO read_positions`)
	b.Run(t, "ALTER TABLE weir.read_positions RENAME COLUMN next_offset TO gone")
	if _, _, err := p.Keep(t.Context(), []ingest.Kept{{Partition: 1, Before: 7, Now: 9}}); err == nil {
		t.Error("a position was kept in a table that has none")
	}
	b.Run(t, "ALTER TABLE weir.read_positions RENAME COLUMN gone TO next_offset")
	keep(7, 9, true, map[int]int64{}) // also where it did not answer whole in between
	keep(7, 9, false, map[int]int64{})
	b.Run(t, `DELETE FROM weir.read_positions WHERE stage = ''`)
	got, whole, err := p.Kept(t.Context())
	if err != nil || whole || !maps.Equal(got, map[int]int64{1: 9}) {
		t.Errorf("kept %v, whole %v, %v", got, whole, err)
	}
}
