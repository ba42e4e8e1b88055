package traffic

import (
	"net/netip"
	"strings"
)

// chain reads a forwarded chain from the right, entry by entry. Its lines are one list. Empty entries count: whoever reads
// past them would be led to what the client itself wrote on the left. Only a chain with nothing in it at all has no entry.
type chain struct {
	lines []string // not yet begun, from the left
	rest  string   // of the line at hand
	more  bool     // rest holds an entry, which may be empty
}

func newChain(lines []string) chain {
	if len(lines) == 1 {
		return chainOf(lines[0])
	}
	return chain{lines: lines}
}

// chainOf is the chain in one line.
func chainOf(line string) chain { return chain{rest: line, more: trimBlank(line) != ""} }

// next is the entry to the left of the one before.
func (c *chain) next() (string, bool) {
	if !c.more {
		last := len(c.lines) - 1
		if last < 0 {
			return "", false
		}
		c.rest, c.lines, c.more = c.lines[last], c.lines[:last], true
	}
	comma := strings.LastIndexByte(c.rest, ',')
	entry := c.rest[comma+1:]
	if c.more = comma >= 0; c.more {
		c.rest = c.rest[:comma]
	}
	return entry, true
}

// client finds whose request it is: peer's, the connection's other end, or who the trusted proxies say they heard from.
// What lies further left in the chain is the client's own word and is never looked at.
func (p *TrustedProxies) client(peer string, entries chain) (netip.Addr, MissingReason) {
	switch {
	case len(p.Prefixes) > 0:
		return p.firstStranger(peer, entries)
	case p.Hops == 0:
		if peer == "" {
			return netip.Addr{}, MissingAbsent
		}
		return readClient(peer)
	}
	entry := ""
	for range p.Hops {
		var ok bool
		if entry, ok = entries.next(); !ok {
			return netip.Addr{}, MissingShort
		}
	}
	return readClient(entry)
}

// firstStranger walks the chain from the peer to the left, for as long as each address is that of a trusted proxy, whose
// word on the next one is therefore believed. An entry that is no address is nobody's, and what lies beyond it nobody
// vouches for. A chain of nothing but trusted proxies names no client: to take one of them would be to count, and block,
// all of its clients as one wherever a proxy fails to write the header.
func (p *TrustedProxies) firstStranger(peer string, entries chain) (netip.Addr, MissingReason) {
	if peer == "" {
		return netip.Addr{}, MissingAbsent
	}
	text := peer
	for {
		a, why := readClient(text)
		if why != Present || !p.hold(a) {
			return a, why
		}
		var ok bool
		if text, ok = entries.next(); !ok {
			return netip.Addr{}, MissingShort
		}
	}
}

// readClient reads the address of a client.
func readClient(text string) (netip.Addr, MissingReason) {
	a, ok := parseClient(text)
	switch {
	case !ok:
		return netip.Addr{}, MissingBadIP
	case a.IsUnspecified():
		// A gateway that does not know its client may write so. As an address it would make one source of all of them.
		return netip.Addr{}, MissingUnspecified
	}
	return a, Present
}
