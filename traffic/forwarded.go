package traffic

import (
	"net/netip"
	"strings"
)

// ParseClient reads an address as gateways and proxies write it: bare, with a port (`192.0.2.1:5678`, `[::1]:80`), in
// brackets, in double quotes, with a zone. IPv4-mapped IPv6 becomes IPv4, the zone is dropped: both name the same client.
func ParseClient(s string) (netip.Addr, bool) {
	s = trimBlank(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if s == "" || len(s) > maxAddressText {
		return netip.Addr{}, false
	}
	host, ok := hostOf(s)
	if !ok {
		return netip.Addr{}, false
	}
	if zone := strings.IndexByte(host, '%'); zone >= 0 {
		host = host[:zone] // before parsing, since netip keeps every zone it has met
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// maxAddressText is more than the longest address with brackets, zone and port has.
const maxAddressText = 128

// hostOf cuts a port and brackets off.
func hostOf(s string) (string, bool) {
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 || strings.IndexByte(s[:end], ':') < 0 { // brackets are for IPv6 only
			return "", false
		}
		tail := s[end+1:]
		return s[1:end], tail == "" || tail[0] == ':' && isPort(tail[1:])
	}
	colon := strings.IndexByte(s, ':')
	if colon >= 0 && strings.IndexByte(s[colon+1:], ':') < 0 { // one colon: no IPv6, so it parts host and port
		return s[:colon], isPort(s[colon+1:])
	}
	return s, true
}

func isPort(s string) bool {
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return s != "" && len(s) <= 5
}

// trimBlank cuts spaces and tabs off both ends: HTTP's optional white space, which is no part of a field's value.
func trimBlank(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// chain reads a forwarded chain from the right, entry by entry. Its lines are one list. Empty entries count: whoever reads
// past them would be led to what the client itself wrote on the left. Only a chain with nothing in it at all has no entry.
type chain struct {
	lines    []string // not yet begun, from the left
	rest     string   // of the line at hand
	more     bool     // rest holds an entry, which may be empty
	elements bool     // the entries are elements of RFC 7239
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
	if c.elements {
		comma = lastDelimiter(c.rest, ',')
	}
	entry := c.rest[comma+1:]
	if c.more = comma >= 0; c.more {
		c.rest = c.rest[:comma]
	}
	if c.elements {
		entry = forwardedFor(entry)
	}
	return entry, true
}

// client is the address that a request is counted for: the peer's, at the other end of the connection, or the one that the
// trusted proxies say they heard from. Entries further left in the chain are the client's own word and are never looked at.
func (p *TrustedProxies) client(peer string, entries chain) (netip.Addr, MissingReason) {
	switch {
	case len(p.Prefixes) > 0:
		return p.firstUntrusted(peer, entries)
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

// firstUntrusted walks the chain from the peer to the left, for as long as each address is that of a trusted proxy, whose
// word on the next one is therefore believed. An entry that is no address is nobody's, and what lies beyond it nobody
// vouches for. A chain of nothing but trusted proxies names no client: to take one of them would be to count, and block,
// all of its clients as one wherever a proxy fails to write the header.
func (p *TrustedProxies) firstUntrusted(peer string, entries chain) (netip.Addr, MissingReason) {
	if peer == "" {
		return netip.Addr{}, MissingAbsent
	}
	text := peer
	for {
		a, why := readClient(text)
		if why != Present || !p.trusts(a) {
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
	a, ok := ParseClient(text)
	switch {
	case !ok:
		return netip.Addr{}, MissingBadIP
	case a.IsUnspecified():
		// A gateway that does not know its client may write so. As an address it would make one source of all of them.
		return netip.Addr{}, MissingUnspecified
	}
	return a, Present
}
