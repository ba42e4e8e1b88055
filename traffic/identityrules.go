package traffic

import (
	"errors"
	"fmt"
	"strings"
)

// The prefix lengths that make one source unless the identity map says otherwise.
const (
	DefaultV4 = 32
	DefaultV6 = 64
)

// Prefixes is the prefix lengths of s, with the defaults for those that are 0.
func (s *IPSource) Prefixes() (v4, v6 uint8) {
	v4, v6 = s.V4, s.V6
	if v4 == 0 {
		v4 = DefaultV4
	}
	if v6 == 0 {
		v6 = DefaultV6
	}
	return v4, v6
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
