package replica

import (
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// moved is a Replica of a modelled Redis that holds one block, both read whole; the test moves its parts by hand.
type moved struct {
	*testing.T
	m *modelRedis
	r *Replica
	f *follower
	h blocklist.Name
}

func newMoved(t *testing.T) *moved {
	m := newModelRedis()
	p := &moved{T: t, m: m, r: newModelReplica(t, m), h: blocklist.Name{Subject: modelSubject(0), Rule: "r1"}}
	p.f = &follower{r: p.r}
	m.setMode(rules.ModeState{Rule: p.h.Rule, Mode: rules.ModeBlock, Generation: 1})
	m.block(p.h, blocklist.NewBlock(p.h.Rule, 1, "1", 1, traffic.Time(0).Add(time.Hour)))
	m.tell()
	p.step()
	p.load()
	p.step()
	p.holds(true, "after it was loaded")
	return p
}

// step lets the follower compare the newest numbers, and read once.
func (p *moved) step() {
	p.Helper()
	p.f.probed = time.Time{}
	if err := p.f.step(p.Context()); err != nil {
		p.Fatal(err)
	}
}

func (p *moved) read() {
	p.Helper()
	if err := p.r.loads.round(p.Context()); err != nil {
		p.Fatal(err)
	}
}

func (p *moved) load() {
	p.Helper()
	p.read()
	p.r.loads.end(p.Context())
}

func (p *moved) holds(want bool, when string) {
	p.Helper()
	if _, got := p.find(); got != want {
		p.Fatalf("%s: held: %v, want %v", when, got, want)
	}
}

func (p *moved) find() (blocklist.Block, bool) {
	return p.r.Find(traffic.Identity{Device: "d0"}, rules.Target{Method: "GET", Path: "/"}, 1)
}

// A Redis that was flushed lacks its marker. What it does not hold is no reason to drop a block before all was put back.
func TestLoadDropsNothingWithoutTheMarker(t *testing.T) {
	p := newMoved(t)
	delete(p.m.keys, p.h)
	p.m.marker = false
	p.r.loads.again(reloadDue)
	for range 3 {
		p.load()
		p.step()
		p.holds(true, "without the marker")
	}
	p.m.marker = true
	p.load()
	p.step()
	p.holds(false, "with the marker, after everything was read")
}

// A node is flushed and filled again while a load is under way: it has read the node empty, and then finds the marker. Only
// the request to load, which the reconciler wrote before the marker, tells that it must not drop what it has not seen; and
// that may stand behind more deltas than one answer has.
func TestLoadDropsNothingBeforeTheDeltasOfThenAreRead(t *testing.T) {
	for _, before := range []int{0, 1, modelCount - 1, modelCount, 2 * modelCount, 10*modelCount + 1} {
		p := newMoved(t)
		delete(p.m.keys, p.h)
		p.m.marker = false
		p.r.loads.again(reloadDue)
		p.read()
		for range before {
			p.m.append(blocklist.StreamReconcile, map[string]any{"op": "of a later build"})
		}
		p.m.reconcile()
		p.r.loads.end(t.Context())
		for range before/modelCount + 2 {
			p.step()
			p.holds(true, "while the follower reads on")
		}
		if !p.r.loads.owes() {
			t.Errorf("with %d deltas before it, the request to load was not read", before)
		}
		p.load()
		p.step()
		p.holds(true, "after the second load")
	}
}
