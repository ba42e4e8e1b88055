package traffic

import (
	"net/netip"
	"strings"
)

// addressHeader is how a proxy tells the client's address.
type addressHeader uint8

const (
	addressXForwardedFor addressHeader = iota // the chain of X-Forwarded-For
	addressForwarded                          // the chain of Forwarded, RFC 7239
	addressSingle                             // another header, which holds one address
)

// kind is how the header tells an address.
func (s *IPSource) kind() addressHeader {
	switch {
	case s.forwarded():
		return addressXForwardedFor
	case strings.EqualFold(s.Header, "Forwarded"):
		return addressForwarded
	}
	return addressSingle
}

// told is the client's address by lines of the address header, which has another name than X-Forwarded-For. It is believed
// where the peer is a trusted proxy; else the peer is the client.
func (x *Identifier) told(peer string, lines []string) (netip.Addr, MissingReason) {
	if len(lines) == 1 && trimBlank(lines[0]) == "" {
		lines = nil
	}
	if x.addressKind == addressForwarded {
		return x.trusted.firstUntrusted(peer, chain{lines: lines, elements: true})
	}
	if peer == "" {
		return netip.Addr{}, MissingAbsent
	}
	a, why := readClient(peer)
	switch {
	case why != Present || !x.trusted.trusts(a):
		return a, why
	case len(lines) == 0:
		return netip.Addr{}, MissingShort
	case len(lines) > 1 || strings.IndexByte(lines[0], ',') >= 0:
		return netip.Addr{}, MissingRepeated // which of them the proxy wrote is anybody's guess
	}
	if a, why = readClient(lines[0]); why == Present && x.trusted.trusts(a) {
		return netip.Addr{}, MissingShort // a proxy that heard from a proxy, and does not tell whose request that was
	}
	return a, why
}

// reportedLines are the lines of a header that an event reports, in order. room is memory for them.
func reportedLines(headers []Header, name string, room []string) []string {
	for i := range headers {
		if strings.EqualFold(headers[i].Name, name) {
			room = append(room, headers[i].Value)
		}
	}
	return room
}

// lastDelimiter is the index of the last delimiter in s outside of quoted strings, -1 without one. It reads from the right: what
// a proxy has appended is well formed, and what stands left of it, quotes that are never closed among it, is the client's own
// text, which cannot change how the proxy's is read.
func lastDelimiter(s string, delimiter byte) int {
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case delimiter:
			return i
		case '"':
			open := openingQuote(s, i)
			if open < 0 {
				return -1
			}
			i = open
		}
	}
	return -1
}

// openingQuote is the index of the quote that opens the quoted string which ends with the quote at closing: the next one to the
// left that no backslash escapes; -1 without one.
func openingQuote(s string, closing int) int {
	for i := closing - 1; i >= 0; i-- {
		if s[i] != '"' {
			continue
		}
		slashes := 0
		for slashes < i && s[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i -= slashes
	}
	return -1
}

// forwardedFor is the node of an element's parameter for, unquoted; empty where it has none, or more than one.
func forwardedFor(element string) string {
	value, found := "", 0
	for more := true; more; {
		at := lastDelimiter(element, ';')
		pair := element[at+1:]
		if more = at >= 0; more {
			element = element[:at]
		}
		if name, v, ok := strings.Cut(pair, "="); ok && strings.EqualFold(trimBlank(name), "for") {
			value = trimBlank(v)
			found++
		}
	}
	if found != 1 {
		return ""
	}
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' && strings.IndexByte(value, '\\') >= 0 {
		return unescapeQuoted(value[1 : len(value)-1])
	}
	return value // without its quotes once it is read as an address
}

// unescapeQuoted takes the backslashes off quoted pairs (RFC 9110, section 5.6.4).
func unescapeQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
