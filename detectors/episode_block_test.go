package detectors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const onlyIP = "ip=192.0.2.1%2F32"

// from folds an event of a device behind 192.0.2.1, under a version, and gives the hits that it caused.
func (b *bench) from(device string, at traffic.Time, version int64) []detectors.Hit {
	b.t.Helper()
	k := b.event(0, at, "192.0.2.1", version)
	k.Identity.Device = device
	before := len(b.hits)
	b.must(k)
	return b.hits[before:]
}

// narrower makes v's block hold (ip, device), which is narrower than its key.
func narrower(v rules.Version) rules.Version {
	block := *v.Block
	block.Key = []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}}
	v.Block = &block
	return v
}

// A late event puts a later one of another device over the limit. Nobody knows any more which device that was, and the one
// that came late has done nothing: the hit is recorded and blocks nobody, and the next over event names its own device.
func TestLateEventBlocksNoBystander(t *testing.T) {
	b := newBench(t, 1, narrower(rule(2, 10*time.Second, time.Minute)))
	b.from("attacker", origin+5*second, 1)
	b.from("attacker", origin+6*second, 1)
	hits := b.from("bystander", origin+1*second, 1)
	if len(hits) != 1 || hits[0].First != origin+6*second || hits[0].BlockSubject != "" {
		t.Fatalf("hits %+v, want one from second 6 that blocks nobody", hits)
	}
	hits = b.from("attacker", origin+7*second, 1)
	if len(hits) != 1 || hits[0].Phase != detectors.PhaseOpen || hits[0].BlockSubject != onlyIP+"&device=attacker" || hits[0].ID == b.hits[0].ID {
		t.Errorf("hits %+v, want one that opens for the attacker", hits)
	}
}

// Whoever adds a block to a rule, or changes whom it holds, does so because of those that are over it now.
func TestEditedBlockReachesARunningEpisode(t *testing.T) {
	none := rule(2, 10*time.Second, time.Minute)
	none.Block = nil
	address := rule(2, 10*time.Second, time.Minute)
	for name, before := range map[string]rules.Version{"none": none, "ip and device": narrower(address)} {
		t.Run(name, func(t *testing.T) {
			after := address
			after.Number = 2
			b := newBench(t, 1, before, after)
			for i := range 60 {
				b.from("d0", origin+traffic.Time(i)*second, 1)
			}
			hits := b.from("d1", origin+60*second, 2)
			if len(hits) != 1 || hits[0].Phase != detectors.PhaseOpen || hits[0].BlockSubject != onlyIP || hits[0].RuleVersion != 2 {
				t.Fatalf("at the first event of the new version: %+v, want an opening for the address", hits)
			}
			for i := 61; i < 200; i++ {
				for _, h := range b.from(fmt.Sprint("d", i), origin+traffic.Time(i)*second, 2) {
					if h.ID != hits[0].ID || h.Phase != detectors.PhaseUpdate {
						t.Errorf("second %d: %s of %s for %q", i, h.Phase, h.ID, h.BlockSubject)
					}
				}
			}
			b.end()
			if closed := countPhase(b.hits, detectors.PhaseClosed); closed != 2 {
				t.Errorf("%d hits closed, want both", closed)
			}
		})
	}
}

// With a window of more than a day, one late event can open an episode and the one that cuts it. They are two offences:
// each opens, under an id of its own, and each ends.
func TestOneArrivalOpensTwoEpisodes(t *testing.T) {
	v := rule(2, 25*time.Hour, time.Minute)
	v.Algorithm = rules.AlgorithmSlidingLog
	b := newBench(t, 2, v)
	for _, minute := range []traffic.Time{60, 180, 1632} {
		b.must(b.event(0, origin+minute*60*second, "192.0.2.1", 1))
	}
	b.must(b.event(1, origin+150*60*second, "192.0.2.1", 1))
	b.end()
	state := map[string]detectors.Phase{}
	for _, h := range b.hits {
		if (h.Phase == detectors.PhaseOpen) == (state[h.ID] != "") || state[h.ID] == detectors.PhaseClosed {
			t.Errorf("%s of %s after %q", h.Phase, h.ID, state[h.ID])
		}
		state[h.ID] = h.Phase
	}
	if len(state) != 2 {
		t.Errorf("%d episodes, want 2: %v", len(state), state)
	}
	for id, phase := range state {
		if phase != detectors.PhaseClosed {
			t.Errorf("%s ends %s", id, phase)
		}
	}
}

