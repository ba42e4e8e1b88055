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
		if others, err := hits.Keep(t.Context(), all); err != nil || !maps.Equal(others, want) {
			t.Errorf("kept %+v: others are %v, want %v (%v)", all, others, want, err)
		}
	}
	kept := func(want map[int]int64) {
		t.Helper()
		if got, err := hits.Kept(t.Context()); err != nil || !maps.Equal(got, want) {
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
	if got, err := blocks.Kept(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("another stage has %v (%v)", got, err)
	}
	if got, err := b.Streams.PositionsOf("other", "record").Kept(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("another stream has %v (%v)", got, err)
	}
}
