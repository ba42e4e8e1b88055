package traffic

import (
	"net/netip"
	"testing"
)

// Whatever makes two maps differ makes their fingerprints differ, and nothing else does.
func TestFingerprintsDifferWithTheMap(t *testing.T) {
	base := DefaultIdentityMap()
	if again := DefaultIdentityMap(); base.Fingerprint() != again.Fingerprint() || len(base.Fingerprint()) != 16 {
		t.Fatalf("fingerprints %q and %q of one map", base.Fingerprint(), again.Fingerprint())
	}
	// Gates of a build and stages of the next one compare theirs. What a build adds to the map must be left out of its
	// JSON where it is at its default.
	if got := base.Fingerprint(); got != "21601418abc23b78" {
		t.Errorf("the default map has the fingerprint %s", got)
	}
	seen := map[string]string{base.Fingerprint(): "the default"}
	for name, edit := range map[string]func(m *IdentityMap){
		"hops":     func(m *IdentityMap) { m.IP.TrustedProxies.Hops = 1 },
		"two hops": func(m *IdentityMap) { m.IP.TrustedProxies.Hops = 2 },
		"prefixes": func(m *IdentityMap) {
			m.IP.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		},
		"other prefixes": func(m *IdentityMap) {
			m.IP.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9")}
		},
		"ip header": func(m *IdentityMap) { m.IP.Header = "X-Real-IP" },
		"v4":        func(m *IdentityMap) { m.IP.V4 = 24 },
		"v6":        func(m *IdentityMap) { m.IP.V6 = 56 },
		"claimed":   func(m *IdentityMap) { m.IP.Claimed = true },
		"device":    func(m *IdentityMap) { m.Device.Header = "X-Client" },
		"cookie":    func(m *IdentityMap) { m.Device.Cookie = "X-Client" },
		"vouched":   func(m *IdentityMap) { m.User.Vouched = true },
		"key":       func(m *IdentityMap) { m.APIKey.Vouched = true },
		"session":   func(m *IdentityMap) { m.Session.Commas = true },
	} {
		m := DefaultIdentityMap()
		edit(&m)
		print := m.Fingerprint()
		if other, taken := seen[print]; taken || m.Equal(&base) {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[print] = name
	}
}
