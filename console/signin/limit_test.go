package signin

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A bucket that is kept as the time at which it is full is one that is kept as a number of tokens.
func TestLimiterIsATokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		each, all := rate{burst: 3, every: 2 * time.Second}, rate{burst: 5, every: time.Second}
		l := newLimiter(func() time.Time { return now }, each, all)
		levels := map[int]float64{-1: 5, 0: 3, 1: 3, 2: 3}
		most := map[int]float64{-1: 5, 0: 3, 1: 3, 2: 3}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			passed := rapid.IntRange(0, 4).Draw(t, "seconds")
			now = now.Add(time.Duration(passed) * time.Second)
			for i := range levels {
				gained := float64(passed)
				if i >= 0 {
					gained /= 2
				}
				levels[i] = min(most[i], levels[i]+gained)
			}
			who := rapid.IntRange(0, 2).Draw(t, "client")
			address := netip.AddrFrom4([4]byte{192, 0, 2, byte(who)})
			if exhausted := l.exhausted(address) > 0; exhausted != (levels[who] < 1) {
				t.Fatalf("client %d has %g, exhausted %v", who, levels[who], exhausted)
			}
			taken := l.charge(address) == 0
			if taken != (levels[who] >= 1 && levels[-1] >= 1) {
				t.Fatalf("client %d has %g of %g, taken %v", who, levels[who], levels[-1], taken)
			}
			if taken {
				levels[who]--
				levels[-1]--
			}
		}
	})
}

func TestLimiterForgetsWhoTriedLeastRecently(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLimiter(func() time.Time { return now }, rate{burst: 1, every: time.Hour}, rate{burst: 1 << 30, every: time.Second})
	address := func(i int) netip.Addr {
		var raw [16]byte
		binary.BigEndian.PutUint64(raw[:], uint64(i)+1<<61)
		raw[15] = byte(i)
		return netip.AddrFrom16(raw)
	}
	for i := range maxClients + 50 {
		l.charge(address(i))
	}
	if len(l.clients) != maxClients || l.recent.Len() != maxClients {
		t.Errorf("%d clients are remembered, %d in order", len(l.clients), l.recent.Len())
	}
	if l.exhausted(address(49)) > 0 || l.exhausted(address(50)) == 0 {
		t.Error("others than the oldest were forgotten")
	}
	neighbour := address(60).Next()
	if l.exhausted(neighbour) == 0 {
		t.Error("the addresses of an IPv6 network are several clients")
	}
	if l.exhausted(netip.Addr{}) > 0 || l.charge(netip.Addr{}) > 0 || l.charge(netip.Addr{}) == 0 {
		t.Error("clients without an address are not one client")
	}
}
