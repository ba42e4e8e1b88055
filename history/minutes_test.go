package history_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

// minuteOf is a part of what rule r did in the n-th minute.
func minuteOf(n int, id string, of detectors.Kind, refusedAt ...int64) detectors.Hit {
	h := hitNumber(n)
	h.Kind, h.ID, h.Rule, h.RuleVersion, h.Phase, h.Subject, h.BlockSubject = detectors.KindStatistics, id, "r", 3, "", "", ""
	h.First = traffic.Time(1_700_000_040_000_000 + int64(n)*60_000_000)
	h.Count, h.Trial = 10, &detectors.Trial{Of: of, Reached: 12, RefusedAt: refusedAt}
	if len(refusedAt) > 0 {
		h.Trial.Refused, h.Trial.RefusedGood = refusedAt[0], 1
		h.Trial.Limits = detectors.LimitLadder(60)[:len(refusedAt)]
	}
	return h
}

// Parts of a minute add up, whoever gave them and however often; versions and kinds stand apart.
func TestMinutesOfARuleAddUp(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	parts := []detectors.Hit{
		minuteOf(0, "a", detectors.KindHit, 5, 3, 0), minuteOf(0, "b", detectors.KindHit), minuteOf(0, "c", detectors.KindHit, 7, 1, 1),
		minuteOf(0, "d", detectors.KindCandidate, 2, 2, 2), minuteOf(1, "e", detectors.KindHit),
	}
	parts[4].AtLeast = true
	for range 3 {
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		b.record(t, history.Live, parts...)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.rule_minutes"); n != 5 {
		t.Errorf("%d rows of 5 parts", n)
	}
	for query, want := range map[string]int64{
		"count(*)":           3,
		"sum(events)":        50,
		"max(reached)":       36,
		"max(refused)":       12,
		"max(refused_good)":  2,
		"max(refused_at[1])": 12,
		"max(refused_at[2])": 4,
		"min(limits[2])":     79,
		"count(*) FILTER (WHERE at_least AND minute = (SELECT max(minute) FROM weir.rule_minutes))": 1, "count(*) FILTER (WHERE at_least)": 1,
		"count(*) FILTER (WHERE kind = 'candidate' AND refused_at = '{2,2,2}')": 1,
		"count(*) FILTER (WHERE limits = '{}' AND refused_at = '{}')":           1,
	} {
		if got := b.Number(t, "SELECT ("+query+")::bigint FROM weir.rule_minutes_v"); got != want {
			t.Errorf("%s is %d, want %d", query, got, want)
		}
	}
}

// A running count raises the row that is there, in whichever table, and opens none.
func TestRunningCountsRaiseRowsOnly(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hit, candidate, dated, datedCandidate := hitNumber(1), hitNumber(2), hitNumber(4), hitNumber(5)
	candidate.Kind, datedCandidate.Kind = detectors.KindCandidate, detectors.KindCandidate
	dated.Opened, datedCandidate.Opened = dated.First, datedCandidate.First
	all := []detectors.Hit{hit, candidate, dated, datedCandidate}
	b.record(t, history.Live, all...)
	var told []detectors.Hit
	for n, from := range append(all, hitNumber(3)) {
		from.Kind, from.Phase = detectors.KindRunning, detectors.PhaseUpdate
		from.Count, from.Peak, from.Last, from.Users, from.Devices, from.Good, from.Refused = 7000+int64(n), 6000, from.Last+1, 40, 30, detectors.KnownGood, 6500
		less := from
		less.Count, less.Peak, less.Last, less.Good, less.Refused = 1, 1, 0, detectors.NotGood, 2
		told = append(told, from, less)
	}
	b.record(t, history.Live, told...)
	b.record(t, history.Live, told[1], told[3], told[5])
	b.record(t, "replay/monday", told...)
	if n := b.Number(t, "SELECT (SELECT count(*) FROM weir.hits_v) + (SELECT count(*) FROM weir.hits_beside_v)"); n != 4 {
		t.Errorf("%d rows, wanted those of the four hits", n)
	}
	for view, events := range map[string][]int64{"hits_v": {7000, 7002}, "hits_beside_v": {7001, 7003}} {
		if n := b.Number(t, "SELECT count(*) FROM weir."+view+` WHERE events = ANY($1) AND peak = 6000 AND users = 40 AND devices = 30
				AND refused = 6500 AND known_good = 2 AND phase = 'open'`, events); n != 2 {
			t.Errorf("%d rows of %s are raised to %v events, want 2", n, view, events)
		}
	}
}
