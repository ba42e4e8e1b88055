package detectors_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// crush is a partition with a small budget, and what came out of it.
type crush struct {
	t            testing.TB
	p            *detectors.Partition
	budget       int64
	at           traffic.Time
	offset       int64
	open, closed int
}

func newCrush(t testing.TB, budget int64, versions ...rules.Version) *crush {
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Budget: budget})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: versions}))
	return &crush{t: t, p: p, budget: budget, at: origin}
}

// send folds an event of an address under one rule.
func (c *crush) send(rule int, ip uint32, device string) []detectors.Hit {
	c.at++
	k := detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Version: 1, Rules: []int{rule}, Offset: c.offset, Prev: c.offset - 1,
		Time: c.at, Progress: c.at, Sample: bytes.Repeat([]byte{'x'}, 500),
	}
	k.Identity.IP = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, ip)))
	k.Identity.Device = device
	c.offset++
	hits, err := c.p.Fold(c.at, &k, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range hits {
		switch hits[i].Phase {
		case detectors.PhaseOpen:
			c.open++
		case detectors.PhaseClosed:
			c.closed++
		}
	}
	if c.p.Bytes() > c.budget {
		c.t.Fatalf("%d bytes, the budget is %d", c.p.Bytes(), c.budget)
	}
	return hits
}

// An episode is charged with its samples, and given back when it ends.
func TestEpisodesAreCharged(t *testing.T) {
	c := newCrush(t, 1<<20, rule(1, time.Second, 0))
	c.send(0, 1, "")
	plain := c.p.Bytes()
	c.send(0, 1, "")
	if grown := c.p.Bytes() - plain; grown < 1000 {
		t.Errorf("an episode with a sample of 500 bytes is charged %d bytes", grown)
	}
	c.at += 10 * second
	c.send(0, 2, "")
	if got := c.p.Bytes(); c.closed != 1 || got > 2*plain {
		t.Errorf("%d bytes after the episode, %d before it", got, plain)
	}
}

// Offenders have three quarters of the budget: they are not pushed out by what is not over, and their own flood leaves room
// for others to be seen.
func TestOffendersTakeThreeQuarters(t *testing.T) {
	strict, lax := rule(0, 24*time.Hour, time.Minute), rule(10, 24*time.Hour, time.Minute)
	strict.ID, lax.ID = "strict", "lax"
	c := newCrush(t, 1<<20, strict, lax)
	for i := range uint32(500) { // less than three quarters
		c.send(0, 0xc0000000+i, "")
	}
	for i := range uint32(100_000) {
		c.send(1, 0x0a000000+i, "")
	}
	if c.open != 500 || c.closed > 0 {
		t.Errorf("%d of %d offenders were pushed out by keys of one event", c.closed, c.open)
	}
	for i := range uint32(20_000) {
		c.send(0, 0xd0000000+i, "")
	}
	held := c.open - c.closed
	if others := c.p.Keys() - held; held < 400 || others < 2000 {
		t.Errorf("in a flood of offenders %d of them are held, and %d others", held, others)
	}
}

// Offenders that hold less than three quarters of the budget are spared also when nearly all keys are theirs.
func TestOffendersAreSparedThoughMostKeysAreTheirs(t *testing.T) {
	strict, wide := rule(0, 24*time.Hour, time.Minute), rule(120, 24*time.Hour, time.Minute)
	strict.ID, wide.ID = "strict", "wide"
	wide.Count.Distinct = &traffic.KeyField{Field: traffic.FieldDevice}
	c := newCrush(t, 1<<20, strict, wide)
	for i := range uint32(520) {
		c.send(0, 0xc0000000+i, "")
	}
	most := 0
	for i := range uint32(600) {
		for device := range 119 {
			c.send(1, 0x0a000000+i, fmt.Sprint(device))
		}
		most = max(most, c.p.Keys()-c.open)
	}
	if most > 170 {
		t.Fatalf("up to %d keys beside %d offenders: too few of the keys are offenders", most, c.open)
	}
	if c.p.Counts().Evicted[detectors.EvictedNear] < 300 || c.closed > 0 {
		t.Errorf("%d of %d offenders were evicted, and %v in all", c.closed, c.open, c.p.Counts().Evicted)
	}
}

