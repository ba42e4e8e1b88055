package blocklist

import (
	"net/netip"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// NeverBlock is the list of addresses that no block may hold: the configured prefixes in every key that contains one of
// their addresses, and addresses that are nobody's in particular (loopback, private, carrier NAT, link-local, unspecified)
// where the address is all of the key. It holds where blocks are written and again where they are read.
type NeverBlock struct {
	configured []netip.Prefix
	special    []netip.Prefix
}

// NewNeverBlock makes the list from configured prefixes, such as those of one's own proxies and health checks.
func NewNeverBlock(configured []netip.Prefix) NeverBlock {
	n := NeverBlock{special: []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("100.64.0.0/10"), // RFC 6598: between a carrier's NAT and its customers, and inside clusters and meshes
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("::/127"), // unspecified and loopback
		netip.MustParsePrefix("fc00::/7"),
		netip.MustParsePrefix("fe80::/10"),
	}}
	for _, p := range configured {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		n.configured = append(n.configured, p.Masked())
	}
	return n
}

// Holds reports whether subject must never be blocked. A subject that is none is held too.
func (n *NeverBlock) Holds(subject traffic.Subject) bool {
	p, err := ParseSubject(subject)
	return err != nil || n.HoldsParsed(&p)
}

// HoldsParsed is Holds of a subject that has been parsed.
func (n *NeverBlock) HoldsParsed(p *ParsedSubject) bool {
	if !p.Prefix.IsValid() {
		return false
	}
	return slices.ContainsFunc(n.configured, p.Prefix.Overlaps) || p.bareIP() && slices.ContainsFunc(n.special, p.Prefix.Overlaps)
}

// Configured are the prefixes that the list was made from.
func (n *NeverBlock) Configured() []netip.Prefix { return slices.Clone(n.configured) }

// Entry is what of the list holds subject; special says that it is one of the addresses that are nobody's in
// particular. held is false where nothing does.
func (n *NeverBlock) Entry(subject traffic.Subject) (entry netip.Prefix, special, held bool) {
	p, err := ParseSubject(subject)
	if err != nil || !p.Prefix.IsValid() {
		return netip.Prefix{}, false, false
	}
	if i := slices.IndexFunc(n.configured, p.Prefix.Overlaps); i >= 0 {
		return n.configured[i], false, true
	}
	if i := slices.IndexFunc(n.special, p.Prefix.Overlaps); i >= 0 && p.bareIP() {
		return n.special[i], true, true
	}
	return netip.Prefix{}, false, false
}

// HoldsAddr reports whether a request from a may never be refused: a is in one of the configured prefixes.
func (n *NeverBlock) HoldsAddr(a netip.Addr) bool {
	for _, p := range n.configured {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
