package explore_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/traffic"
)

// Episodes are counted once each in the step in which they began, from rows and from sums alike, whatever the number of blocks that they led to.
func TestBegan(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	base := hoursAgo(30)
	base -= base % (traffic.Time(24 * time.Hour / time.Microsecond))
	var hits []detectors.Hit
	begun := []time.Duration{-10 * time.Minute, time.Minute, 14 * time.Minute, 15 * time.Minute, 59 * time.Minute, time.Hour, 3*time.Hour + time.Minute, 25 * time.Hour}
	for n, at := range begun {
		h := hit(n, "flood", n, n, base.Add(at), 20*time.Minute)
		hits = append(hits, h)
	}
	s.Record(t, hits...)
	wanted := func(step time.Duration) map[traffic.Time]int64 {
		out := map[traffic.Time]int64{}
		for _, at := range begun {
			out[base.Add(max(at, 0).Truncate(step))]++
		}
		return out
	}
	judge := func(what string) {
		t.Helper()
		for _, step := range []time.Duration{time.Second, 15 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour} {
			found, err := s.Began(t.Context(), explore.Filter{Since: base}, step)
			if err != nil {
				t.Fatal(err)
			}
			got := map[traffic.Time]int64{}
			for _, b := range found {
				got[b.At] += b.Episodes
			}
			if want := wanted(step); !maps.Equal(got, want) {
				t.Errorf("%s, in steps of %s: %v, want %v", what, step, got, want)
			}
		}
	}
	judge("from rows")
	s.sumUp(t.Context(), t, base.Add(-time.Hour))
	judge("from sums")
	other := hits[3] // leads to another block, too
	other.ID, other.BlockSubject = "ff"+other.ID[2:], other.BlockSubject+"&user=u"
	s.Record(t, other)
	judge("of an episode with two blocks")
	later, err := s.Began(t.Context(), explore.Filter{Since: base, Until: base.Add(2 * time.Hour), Rule: "login"}, time.Minute)
	if err != nil || len(later) != 0 {
		t.Errorf("of a rule without episodes: %v, %v", later, err)
	}
	var bad *explore.BadFilterError
	for _, step := range []time.Duration{0, -time.Hour, time.Millisecond, 1500 * time.Millisecond} {
		if _, err := s.Began(t.Context(), explore.Filter{}, step); !errors.As(err, &bad) || bad.Field != "step" {
			t.Errorf("in steps of %s: %v", step, err)
		}
	}
}