// What retention took from two keyed partitions is two losses.
func TestLossesOfTwoPartitionsAreTwo(t *testing.T) {
	loss := func(keyed int) string {
		p := detectors.NewPartition(detectors.Config{Keyed: keyed, Sources: 1, Generation: 1})
		return p.Rebase(detectors.Unfolded{To: 500, Why: "were deleted"}).ID
	}
	first, again, other := loss(1), loss(1), loss(2)
	if first == other || first != again {
		t.Errorf("ids %s, %s and, of the other partition, %s", first, again, other)
	}
}

// A device that goes quiet is told up to its last over event while others of its address go on: its block's end follows from that, and
// its closing hit comes with theirs, hours later perhaps, when its evidence is too old to act on. Nobody is told more often than once in
// the cooldown.
func TestQuietTupleIsToldWhileOthersGoOn(t *testing.T) {
	v := narrower(rule(0, 10*time.Second, time.Minute))
	v.Cooldown = 10 * time.Second
	b := newBench(t, 1, v)
	type told struct{ at, last traffic.Time }
	all := map[string][]told{}
	for s := traffic.Time(0); s <= 100; s++ {
		device := "goes on"
		if s <= 7 {
			device = "quiet"
		}
		for _, h := range b.from(device, origin+s*second, 1) {
			if h.Phase == detectors.PhaseUpdate {
				at := string(h.BlockSubject)
				all[at] = append(all[at], told{s, (h.Last - origin) / second})
			}
		}
	}
	quiet := all[onlyIP+"&device=quiet"]
	if len(quiet) != 1 || quiet[0] != (told{10, 7}) {
		t.Errorf("the quiet one is told %v, want once, in second 10, up to second 7", quiet)
	}
	on := all[onlyIP+"&device=goes%20on"]
	if len(on) < 8 {
		t.Errorf("the one that goes on is told %v", on)
	}
	for i := range on {
		if on[i].at != on[i].last || i > 0 && on[i].at < on[i-1].at+10 {
			t.Errorf("the one that goes on is told %v", on)
		}
	}
	b.end()
	for _, h := range b.hits {
		if h.Phase == detectors.PhaseClosed && h.BlockSubject == onlyIP+"&device=quiet" && h.Last != origin+7*second {
			t.Errorf("the quiet one closes with %+v", h)
		}
	}
}

// Of two devices that take turns each is told once in the cooldown at most, whosever event it is that tells.
func TestTuplesThatTakeTurnsAreToldOncePerCooldown(t *testing.T) {
	v := narrower(rule(0, 10*time.Second, time.Minute))
	v.Cooldown = 10 * time.Second
	b := newBench(t, 1, v)
	last := map[traffic.Subject]traffic.Time{}
	updates := 0
	for s := traffic.Time(0); s <= 300; s++ {
		device := fmt.Sprint("d", s/7%2) // seven seconds each
		for _, h := range b.from(device, origin+s*second, 1) {
			if before, ok := last[h.BlockSubject]; ok && s < before+10 {
				t.Errorf("%s is told in second %d and %d", h.BlockSubject, before, s)
			}
			last[h.BlockSubject] = s
			updates++
		}
	}
	if len(last) != 2 || updates < 2*300/14 {
		t.Errorf("%d were told, %d times", len(last), updates)
	}
}
