package loopback_test

import (
	"testing"

	"github.com/weirhq/weir/internal/loopback"
)

func TestHost(t *testing.T) {
	for host, here := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.8.9.10": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "grafana": false, "localhost.example.com": false, "10.0.0.1": false, "0.0.0.0": false, "::": false,
		"127.0.0.1.nip.io": false, "127.1": false, "0x7f000001": false,
	} {
		if got := loopback.Host(host); got != here {
			t.Errorf("%q: got %v; allowed: %v", host, got, here)
		}
	}
}
