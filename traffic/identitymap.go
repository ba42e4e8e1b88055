package traffic

import (
	"errors"
	"fmt"
	"strings"
)

// IdentityMap says where each identity comes from. It is part of the configuration and of every routing version; event
// adapters and gate compile the same map, so both derive the same Identity from the same request.
type IdentityMap struct {
	IP      IPSource    `json:"ip" yaml:"ip"`
	Device  FieldSource `json:"device" yaml:"device"`
	User    FieldSource `json:"user" yaml:"user"`
	APIKey  FieldSource `json:"api_key" yaml:"api_key"`
	Session FieldSource `json:"session" yaml:"session"`
}

// IPSource says how the client address is found.
type IPSource struct {
	// TrustedProxies is which proxies in front of the gateway append to X-Forwarded-For. None (the default) takes the
	// connection's peer. With prefixes, the peer and then the chain are read from the right, up to the first address that
	// is none of theirs. A number n takes the n-th entry of the chain from the right, whoever wrote it. A chain that ends
	// before leaves the ip missing.
	TrustedProxies TrustedProxies `json:"trusted_proxies" yaml:"trusted_proxies"`
	// Header is where the trusted proxies write the client's address instead of X-Forwarded-For: Forwarded (RFC 7239), which is
	// a chain like that, or any header that holds one address, such as X-Real-IP, CF-Connecting-IP or True-Client-IP. It is
	// believed only where the peer is in a prefix of TrustedProxies. Empty, the default: X-Forwarded-For.
	Header string `json:"header,omitempty" yaml:"header"`
	// V4 and V6 are the prefix lengths that make one source; defaults 32 and 64.
	V4 uint8 `json:"v4" yaml:"v4"`
	V6 uint8 `json:"v6" yaml:"v6"`
	// Claimed marks the address as not vouched for by the gateway. The default, false, trusts the connection.
	Claimed bool `json:"claimed" yaml:"claimed"`
}

// FieldSource says where one identity field is found. In a request at the gate it is Header or Cookie; in an event it
// is the event's own member of that name, else the reported header. A field without any source is always missing.
type FieldSource struct {
	Header  string `json:"header,omitempty" yaml:"header"`
	Cookie  string `json:"cookie,omitempty" yaml:"cookie"`
	Vouched bool   `json:"vouched" yaml:"vouched"` // whether the gateway vouches for it; default false: claimed
	// Commas says that values of the header have commas. Without it, a comma in a vouched header reads as several lines
	// that a gateway has written as one, and the field is missing.
	Commas bool `json:"commas,omitempty" yaml:"commas"`
}

// DefaultIdentityMap takes ip from the connection and the other fields from the event's own members; at a gate they
// come from the X-Device-Id, X-User-Id, X-Api-Key and X-Session-Id headers. All but ip are claimed.
func DefaultIdentityMap() IdentityMap {
	return IdentityMap{
		IP:      IPSource{V4: 32, V6: 64},
		Device:  FieldSource{Header: "X-Device-Id"},
		User:    FieldSource{Header: "X-User-Id"},
		APIKey:  FieldSource{Header: "X-Api-Key"},
		Session: FieldSource{Header: "X-Session-Id"},
	}
}

// Vouched reports whether the gateway vouches for field f.
func (m *IdentityMap) Vouched(f Field) bool {
	switch f {
	case FieldIP:
		return !m.IP.Claimed
	case FieldDevice:
		return m.Device.Vouched
	case FieldUser:
		return m.User.Vouched
	case FieldAPIKey:
		return m.APIKey.Vouched
	case FieldSession:
		return m.Session.Vouched
	}
	return false
}

// Equal reports whether m and o derive the same identities in the same words.
func (m *IdentityMap) Equal(o *IdentityMap) bool {
	return m.IP.TrustedProxies.Equal(o.IP.TrustedProxies) && m.IP.Header == o.IP.Header && m.IP.V4 == o.IP.V4 && m.IP.V6 == o.IP.V6 && m.IP.Claimed == o.IP.Claimed &&
		m.Device == o.Device && m.User == o.User && m.APIKey == o.APIKey && m.Session == o.Session
}

