package doctor

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// TestDoctorWarnsOfCountedProxies: where proxies are counted, who comes past them is whoever it claims to be.
func TestDoctorWarnsOfCountedProxies(t *testing.T) {
	for value, want := range map[string]Status{"0": OK, "1": Warn, "10.0.0.0/8": OK} {
		e := examined(t, rules.ModeShadow)
		if err := e.routing.Identity.IP.TrustedProxies.UnmarshalText([]byte(value)); err != nil {
			t.Fatal(err)
		}
		found := e.lookAtIdentities(t.Context())
		f := found[len(found)-1]
		if f.Check != "trusted proxies" || f.Status != want || (want == Warn) != strings.Contains(f.Remedy, "identity.ip.trusted_proxies: [") {
			t.Errorf("%s: %+v", value, f)
		}
	}
}

// TestDoctorTellsOfClaimedMembers: a field that nothing but a client's claim is left for says so.
func TestDoctorTellsOfClaimedMembers(t *testing.T) {
	e := examined(t, rules.ModeShadow)
	e.routing.RecordFormat = rules.ReadingRecordFormat
	e.routing.Format.Name, e.routing.Identity.Device.Vouched = format.Nginx, true
	var messages []traffic.Message
	for _, line := range repeat(12, `{"remote_addr":"198.51.100.7","device":"tv","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201"}`) {
		messages = append(messages, traffic.Message{Value: []byte(line), Appended: service.Now()})
	}
	for _, f := range e.judgeSample(messages) {
		if f.Check == "identity device" && f.Status == Fail && strings.Contains(f.Found, "claimed 12") {
			return
		}
	}
	t.Errorf("nothing of it in %+v", e.judgeSample(messages))
}
