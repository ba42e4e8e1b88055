package blocklist

import (
	"net/netip"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// TestAddressesOfNobodyAreNeverBlockedBare: behind such an address stands anybody, and a gateway that sees no other would
// hold all of its clients at once. Beside a device they tell one from the other.
func TestAddressesOfNobodyAreNeverBlockedBare(t *testing.T) {
	never := NewNeverBlock([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")})
	for subject, want := range map[traffic.Subject]bool{
		"ip=100.64.0.0%2F32": true, "ip=100.100.7.9%2F32": true, "ip=100.127.255.255%2F32": true, "ip=100.0.0.0%2F8": true,
		"ip=100.63.255.255%2F32": false, "ip=100.128.0.0%2F32": false, "ip=100.64.0.1%2F32&device=tv": false,
		"ip=10.1.2.3%2F32": true, "ip=127.0.0.1%2F32": true, "ip=169.254.1.1%2F32": true, "ip=172.31.0.1%2F32": true, "ip=192.168.0.1%2F32": true,
		"ip=0.0.0.0%2F32": true, "ip=%3A%3A1%2F128": true, "ip=fd00%3A%3A%2F64": true, "ip=fe80%3A%3A%2F64": true,
		"ip=203.0.113.9%2F32": false, "ip=198.51.100.9%2F32&device=tv": true, "device=tv": false,
	} {
		if got := never.Holds(subject); got != want {
			t.Errorf("%s: never blocked %v, want %v", subject, got, want)
		}
	}
}