// The prefix lengths that make one source unless the identity map says otherwise.
const (
	DefaultV4 = 32
	DefaultV6 = 64
)

// forwarded reports whether the address is found in X-Forwarded-For.
func (s *IPSource) forwarded() bool {
	return s.Header == "" || strings.EqualFold(s.Header, "X-Forwarded-For")
}

// source is where field f is found; nil for ip.
func (m *IdentityMap) source(f Field) *FieldSource {
	switch f {
	case FieldDevice:
		return &m.Device
	case FieldUser:
		return &m.User
	case FieldAPIKey:
		return &m.APIKey
	case FieldSession:
		return &m.Session
	}
	return nil
}

// Carries reports whether m has a source for field f. A field that it does not carry is missing in every request, so a
// rule keyed on it could never fire.
func (m *IdentityMap) Carries(f Field) bool {
	if f == FieldIP {
		return true
	}
	src := m.source(f)
	return src != nil && (src.Header != "" || src.Cookie != "")
}

// Validate reports everything that is wrong with m, each with its place, what it got and what is allowed.
func (m *IdentityMap) Validate() error {
	var errs []error
	if err := m.IP.TrustedProxies.validate(); err != nil {
		errs = append(errs, fmt.Errorf("identity.ip.trusted_proxies: %w", err))
	}
	switch header := m.IP.Header; {
	case !validToken(header) || strings.EqualFold(header, "Cookie"):
		errs = append(errs, fmt.Errorf("identity.ip.header: got %q, allowed: the name of a header, such as Forwarded or CF-Connecting-IP", header))
	case header != "" && !m.IP.forwarded() && len(m.IP.TrustedProxies.Prefixes) == 0:
		errs = append(errs, fmt.Errorf("identity.ip.header: got %q without prefixes in identity.ip.trusted_proxies, allowed: with the addresses of the proxies that write it, since anybody can send it", header))
	}
	if m.IP.V4 > 32 {
		errs = append(errs, fmt.Errorf("identity.ip.v4: got %d, allowed: 1 to 32, or 0 for the default, %d", m.IP.V4, DefaultV4))
	}
	if m.IP.V6 > 128 {
		errs = append(errs, fmt.Errorf("identity.ip.v6: got %d, allowed: 1 to 128, or 0 for the default, %d", m.IP.V6, DefaultV6))
	}
	for f := FieldDevice; f < NumFields; f++ {
		src := m.source(f)
		if !validToken(src.Header) {
			errs = append(errs, fmt.Errorf("identity.%s.header: got %q, allowed: the name of a header, such as X-Device-Id", f, src.Header))
		} else if strings.EqualFold(src.Header, "Cookie") {
			errs = append(errs, fmt.Errorf("identity.%s.header: got %q, allowed: a header that holds the value alone; for one cookie write cookie: its-name", f, src.Header))
		}
		if !validToken(src.Cookie) {
			errs = append(errs, fmt.Errorf("identity.%s.cookie: got %q, allowed: the name of a cookie", f, src.Cookie))
		}
		if src.Commas && src.Header == "" {
			errs = append(errs, fmt.Errorf("identity.%s.commas: got true for a field without header, allowed: a field with one", f))
		}
		if src.Vouched && !m.Carries(f) {
			errs = append(errs, fmt.Errorf("identity.%s.vouched: got true for a field without header or cookie, allowed: a field with a source", f))
		}
	}
	return errors.Join(errs...)
}

// validToken is true for the empty name too, which means none.
func validToken(name string) bool {
	for i := 0; i < len(name); i++ {
		if !TokenByte(name[i]) {
			return false
		}
	}
	return len(name) <= 128
}
