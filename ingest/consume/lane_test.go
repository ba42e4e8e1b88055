package consume

import "testing"

func TestLagIsOfTheLanesThatWork(t *testing.T) {
	var c Consumer
	if got := c.Lag(); got != 0 {
		t.Errorf("before a generation: %d", got)
	}
	c.working.Store(&consumption{lanes: map[int]*lane{
		0: {applied: 5, end: 12}, 1: {applied: 7, end: 7}, 2: {applied: 9, end: 3}, // the log has lost its tail
	}})
	if got := c.Lag(); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}
