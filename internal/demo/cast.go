package demo

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Kind is what a simulated client does.
type Kind string

// The ordinary viewers, none of whom ever goes over a limit.
const (
	KindExact     Kind = "exact"     // takes exactly `limit` guest tokens in the whole run
	KindEdge      Kind = "edge"      // takes `limit` tokens at once, again as soon as they have left the window
	KindRetry     Kind = "retry"     // tries again after an error of the API; the two together are `limit`
	KindBrowser   Kind = "browser"   // leafs through the catalog
	KindOffice    Kind = "office"    // one of many behind one address, who together stay exactly at its limits
	KindNeighbour Kind = "neighbour" // shares an abuser's address or device, but not both
)

// The abusers.
const (
	KindRotating  Kind = "rotating"  // one device, another address of its /64 each time
	KindSlow      Kind = "slow"      // one token after the other, just too many, whatever the answer
	KindStuffer   Kind = "stuffer"   // sign-ins by the dozen
	KindScraper   Kind = "scraper"   // reads the catalog as fast as it can
	KindReturning Kind = "returning" // when refused, waits as long as it is told to, and starts again
)

// Abuses reports whether clients of the kind go over limits.
func (k Kind) Abuses() bool {
	switch k {
	case KindRotating, KindSlow, KindStuffer, KindScraper, KindReturning:
		return true
	}
	return false
}

// The plans that a client may have.
const (
	planPaid = "paid"
	planFree = "free"
)

// plan is what clients of the kind have paid for: those who are at home or in the office do pay, abusers and their neighbours do not.
func (k Kind) plan() string {
	if k.Abuses() || k == KindNeighbour {
		return planFree
	}
	return planPaid
}

// Client is one simulated client.
type Client struct {
	Name    string
	Kind    Kind
	Network netip.Prefix // its requests come from here; a single address unless the kind is rotating
	Device  string
	// Barely: it sends exactly one request too many, and nothing more until its block must hold. What it is then told
	// depends on that one request, so a limit that is off by one shows.
	Barely bool
}

// probes reports whether the client asks again at once when it has gone over, so that the time of its first refusal says
// when the block began.
func (c *Client) probes() bool { return c.Kind.Abuses() && c.Kind != KindSlow && !c.Barely }

// caster makes clients whose addresses and devices nobody else has.
type caster struct {
	rng  *rand.Rand
	tag  string
	used map[netip.Prefix]bool
	out  []Client
}

// Cast lists the clients that Run will simulate: the same for the same options.
func (o Options) Cast() []Client {
	o = o.withDefaults()
	c := caster{rng: rand.New(rand.NewPCG(o.Seed, o.Round)), tag: o.tag(), used: map[netip.Prefix]bool{}}
	for i := range o.Abusers {
		for _, kind := range []Kind{KindRotating, KindSlow, KindStuffer, KindScraper, KindReturning} {
			barely := kind == KindReturning || i%2 == 1 && (kind == KindStuffer || kind == KindScraper)
			c.abuser(kind, barely)
		}
	}
	viewers := []Kind{KindExact, KindEdge, KindRetry, KindBrowser}
	for i := range o.Viewers {
		c.add(viewers[i%len(viewers)], c.home(), "")
	}
	office := c.v4()
	for range o.Office {
		c.add(KindOffice, office, "")
	}
	return c.out
}

// abuser adds one with its neighbours.
func (c *caster) abuser(kind Kind, barely bool) {
	at := len(c.out)
	defer func() { c.out[at].Barely = barely }()
	switch kind {
	case KindRotating:
		network := c.v6()
		device := c.add(kind, network, "")
		// The network beside it, and the very same device: which is not vouched for by the network it is in.
		beside := c.beside(network)
		c.add(KindNeighbour, single(beside), device)
		c.add(KindNeighbour, single(network.Addr().Next()), "")
	case KindSlow, KindReturning:
		home := c.home()
		c.add(kind, home, "")
		c.add(KindNeighbour, home, "")
	default:
		c.add(kind, c.home(), "")
	}
}

func (c *caster) add(kind Kind, network netip.Prefix, device string) string {
	n := len(c.out)
	if device == "" {
		device = fmt.Sprintf("%s-%d-%s", kind, n, c.tag)
	}
	c.out = append(c.out, Client{Name: fmt.Sprintf("%s-%d", kind, n), Kind: kind, Network: network, Device: device})
	return device
}

// home is one address of either family.
func (c *caster) home() netip.Prefix {
	if c.rng.IntN(3) == 0 {
		return single(c.v6().Addr().Next())
	}
	return c.v4()
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// v4 is an address of 198.18.0.0/15, which is set aside for tests.
func (c *caster) v4() netip.Prefix {
	for {
		n := c.rng.Uint32()
		p := single(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)}))
		if c.take(p) {
			return p
		}
	}
}

// v6 is a network of 2001:db8::/32, which is set aside for documentation.
func (c *caster) v6() netip.Prefix {
	for {
		n := c.rng.Uint32()
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 64)
		if c.take(p) {
			return p
		}
	}
}

// beside is the network that differs in the last bit only, or another one should that be taken.
func (c *caster) beside(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	b[7] ^= 1
	if q := netip.PrefixFrom(netip.AddrFrom16(b), 64); c.take(q) {
		return q.Addr().Next()
	}
	return c.v6().Addr().Next()
}

func (c *caster) take(p netip.Prefix) bool {
	if c.used[p] {
		return false
	}
	c.used[p] = true
	return true
}
