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
	size := max(1, s.apart(fitting))
	return i/(size*s.times)*size + i%size
}

// apart is how many identities lie between two events of one.
func (s shape) apart(fitting int) int { return int(s.block * float64(fitting)) }

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
	if s.times > floodLimit {
		flooded.Limit = 10 * s.times
	}
	p = detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: budget})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{flooded, attacked}}))
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
	budget, attackers := int64(128<<10), 100
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
	shapes = append(shapes, shape{20, 0, true, rules.AlgorithmSliding}) // of more events than the other rule allows
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

// standing has sources send some events under one rule while another one is flooded, after so many keys of the flood and before
// so many more, and returns how many of 100 sources are still known then: the events that they lack to go over the limit make
// them go over it.
func standing(t *testing.T, stood, flooded rules.Version, events int, s shape, before, after int) (known int) {
	const sources, budget = 200, 256 << 10
	stood.ID, flooded.ID = "stood", "flooded"
	c := newCrush(t, budget, stood, flooded)
	send := func(events int) {
		for range events {
			for i := range uint32(sources) {
				c.send(0, 0xc0000000+i, "")
			}
		}
	}
	flood := func(from, to int) {
		for i := from * s.times; i < to*s.times; i++ {
			c.send(1, 0x0a000000+uint32(s.identity(i, budget/46)), "")
		}
	}
	flood(0, before)
	send(events)
	flood(before, before+after)
	if c.open > 0 {
		t.Fatalf("%d are over", c.open)
	}
	send(stood.Limit + 1 - events)
	return c.open * 100 / sources
}

// A flood of one rule does not push out the keys of another one of which more is known.
func TestFloodOfOneRuleLeavesTheKeysOfOthers(t *testing.T) {
	long := rule(10, 24*time.Hour, time.Minute)
	for _, s := range []shape{{times: 1}, {times: 3}} {
		if found := standing(t, long, long, 10, s, 0, 50_000); found < 99 {
			t.Errorf("%s: %d %% of the sources at the limit of another rule are known", s, found)
		}
	}
	// Keys that come back do not, either, though they are all there is.
	if found := standing(t, long, long, 5, shape{times: 2, block: 1.2}, 0, 10*6800); found < 99 {
		t.Errorf("%d %% of the sources with half their limit are known after a flood that comes back", found)
	}
}

// Where the limit is low, keys near it are spared, though a flood of a rule with a high limit has keys of more events.
func TestKeysNearALowLimitAreSpared(t *testing.T) {
	found := standing(t, rule(3, 24*time.Hour, time.Minute), rule(100, 24*time.Hour, time.Minute), 3, shape{times: 6}, 0, 30_000)
	if found < 99 {
		t.Errorf("%d %% of the sources at the limit are known", found)
	}
}

// Of keys of one event, those that have stood for long have no better lot than those that come: after a budget of others a
// third is there.
func TestKeysOfOneEventAreEvictedByLot(t *testing.T) {
	found := standing(t, rule(2, 24*time.Hour, time.Minute), rule(10, 24*time.Hour, time.Minute), 1, shape{times: 1}, 50_000, 5000)
	if found < 18 || found > 50 {
		t.Errorf("%d %% of the sources of one event are known", found)
	}
}
