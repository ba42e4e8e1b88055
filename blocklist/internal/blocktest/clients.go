package blocktest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// client is one whose block lies on a certain master.
type client struct {
	id      traffic.Identity
	Subject traffic.Subject
}

// ClientsOn finds n clients of a net whose blocks lie on the master at an address. Where countedOn is given, their address is
// counted on the master there.
func (s *Stage) ClientsOn(net string, n int, address, countedOn string) []client {
	s.T.Helper()
	var found []client
	for at := netip.MustParseAddr(net); len(found) < n; at = at.Next() {
		who := "ip=" + at.String() + "%2F32"
		c := client{traffic.Identity{IP: at, Device: "tv-7"}, traffic.Subject(who + "&device=tv-7")}
		on := s.MasterOf(s.Keys.Block(c.Subject, FloodRule))
		counted := s.MasterOf(s.Keys.Crowd(traffic.Subject(who), FloodRule, 1))
		if on == address && (countedOn == "" || counted == countedOn) {
			found = append(found, c)
		}
	}
	return found
}

// Raising is a hit of each client.
func (s *Stage) Raising(phase detectors.Phase, clients ...client) []traffic.Message {
	var hits []detectors.Hit
	for _, c := range clients {
		hits = append(hits, s.Hit(func(h *detectors.Hit) {
			h.ID, h.Phase, h.Subject, h.BlockSubject = fmt.Sprintf("%032x", c.id.IP.As4()), phase, c.Subject, c.Subject
		}))
	}
	return s.Messages(hits...)
}

// Releasing is an operator's release of c's block.
func (s *Stage) Releasing(c client) []traffic.Message {
	s.T.Helper()
	h, err := blocklist.NewRelease(c.Subject, FloodRule, "ops", "false alarm", s.Clock.Now())
	if err != nil {
		s.T.Fatal(err)
	}
	return s.Messages(h)
}

// Spread puts records into three partitions.
func Spread(batches ...[]traffic.Message) []traffic.Message {
	var all []traffic.Message
	for _, b := range batches {
		for _, m := range b {
			m.Partition = int(m.Offset % 3)
			all = append(all, m)
		}
	}
	return all
}

// EventuallyIs waits until r holds c, or does not.
func EventuallyIs(t testing.TB, what string, r Finder, s *Stage, c client, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(c.id, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); held != want {
			return fmt.Errorf("%s: held is %v, want %v", what, held, want)
		}
		return nil
	})
}

// GoneFromRedis waits until a tombstone stands, and no block.
func (s *Stage) GoneFromRedis(c client) {
	s.T.Helper()
	testbed.Eventually(s.T, 20*time.Second, func() error {
		b, tomb, err := s.Store.Get(s.T.Context(), c.Subject, FloodRule)
		if err == nil && (b != nil || tomb == nil) {
			err = fmt.Errorf("block %+v, tombstone %+v", b, tomb)
		}
		return err
	})
}

// BlocksWithTheNextUpdate applies updates of an episode until it is in Redis and told.
func (s *Stage) BlocksWithTheNextUpdate(c client) {
	s.T.Helper()
	begin := s.Log.Len()
	testbed.Eventually(s.T, 20*time.Second, func() error {
		// A master that was away, or saw the others away, answers that the cluster is down before it serves again.
		if err := s.Apply(s.T.Context(), s.Raising(detectors.PhaseUpdate, c)); err != nil {
			return err
		}
		if got := s.Log.Decided(begin); got["written "]+got["extended "] == 0 {
			return fmt.Errorf("decisions: %v", got)
		}
		return nil
	})
	testbed.Eventually(s.T, 20*time.Second, func() error {
		b, _, err := s.Store.Get(s.T.Context(), c.Subject, FloodRule)
		if err == nil && b == nil {
			s.T.Fatal("it was decided that it is blocked, and it is not")
		}
		return err
	})
}
