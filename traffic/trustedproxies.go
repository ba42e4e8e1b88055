package traffic

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// TrustedProxies says which proxies in front of the gateway are believed when they name, in X-Forwarded-For, the client that
// they heard from: proxies with an address in Prefixes or, where there are none, the Hops nearest ones, whatever their
// addresses. The zero value believes nobody. Written, it is a list of prefixes and addresses, or a number.
type TrustedProxies struct {
	Hops     int
	Prefixes []netip.Prefix
}

var (
	_ encoding.TextMarshaler   = TrustedProxies{}
	_ encoding.TextUnmarshaler = (*TrustedProxies)(nil)
	_ json.Marshaler           = TrustedProxies{}
	_ json.Unmarshaler         = (*TrustedProxies)(nil)
)

// The bounds: more than any chain of one's own proxies, and than anybody's list of them.
const (
	maxTrustedHops     = 32
	maxTrustedPrefixes = 256
)

const trustedProxiesAllowed = "a list of prefixes and addresses, like 10.0.0.0/8 or 192.0.2.7, or a number from 0 to 32"

// String is the text that UnmarshalText reads: 2, or 10.0.0.0/8,192.0.2.7/32.
func (p TrustedProxies) String() string {
	if len(p.Prefixes) == 0 {
		return strconv.Itoa(p.Hops)
	}
	parts := make([]string, len(p.Prefixes))
	for i, prefix := range p.Prefixes {
		parts[i] = prefix.String()
	}
	return strings.Join(parts, ",")
}

// MarshalText writes p as String does.
func (p TrustedProxies) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a number, or prefixes and addresses joined by commas. No text is no proxy.
func (p *TrustedProxies) UnmarshalText(text []byte) error {
	return p.SetList(strings.Split(string(text), ","))
}

// SetList reads the elements of a list. One that is a number must stand alone.
func (p *TrustedProxies) SetList(parts []string) error {
	var read TrustedProxies
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if n, err := strconv.Atoi(part); err == nil && len(parts) == 1 {
			read.Hops = n
			continue
		}
		if part == "" && len(parts) == 1 {
			continue
		}
		prefix, err := parseTrusted(part)
		if err != nil {
			return err
		}
		read.Prefixes = append(read.Prefixes, prefix)
	}
	if err := read.validate(); err != nil {
		return err
	}
	*p = read
	return nil
}

// MarshalJSON writes a number, or a list of texts. The number is what builds that know no prefixes have written.
func (p TrustedProxies) MarshalJSON() ([]byte, error) {
	if len(p.Prefixes) == 0 {
		return json.Marshal(p.Hops)
	}
	return json.Marshal(p.Prefixes)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *TrustedProxies) UnmarshalJSON(b []byte) error {
	var hops int
	if json.Unmarshal(b, &hops) == nil {
		*p = TrustedProxies{Hops: hops}
		return nil
	}
	var parts []string
	if err := json.Unmarshal(b, &parts); err != nil {
		return fmt.Errorf("trusted_proxies: got %s; allowed: %s", Quote(b), trustedProxiesAllowed)
	}
	return p.SetList(parts)
}

// parseTrusted reads a prefix, or an address as the prefix that holds it alone. IPv4 in IPv6 becomes IPv4, as the
// addresses do that it is compared with.
func parseTrusted(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if a, bare := netip.ParseAddr(text); bare == nil && a.Zone() == "" {
		prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("got %s; allowed: %s", Quote(text), trustedProxiesAllowed)
	}
	if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}

// validate says what is wrong with p. A prefix of all addresses is a mistake: whom it believes, anybody can be.
func (p *TrustedProxies) validate() error {
	switch {
	case p.Hops < 0 || p.Hops > maxTrustedHops:
		return fmt.Errorf("got %d; allowed: %s", p.Hops, trustedProxiesAllowed)
	case p.Hops > 0 && len(p.Prefixes) > 0:
		return errors.New("got a number and prefixes; allowed: one of them")
	case len(p.Prefixes) > maxTrustedPrefixes:
		return fmt.Errorf("got %d prefixes; allowed: up to %d", len(p.Prefixes), maxTrustedPrefixes)
	}
	for _, prefix := range p.Prefixes {
		if !prefix.IsValid() || prefix.Bits() == 0 {
			return fmt.Errorf("got %s, which is everybody; allowed: the prefixes of your own proxies", prefix)
		}
	}
	return nil
}

// Equal reports whether p and q believe the same proxies in the same words.
func (p TrustedProxies) Equal(q TrustedProxies) bool {
	return p.Hops == q.Hops && slices.Equal(p.Prefixes, q.Prefixes)
}

// trusts reports whether a is one of the proxies. Few installations have more than a handful of prefixes.
func (p *TrustedProxies) trusts(a netip.Addr) bool {
	for i := range p.Prefixes {
		if p.Prefixes[i].Contains(a) {
			return true
		}
	}
	return false
}