// Whatever is evicted, and however often who was comes back: nobody is over who was not, and no window counts more than what
// came.
func TestEvictionInventsNoEvents(t *testing.T) {
	var gone [detectors.NumEvictions]int64
	hits := 0
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		fixed, sliding := rule(limit, 10*time.Second, time.Second), rule(limit, 10*time.Second, time.Second)
		fixed.ID, fixed.Algorithm = "fixed", rules.AlgorithmFixed
		c := newCrush(t, rapid.SampledFrom([]int64{2 << 10, 8 << 10}).Draw(rt, "budget"), sliding, fixed)
		keys := rapid.SampledFrom([]uint64{5, 60, 400}).Draw(rt, "keys")
		seed := rapid.Uint64().Draw(rt, "seed")
		came := map[[2]uint32][]traffic.Time{}
		for range rapid.IntRange(1, 3000).Draw(rt, "events") {
			seed = seed*6364136223846793005 + 1442695040888963407
			r, ip := uint32(seed>>60&1), uint32(seed>>20%keys)
			if seed>>50%4 == 0 {
				ip %= 4 // a few come often
			}
			c.at += traffic.Time(seed >> 40 % 20_000)
			out := c.send(int(r), ip, "")
			came[[2]uint32{r, ip}] = append(came[[2]uint32{r, ip}], c.at)
			for i := range out {
				if out[i].Phase != detectors.PhaseOpen {
					continue
				}
				hits++
				from := c.at - 10*second + 1
				if r == 1 {
					from = c.at - c.at%(10*second)
				}
				times := came[[2]uint32{r, ip}]
				first, _ := slices.BinarySearch(times, from)
				if truly := len(times) - first; truly <= limit || out[i].Peak > truly {
					rt.Fatalf("rule %d: %d events in the window, the limit is %d, the hit tells %d", r, truly, limit, out[i].Peak)
				}
			}
		}
		for what, n := range c.p.Counts().Evicted {
			gone[what] += n
		}
	})
	if slices.Contains(gone[:], 0) || hits == 0 {
		t.Errorf("evicted %v, %d hits: the test does not try all", gone, hits)
	}
}

// A key that is evicted and comes back has lost where its window began. A burst that its windows would have held apart makes it
// over in none.
func TestAWindowAfterAnEvictionIsUnsure(t *testing.T) {
	for _, count := range []rules.Count{{}, {Distinct: &traffic.KeyField{Field: traffic.FieldDevice}}} {
		v := rule(2, time.Minute, time.Minute)
		v.Algorithm, v.Count = rules.AlgorithmFirstSeen, count
		c := newCrush(t, 1<<20, v)
		visit := func(at traffic.Time, device string) int {
			c.at = origin + at*second
			open := c.open
			c.send(0, 0xc0000201, device)
			return c.open - open
		}
		visit(0, "a")
		held := c.p.Keys()
		for i := range uint32(300_000) { // its window is not remembered any more, nor that it was there
			c.send(0, 0x0a000000+i, "x")
		}
		if c.p.Counts().Evicted[detectors.EvictedSingle] < 200_000 || held != 1 {
			t.Fatalf("evicted %v: too few for the key to be among them", c.p.Counts().Evicted)
		}
		// In order of time: 0 and 50 in a window from 0, 70 and 75 in one from 70.
		if n := visit(50, "b") + visit(70, "c") + visit(75, "d") + visit(200, "e"); n > 0 {
			t.Errorf("%s: three in a window that is none are over a limit of 2", count)
		}
		// After a pause of a window all is known again, and told when nothing can come before it.
		if n := visit(300, "a") + visit(301, "b") + visit(302, "c"); n != 0 {
			t.Errorf("%s: told of before it is certain", count)
		}
		if n := visit(361, "d"); n != 1 {
			t.Errorf("%s: %d hits after a pause, want 1", count, n)
		}
	}
}
