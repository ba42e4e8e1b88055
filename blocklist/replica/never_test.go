package replica

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
)

// TestEntriesAreHeldAtGates: a block that stands holds nobody whose address somebody has entered, from the moment that
// gates are told, at a gate that starts later, too, until the entry ends or is removed; older entries that are told
// late change nothing.
func TestEntriesAreHeldAtGates(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.PublishModes()
		if got := s.Decide(s.Hit()); fmt.Sprint(got) != "[written]" {
			t.Fatalf("decided %v", got)
		}
		r := newReplica(t, s)
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		office := netip.MustParsePrefix("192.0.2.0/24")
		tell := func(revision int64, until time.Duration, want bool) {
			t.Helper()
			entries := blocklist.NeverEntries{Revision: revision, Entries: []blocklist.NeverEntry{{Prefix: office}}}
			switch {
			case until < 0:
				entries.Entries = nil
			case until > 0:
				entries.Entries[0].Until = s.Clock.Now().Add(until)
			}
			if news, err := s.Store.SyncNever(t.Context(), s.Clock.Now(), entries); err != nil || news != want {
				t.Fatalf("revision %d: news %v, %v, want %v", revision, news, err, want)
			}
		}
		tell(7, time.Hour, true)
		blocktest.EventuallyHeld(t, r, s.Clock, false)
		tell(7, -1, false)
		tell(6, -1, false)
		listed, err := s.Store.List(t.Context(), s.Clock.Now(), blocklist.Filter{})
		if err != nil || len(listed.Items) != 1 || listed.Items[0].InForce {
			t.Errorf("listed as in force: %+v, %v", listed.Items, err)
		}
		late := newReplica(t, s)
		blocktest.EventuallyHeld(t, late, s.Clock, false)
		tell(8, -1, true)
		blocktest.EventuallyHeld(t, r, s.Clock, true)
	})
}

// TestAnEntryEnds: nobody has to be told.
func TestAnEntryEnds(t *testing.T) {
	clock := &blocktest.Clock{}
	clock.Stop()
	list := blocklist.NewNeverList([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, clock.Now)
	a, b, configured := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.1"),
		netip.MustParseAddr("198.51.100.1")
	list.Set(blocklist.NeverEntries{Revision: 1, Entries: []blocklist.NeverEntry{
		{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Until: clock.Now().Add(time.Minute)},
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Until: clock.Now().Add(time.Hour)},
		{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Until: clock.Now()}, {},
	}})
	holds := func() string {
		n := list.Now()
		return fmt.Sprint(n.HoldsAddr(a), n.HoldsAddr(b), n.HoldsAddr(configured),
			n.HoldsAddr(netip.MustParseAddr("10.0.0.1")))
	}
	for _, want := range []string{"true true true false", "false true true false", "false false true false"} {
		if got := holds(); got != want {
			t.Errorf("held %s, want %s", got, want)
		}
		clock.Add(59 * time.Minute)
	}
	list.Set(blocklist.NeverEntries{Revision: 1,
		Entries: []blocklist.NeverEntry{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}})
	if got := holds(); got != "false false true false" {
		t.Errorf("told again what is known, it holds %s", got)
	}
}
