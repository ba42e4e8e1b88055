package consume

import "testing"

func TestStatsAreOfTheLanesThatWork(t *testing.T) {
	var c Consumer
	if got := c.Stats(); got != (Stats{}) {
		t.Errorf("before a generation: %+v", got)
	}
	c.working.Store(&consumption{lanes: map[int]*lane{
		0: {applied: 5, end: 12}, 1: {applied: 7, end: 7}, 2: {applied: 9, end: 3}, // the log has lost its tail
	}})
	if got := c.Stats(); got != (Stats{Owned: 3, Lag: 7}) {
		t.Errorf("got %+v, want 3 partitions and 7 records", got)
	}
}
