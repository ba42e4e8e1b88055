package blocklist

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A list says why nobody is refused for a block that stands: the first thing that a gate would find.
func TestUnheld(t *testing.T) {
	s := &Store{}
	s.Except(NewNeverList([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, func() traffic.Time { return 1 }))
	now := traffic.At(time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC))
	blocks := rules.ModeState{Rule: someRule, Mode: rules.ModeBlock, Generation: 2}
	shadow, anew := blocks, blocks
	shadow.Mode, anew.Generation = rules.ModeShadow, 3
	for _, tt := range []struct {
		subject traffic.Subject
		until   time.Duration
		mode    *rules.ModeState
		want    string
	}{
		{"ip=203.0.113.1%2F32", time.Second, &blocks, ""},
		{"ip=198.51.100.1%2F32", time.Second, &blocks, "never blocked"},
		{"ip=10.1.2.3%2F32", time.Second, &blocks, "never blocked"},
		{"ip=10.1.2.3%2F32&device=d", time.Second, &blocks, ""},
		{"ip=203.0.113.1%2F32", 0, &blocks, "has ended"},
		{"ip=203.0.113.1%2F32", time.Second, nil, "no mode"},
		{"ip=203.0.113.1%2F32", time.Second, &shadow, "in mode shadow"},
		{"ip=203.0.113.1%2F32", time.Second, &anew, "promoted anew"},
	} {
		got := s.Unheld(tt.subject, &Block{Until: now.Add(tt.until), Generation: 2}, tt.mode, now)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s, ending in %s, %+v: got %q, want %q", tt.subject, tt.until, tt.mode, got, tt.want)
		}
	}
}
