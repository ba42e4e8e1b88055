package order

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
)

// Where order makes no difference to who is flagged, it makes none to the evidence: in every order within the lateness,
// episodes have the first and last time and the count of the sorted log, or say that their figures are bounds, and then
// they are. A log that had no need to give anything up knows.
func TestEvidenceIsTheSameInEveryOrder(t *testing.T) {
	eachWay(t, way.orderFree, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{covering: true, tidy: true})
			s := o.play(t)
			for key := range s.hits {
				o.compareEpisodes(t, s, key)
			}
		})
	})
}

// Whatever an algorithm leaves out: the times of a hit are times at which the key was truly over, and its count is that of
// the events from the first to the last. A hit that says that its figures are bounds tells of no more than there was.
func TestEvidenceIsTrue(t *testing.T) {
	eachWay(t, anyWay, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{covering: true})
			s := o.play(t)
			for key := range s.hits {
				truths := o.truths(s.all[key])
				for _, h := range s.closed(key) {
					o.judgeEvidence(t, key, &h, truths, s.all[key])
				}
			}
		})
	})
}

func (o *world) judgeEvidence(t *rapid.T, key int, h *detectors.Hit, truths []*oracle.Truth, steps []oracle.Step) {
	first, last := int64(h.First), int64(h.Last)
	tell := func(format string, arguments ...any) {
		t.Fatalf("key %d: the hit %d..%d of %d events %s\n%s", key, h.First-origin, h.Last-origin, h.Count, fmt.Sprintf(format, arguments...), o)
	}
	truth := truths[0]
	if atLeast(h) {
		if most := truth.Held(first-int64(o.window), last+int64(o.window)); h.Count > most {
			tell("says that there were at least as many, but there were %d, a window before and after included", most)
		}
		return
	}
	if !anyOver(truths, steps, first, first) || !anyOver(truths, steps, last, last) {
		tell("begins or ends when the key was not over")
	}
	// Events of one time as the first or the last over one may lie before or after it.
	most := truth.Held(first, last)
	least := most - (truth.Held(first, first) - 1)
	if last > first {
		least -= truth.Held(last, last) - 1
	}
	if h.Count > most || h.Count < least {
		tell("does not say that it is a bound, there were from %d to %d", least, most)
	}
}

// compareEpisodes holds the closed hits of a key against the episodes of its definition on the sorted log.
func (o *world) compareEpisodes(t *rapid.T, s *story, key int) {
	d := o.way.definition(o.window, o.capacity)
	want, got := d.Episodes(d.Judge(s.onTime[key]), int64(24*hour)), s.closed(key)
	bounds := false
	for i := range got {
		bounds = bounds || atLeast(&got[i])
	}
	told := func() string { return tellEpisodes(got, want) }
	switch {
	case (len(got) > 0) != (len(want) > 0):
		t.Fatalf("key %d: %s\n%s", key, told(), o)
	case bounds && o.modest(s, key):
		t.Fatalf("key %d: nothing was given up, but the figures are said to be bounds: %s\n%s", key, told(), o)
	case !bounds && len(got) != len(want):
		t.Fatalf("key %d: %s\n%s", key, told(), o)
	case bounds && !o.way.logged():
		return // without a time of each event, which of them is over is not known: TestEvidenceIsTrue
	}
	for i := range got {
		h := &got[i]
		j := i
		if bounds {
			for j = 0; j < len(want) && (want[j].Last < int64(h.First) || want[j].First > int64(h.Last)); j++ {
				continue
			}
			if j == len(want) {
				t.Fatalf("key %d: hit %d is of no episode: %s\n%s", key, i, told(), o)
			}
		}
		e := want[j]
		same := int64(h.First) == e.First && int64(h.Last) == e.Last && h.Count == e.Count
		within := int64(h.First) >= e.First && int64(h.Last) <= e.Last && h.Count <= e.Count
		if !same && !(within && atLeast(h)) {
			t.Fatalf("key %d, episode %d: %s\n%s", key, i, told(), o)
		}
		if !o.way.bucket() && (int64(h.Peak) > e.Peak || h.Peak <= h.Limit) {
			t.Fatalf("key %d, episode %d: peak %d of limit %d, the fullest window held %d: %s\n%s", key, i, h.Peak, h.Limit, e.Peak, told(), o)
		}
	}
}

// modestEvents is how many events of a key a log has no need to give up.
const modestEvents = 20

// modest reports whether a key has so few events that a log of them keeps all, or that they came in order.
func (o *world) modest(s *story, key int) bool {
	inOrder := true
	for i, step := range s.all[key] {
		inOrder = inOrder && (i == 0 || step.Time >= s.all[key][i-1].Time)
	}
	return inOrder || o.way.logged() && len(s.all[key]) <= max(modestEvents, o.limits[0]+1)
}

// tellEpisodes puts both sides beside each other, times from the origin.
func tellEpisodes(got []detectors.Hit, want []oracle.PeakedEpisode) string {
	text := "got"
	for i := range got {
		h := &got[i]
		text += sprint(int64(h.First), int64(h.Last), h.Count)
		if atLeast(h) {
			text += "+"
		}
	}
	text += ", by the sorted log"
	for _, e := range want {
		text += sprint(e.First, e.Last, e.Count)
	}
	return text
}

func sprint(first, last, count int64) string {
	return fmt.Sprintf(" %d..%d (%d)", first-int64(origin), last-int64(origin), count)
}
