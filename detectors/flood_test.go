package detectors_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// shape is a flood whose identities come so many times each and then never again, and the slow attackers in it.
type shape struct {
	times     int
	block     float64 // identities between two events of one of the flood, in budgets; 0: its events come together
	other     bool    // the attackers are on another rule than the flood
	algorithm rules.Algorithm
}

func (s shape) String() string {
	where, how := "the same rule", "together"
	if s.other {
		where = "another rule"
	}
	if s.block > 0 {
		how = fmt.Sprintf("%.1f budgets apart", s.block)
	}
	return fmt.Sprintf("%s, %d times %s, attackers on %s", s.algorithm, s.times, how, where)
}

// identity is whom the i-th event of the flood is of, when so many keys fit the budget.
func (s shape) identity(i, fitting int) int {
	size := max(1, int(s.block*float64(fitting)))
	return i/(size*s.times)*size + i%size
}

const (
	floodLimit  = 10
	floodWindow = 10 * time.Minute
)

// play sends the flood, with so many attackers of three times the limit in it, all at an even pace within one window, and returns
// whom it found. Between two events of an attacker come 1.2 times as many identities as the budget holds.
func (s shape) play(t *testing.T, budget int64, attackers int) (found map[traffic.Subject]bool, p *detectors.Partition) {
	flooded, attacked := rule(floodLimit, floodWindow, time.Minute), rule(floodLimit, floodWindow, time.Minute)
	flooded.Algorithm, attacked.Algorithm = s.algorithm, s.algorithm
	flooded.ID, attacked.ID = "flooded", "attacked"
	p = detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: budget})
	p.Learn(&rules.Routing{Number: 1, Rules: []rules.Version{flooded, attacked}})
	fitting := int(budget / 46)
	between := fitting * 12 / 10
	if s.block < 1.2 {
		between *= s.times
	}
	every := between / attackers
	total := attackers * 3 * floodLimit * (every + 1)
	found = map[traffic.Subject]bool{}
	var hits []detectors.Hit
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Generation: 1, Version: 1, Prev: detectors.NoOffset}
	begin := origin - origin%traffic.Time(floodWindow.Microseconds())
	for i, fresh, turn := 0, 0, 0; i < total; i++ {
		var ip [4]byte
		k.Rules = []int{0}
		if i%(every+1) == every {
			binary.BigEndian.PutUint32(ip[:], 0xc0000000+uint32(turn%attackers))
			turn++
			if s.other {
				k.Rules = []int{1}
			}
		} else {
			binary.BigEndian.PutUint32(ip[:], 0x0a000000+uint32(s.identity(fresh, fitting)))
			fresh++
		}
		k.Identity.IP = netip.AddrFrom4(ip)
		k.Offset, k.Prev = int64(i), int64(i)-1
		k.Time = begin + traffic.Time(int64(i)*int64(floodWindow/time.Microsecond)/int64(total))
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
	}
	return found, p
}

// Slow attackers are found in a flood, however often its identities come, and however far apart, on whatever rule.
// WEIR_FLOOD_BUDGET, in MiB, is for docs/performance.md.
func TestSlowAttackersAreFoundInFloodsOfEveryShape(t *testing.T) {
	budget, attackers := int64(256<<10), 100
	if v := os.Getenv("WEIR_FLOOD_BUDGET"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		budget, attackers = int64(n)<<20, 1000
	}
	var shapes []shape
	for _, other := range []bool{false, true} {
		shapes = append(shapes, shape{1, 0, other, rules.AlgorithmSliding})
		for _, times := range []int{2, 3, 6} {
			for _, block := range []float64{0, 0.1, 1.2, 3} {
				if other && (block == 0.1 || block == 3) {
					continue
				}
				shapes = append(shapes, shape{times, block, other, rules.AlgorithmSliding})
			}
		}
	}
	for _, a := range []rules.Algorithm{rules.AlgorithmFixed, rules.AlgorithmLeakyBucket} {
		shapes = append(shapes, shape{3, 0, true, a}, shape{3, 1.2, false, a})
	}
	for _, s := range shapes {
		t.Run(s.String(), func(t *testing.T) {
			found, p := s.play(t, budget, attackers)
			evicted := p.Counts().Evicted
			t.Logf("%d of %d found, evicted %v", len(found), attackers, evicted)
			if len(found) < attackers*99/100 || len(found) > attackers {
				t.Errorf("%d of %d attackers found", len(found), attackers)
			}
			gone := int64(0)
			for _, n := range evicted {
				gone += n
			}
			if gone < 10*budget/46 {
				t.Errorf("evicted %v: the flood fitted, and proves nothing", evicted)
			}
		})
	}
}

// standing has so many sources stand at the limit of one rule, floods another one, and returns how many of the sources the
// next event of each finds over.
func standing(t *testing.T, stood, flooded rules.Version, sources, keys, times int) (found int) {
	stood.ID, flooded.ID = "stood", "flooded"
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: 512 << 10})
	p.Learn(&rules.Routing{Number: 1, Rules: []rules.Version{stood, flooded}})
	at, offset := origin, int64(0)
	send := func(rule int, ip uint32) {
		at++
		k := detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Version: 1, Rules: []int{rule}, Offset: offset, Prev: offset - 1, Time: at, Progress: at,
		}
		k.Identity.IP = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, ip)))
		offset++
		hits, err := p.Fold(at, &k, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range hits {
			if hits[i].Phase == detectors.PhaseOpen && hits[i].Rule == "stood" {
				found++
			}
		}
	}
	for range stood.Limit {
		for i := range sources {
			send(0, 0xc0000000+uint32(i))
		}
	}
	for i := range keys * times {
		send(1, 0x0a000000+uint32(i/times))
	}
	if found > 0 {
		t.Fatalf("%d of those at the limit are taken for over it", found)
	}
	for i := range sources {
		send(0, 0xc0000000+uint32(i))
	}
	return found
}

// A flood of one rule does not push out the keys of another one of which more is known.
func TestFloodOfOneRuleLeavesTheKeysOfOthers(t *testing.T) {
	for _, times := range []int{1, 3} {
		found := standing(t, rule(10, 24*time.Hour, time.Minute), rule(10, 24*time.Hour, time.Minute), 200, 200_000, times)
		if found < 198 {
			t.Errorf("flooded with keys of %d events: %d of 200 sources at the limit of another rule are found over", times, found)
		}
	}
}

// Where the limit is low, keys near it are spared, though a flood of a rule with a high limit has keys of more events.
func TestKeysNearALowLimitAreSpared(t *testing.T) {
	if found := standing(t, rule(3, 24*time.Hour, time.Minute), rule(100, 24*time.Hour, time.Minute), 200, 100_000, 6); found < 198 {
		t.Errorf("%d of 200 sources at the limit are found over", found)
	}
}
