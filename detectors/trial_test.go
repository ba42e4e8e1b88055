package detectors_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
)

func statistics() detectors.Hit {
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindStatistics, ID: "0123456789abcdef0123456789abcdef", Rule: "login-burst", RuleVersion: 3, Lineage: 2,
		Limit: 60, Count: 900, First: origin, Last: origin + 59*second, Seen: origin + 61*second, Generation: 1, Source: 2, Offset: 3, Keyed: 4,
		Trial: &detectors.Trial{Of: detectors.KindHit, Reached: 1000, Refused: 800, RefusedGood: 1, Limits: []int{60, 79}, RefusedAt: []int64{800, 700}},
	}
}

func running() detectors.Hit {
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindRunning, ID: "0123456789abcdef0123456789abcdef", Rule: "login-burst", RuleVersion: 3, Lineage: 2,
		Phase: detectors.PhaseUpdate, Subject: "ip=192.0.2.1", BlockSubject: "ip=192.0.2.1", Opened: origin, Limit: 60, WindowMS: 60000, Count: 6000, Peak: 5990,
		First: origin, Last: origin + 30*second, Seen: origin + 31*second, Generation: 1, Source: 2, Offset: 3, Keyed: 4, Users: 7, Devices: 1,
		Good: detectors.NotGood, Refused: 5000,
	}
}

func TestHitsOfTheEvidenceRoundTrip(t *testing.T) {
	for _, want := range []detectors.Hit{statistics(), running()} {
		raw := must(detectors.EncodeHit(&want))
		got, err := detectors.DecodeHit(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if again := must(detectors.EncodeHit(&got)); !slices.Equal(again, raw) {
			t.Errorf("%s is read and written as %s", raw, again)
		}
	}
}

// A hit without what record format 6 brought is written as before, member by member.
func TestAHitWithoutEvidenceNamesNone(t *testing.T) {
	h := detectors.Hit{Format: 1, Kind: detectors.KindHit, ID: "x"}
	raw := must(detectors.EncodeHit(&h))
	for _, member := range []string{"opened", "known_good", "refused", "trial"} {
		if strings.Contains(string(raw), member) {
			t.Errorf("%s names %s", raw, member)
		}
	}
}

func TestDamagedTrialsAreRefused(t *testing.T) {
	for name, damage := range map[string]func(h *detectors.Hit){
		"none":         func(h *detectors.Hit) { h.Trial = nil },
		"of near":      func(h *detectors.Hit) { h.Trial.Of = detectors.KindNear },
		"fewer":        func(h *detectors.Hit) { h.Trial.RefusedAt = h.Trial.RefusedAt[:1] },
		"below 0":      func(h *detectors.Hit) { h.Trial.Reached = -1 },
		"rung below 0": func(h *detectors.Hit) { h.Trial.RefusedAt[1] = -1 },
		"descending":   func(h *detectors.Hit) { h.Trial.Limits[1] = 60 },
		"good":         func(h *detectors.Hit) { h.Good = 3 },
	} {
		h := statistics()
		damage(&h)
		raw, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := detectors.DecodeHit(raw); !errors.Is(err, detectors.ErrHit) {
			t.Errorf("%s: got %v for %s, wanted a damaged hit", name, err, raw)
		}
	}
}

func TestLimitLadder(t *testing.T) {
	for _, limit := range []int{0, 1, 2, 5, 60, 128, 1000, rules.MaxLimit - 1, rules.MaxLimit} {
		got := detectors.LimitLadder(limit)
		last := got[len(got)-1]
		if got[0] != limit || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) > 25 {
			t.Errorf("the ladder of %d is %v", limit, got)
		}
		if want := min(1000*max(limit, 1), rules.MaxLimit); last > want || 4*last < 3*want {
			t.Errorf("the ladder of %d ends at %d, wanted about %d", limit, last, want)
		}
	}
	if want, got := []int{60, 79, 106, 142, 189, 253, 337, 450, 600, 798}, detectors.LimitLadder(60)[:10]; !slices.Equal(got, want) {
		t.Errorf("the ladder of 60 begins with %v, wanted %v", got, want)
	}
}

// must is what has been encoded: the encoding of a valid hit does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
