package detect

import (
	"slices"
	"testing"
)

func TestStatsAreOfThePartitionsOwned(t *testing.T) {
	var d Detector
	d.tally.open()
	d.tally.open()
	d.tally.observe(3, 100, 10, true)
	d.tally.observe(1, 20, 7, true)
	d.tally.observe(2, 3, 5, true)
	d.tally.observe(2, 4, 4, false) // it goes on
	if got := d.Stats(); got.Opened != 2 || got.Events != 127 || got.Owned != 3 || got.Lag != 21 || !slices.Equal(got.Halted, []int{1, 3}) {
		t.Errorf("got %+v", got)
	}
	d.tally.forget([]int{1, 2, 5})
	if got := d.Stats(); got.Opened != 2 || got.Events != 127 || got.Owned != 1 || got.Lag != 10 || !slices.Equal(got.Halted, []int{3}) {
		t.Errorf("after a partition was given away: %+v", got)
	}
}
