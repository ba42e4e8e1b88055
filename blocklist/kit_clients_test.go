package blocklist

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// client is one whose block lies on a certain master.
type client struct {
	id      traffic.Identity
	subject traffic.Subject
}

// clientsOn finds n clients of a net whose blocks lie on the master at an address. Where countedOn is given, their address is
// counted on the master there.
func (s *stage) clientsOn(net string, n int, address, countedOn string) []client {
	s.t.Helper()
	var found []client
	for at := netip.MustParseAddr(net); len(found) < n; at = at.Next() {
		who := "ip=" + at.String() + "%2F32"
		c := client{traffic.Identity{IP: at, Device: "tv-7"}, traffic.Subject(who + "&device=tv-7")}
		on := s.masterOf(s.keys.Block(c.subject, floodRule))
		counted := s.masterOf(s.keys.Crowd(traffic.Subject(who), floodRule, 1))
		if on == address && (countedOn == "" || counted == countedOn) {
			found = append(found, c)
		}
	}
	return found
}

// raising is a hit of each client.
func (s *stage) raising(phase detectors.Phase, clients ...client) []traffic.Message {
	var hits []detectors.Hit
	for _, c := range clients {
		hits = append(hits, s.hit(func(h *detectors.Hit) {
			h.ID, h.Phase, h.Subject, h.BlockSubject = fmt.Sprintf("%032x", c.id.IP.As4()), phase, c.subject, c.subject
		}))
	}
	return s.messages(hits...)
}

func (s *stage) releasing(c client) []traffic.Message {
	s.t.Helper()
	h, err := NewRelease(c.subject, floodRule, "ops", "false alarm", s.clock.now())
	if err != nil {
		s.t.Fatal(err)
	}
	return s.messages(h)
}

// spread puts records into three partitions.
func spread(batches ...[]traffic.Message) []traffic.Message {
	var all []traffic.Message
	for _, b := range batches {
		for _, m := range b {
			m.Partition = int(m.Offset % 3)
			all = append(all, m)
		}
	}
	return all
}

func eventuallyIs(t testing.TB, what string, r finder, s *stage, c client, want bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(c.id, "POST", "/v1/guest-tokens", s.clock.now()); held != want {
			return fmt.Errorf("%s: held is %v, want %v", what, held, want)
		}
		return nil
	})
}

// goneFromRedis waits until a tombstone stands, and no block.
func (s *stage) goneFromRedis(c client) {
	s.t.Helper()
	testbed.Eventually(s.t, 20*time.Second, func() error {
		b, tomb, err := s.store.Get(s.t.Context(), c.subject, floodRule)
		if err == nil && (b != nil || tomb == nil) {
			err = fmt.Errorf("block %+v, tombstone %+v", b, tomb)
		}
		return err
	})
}

// blocksWithTheNextUpdate applies updates of an episode until it is in Redis and told.
func (s *stage) blocksWithTheNextUpdate(c client) {
	s.t.Helper()
	begin := s.log.len()
	testbed.Eventually(s.t, 20*time.Second, func() error {
		s.applyMessages(s.raising(detectors.PhaseUpdate, c))
		if got := s.log.decided(begin); got["written "]+got["extended "] == 0 {
			return fmt.Errorf("decisions: %v", got)
		}
		return nil
	})
	if b, _, err := s.store.Get(s.t.Context(), c.subject, floodRule); err != nil || b == nil {
		s.t.Errorf("block %+v, %v", b, err)
	}
}
