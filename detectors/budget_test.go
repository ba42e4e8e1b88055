package detectors_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Attackers hide among a flood of keys that each come once, many times what the budget holds. They must be found, and the
// budget kept. `go test` floods with 400,000 keys against a budget that holds fewer keys than come between two events of an
// attacker; WEIR_FLOOD_KEYS=50000000 is the run of docs/performance.md, with a thousand attackers and the default budget.
func TestAttackersAreFoundInAFlood(t *testing.T) {
	keys, attackers, budget := 400_000, 100, int64(512<<10)
	if v := os.Getenv("WEIR_FLOOD_KEYS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		keys, attackers, budget = n, 1000, detectors.DefaultBudget
	}
	for _, a := range []rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmFixed, rules.AlgorithmLeakyBucket} {
		t.Run(string(a), func(t *testing.T) { flood(t, a, keys, attackers, budget) })
	}
}

func flood(t *testing.T, a rules.Algorithm, keys, attackers int, budget int64) {
	const limit = 10
	const window = 10 * time.Minute
	v := rule(limit, window, time.Minute)
	v.Algorithm = a
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: budget})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{v}}))
	// The whole flood lasts one window, and each attacker sends three times his limit in that time, all at an even pace.
	every := keys / (attackers * 3 * limit)
	total := keys + keys/every
	found := map[traffic.Subject]bool{}
	var hits []detectors.Hit
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Generation: 1, Version: 1, Rules: []int{0}, Prev: detectors.NoOffset}
	begin := origin - origin%traffic.Time(window.Microseconds())
	var peak uint64
	for i, fresh, turn := 0, 0, 0; i < total; i++ {
		var ip [4]byte
		if i%(every+1) == every {
			binary.BigEndian.PutUint32(ip[:], 0xc0000000+uint32(turn%attackers))
			turn++
		} else {
			binary.BigEndian.PutUint32(ip[:], 0x0a000000+uint32(fresh))
			fresh++
		}
		k.Identity.IP = netip.AddrFrom4(ip)
		k.Offset, k.Prev = int64(i), int64(i)-1
		k.Time = begin + traffic.Time(int64(i)*int64(window/time.Microsecond)/int64(total))
		k.Progress = k.Time
		var err error
		if hits, err = p.Fold(k.Time, &k, hits[:0]); err != nil {
			t.Fatal(err)
		}
		for j := range hits {
			if hits[j].Phase == detectors.PhaseOpen {
				found[hits[j].Subject] = true
			}
		}
		if p.Bytes() > budget {
			t.Fatalf("%d bytes after %d events, the budget is %d", p.Bytes(), i, budget)
		}
		if i%(total/20) == 0 {
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapAlloc)
		}
	}
	evicted := p.Counts().Evicted
	t.Logf("%d of %d attackers among %d keys in %d MiB; heap at most %d MiB; evicted %v", len(found), attackers, keys, budget>>20, peak>>20, evicted)
	if len(found) < attackers*999/1000 || len(found) > attackers {
		t.Errorf("%d of %d attackers found", len(found), attackers)
	}
	if evicted[detectors.EvictedSingle] < int64(keys)/2 {
		t.Errorf("evicted %v: the flood fitted, and proves nothing", evicted)
	}
	if limit := uint64(budget) + 24<<20; peak > limit {
		t.Errorf("%d bytes of heap, allowed: %d", peak, limit)
	}
}
