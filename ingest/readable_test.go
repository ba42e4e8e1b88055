package ingest

import (
	"testing"
	"time"
)

// TestSilenceBehindABacklog: a prefetcher that has much to read leaves partitions out again and again, and a silent one among
// them is still found out. What was left out for long has not been silent.
func TestSilenceBehindABacklog(t *testing.T) {
	begin := time.Unix(1e9, 0)
	for _, test := range []struct {
		every   time.Duration // between two times that the partition is asked for
		blocked bool
	}{
		{100 * time.Millisecond, true},
		{notAskedFor, true},
		{notAskedFor + time.Second, false},
	} {
		var r Readable
		now := begin
		for ; now.Sub(begin) < 4*unansweredFor; now = now.Add(test.every) {
			r.Ask(now)
			r.Failed(now, 7, nil)
			if r.Blocked != nil && now.Sub(begin) < unansweredFor {
				t.Fatalf("asked for every %v: blocked after %v", test.every, now.Sub(begin))
			}
		}
		if (r.Blocked != nil) != test.blocked {
			t.Errorf("asked for every %v: blocked is %v, want %v", test.every, r.Blocked, test.blocked)
		}
		if r.Blocked != nil {
			r.Ask(now.Add(time.Hour))
			if r.Blocked == nil {
				t.Errorf("asked for every %v: what is known to be blocked is forgotten for want of room", test.every)
			}
		}
	}
}
