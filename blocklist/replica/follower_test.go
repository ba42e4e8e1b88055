package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// A Redis that tells the newest numbers and is too slow to hand out the entries has lost none: what was not read is read later, and
// nothing is loaded for it.
func TestWhatCouldNotBeReadIsNotMissing(t *testing.T) {
	p := newMoved(t)
	later := blocklist.NewBlock(p.h.Rule, 1, "2", 2, traffic.Time(0).Add(2*time.Hour))
	p.m.block(p.h, later)
	p.m.tell()
	p.m.silent = true
	for range 3 {
		p.f.probed = time.Time{}
		if err := p.f.step(t.Context()); !errors.Is(err, errAway) {
			t.Fatalf("a step without an answer: %v", err)
		}
	}
	p.m.silent = false
	p.step()
	p.step()
	if n := p.r.allReloads(); n != 0 {
		t.Errorf("%v loads of everything", n)
	}
	if got, _ := p.find(); got.Until != later.Until {
		t.Errorf("held until %s, want %s", got.Until, later.Until)
	}
}
