package traffic

import (
	"net/netip"
	"strings"
)

// parseClient reads an address as gateways and proxies write it: bare, with a port (`192.0.2.1:5678`, `[::1]:80`), in
// brackets, in double quotes, with a zone. IPv4-mapped IPv6 becomes IPv4, the zone is dropped: both name the same client.
func parseClient(s string) (netip.Addr, bool) {
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

func isPort(s string) bool { return s != "" && len(s) <= 5 && digitRun(s) == len(s) }

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
