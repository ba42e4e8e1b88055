package loadgen

import (
	"encoding/binary"
	"math"
	"net/netip"
	"sort"
	"strconv"
)

// People get addresses that belong to nobody: of RFC 2544 (benchmarks) and RFC 3849 (documentation). Neither is on the
// never-block list, so what an installation would do to real clients it does to these.
const (
	ipv4Net = "198.18.0.0/15"
	ipv6Net = "2001:db8::/32"
)

// person is one client: a viewer or, after all viewers, an abuser.
type person struct {
	ip                    netip.Addr
	device, user, session string
}

// people derives every client from the seed and a number, and keeps none.
type people struct {
	s      *Settings
	prefix string // of devices, users and sessions: it names the load
	origin uint64
}

func newPeople(s *Settings) people {
	return people{s: s, prefix: identityPrefix(s.Seed), origin: mixed(s.Seed, 0)}
}

// identityPrefix begins every device, user, session and request id of a load.
func identityPrefix(seed uint64) string { return "load-" + strconv.FormatUint(seed, 16) + "-" }

func (p *people) person(n int) person {
	number := strconv.Itoa(n)
	h := mixed(p.s.Seed, uint64(n)+1)
	who := person{device: p.prefix + "d" + number, session: p.prefix + "s" + number}
	if !chosen(h>>32, p.s.SignedOut) {
		who.user = p.prefix + "u" + number
	}
	if chosen(h&math.MaxUint32, p.s.IPv6) {
		who.ip = p.ipv6(n, h|1)
	} else {
		who.ip = p.ipv4(n)
	}
	return who
}

// ipv4 gives neighbours neighbouring addresses, beginning where the seed says. There are 131,072: more clients share.
func (p *people) ipv4(n int) netip.Addr {
	a := netip.MustParsePrefix(ipv4Net).Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|uint32((p.origin+uint64(n))&0x1ffff))
	return netip.AddrFrom4(a)
}

// ipv6 is an address of client n's own /64.
func (p *people) ipv6(n int, host uint64) netip.Addr {
	a := netip.MustParsePrefix(ipv6Net).Addr().As16()
	binary.BigEndian.PutUint32(a[4:8], uint32(p.origin>>32)+uint32(n))
	binary.BigEndian.PutUint64(a[8:], host)
	return netip.AddrFrom16(a)
}

// chosen says yes to a share of all 32-bit numbers.
func chosen(h uint64, share float64) bool { return float64(h) < float64(share*(1<<32)) }

// mixed is SplitMix64's output function over seed and n (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, 2014).
func mixed(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// chooser picks among n things by their weights.
type chooser struct{ sums []uint64 }

// newZipf weighs thing k of n by 1/(k+1)^skew.
func newZipf(n int, skew float64) chooser {
	return newChooser(n, func(k int) uint64 { return uint64(1e12/math.Pow(float64(k+1), skew)) + 1 })
}

func newChooser(n int, weight func(k int) uint64) chooser {
	c := chooser{sums: make([]uint64, n)}
	sum := uint64(0)
	for k := range c.sums {
		sum += weight(k)
		c.sums[k] = sum
	}
	return c
}

func (c chooser) total() uint64 { return c.sums[len(c.sums)-1] }

// at is the thing that a number below total falls on.
func (c chooser) at(r uint64) int {
	return sort.Search(len(c.sums), func(k int) bool { return c.sums[k] > r })
}
