package route

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestARespelledPathIsRoutedAsTheGateReadsIt holds that a client is counted however it spells a path, in each notation that
// a log may have it in, from the record format on whose routers all read paths so; before, that it is routed as they do.
func TestARespelledPathIsRoutedAsTheGateReadsIt(t *testing.T) {
	lines := map[string]string{
		traffic.FormatWeir:     `{"v":1,"time":"2027-01-15T08:00:00Z","ip":"192.0.2.1","method":"POST","path":"%s","status":201}`,
		traffic.FormatNginx:    `{"msec":"1800000000.1","remote_addr":"192.0.2.1","request_method":"POST","request_uri":"%s","status":"201"}`,
		"nginx's request line": `{"msec":"1800000000.1","remote_addr":"192.0.2.1","request":"POST %s HTTP/1.1","status":"201"}`,
		traffic.FormatCaddy:    `{"ts":1800000000.1,"request":{"remote_ip":"192.0.2.1","method":"POST","uri":"%s"},"status":201}`,
		traffic.FormatTraefik:  `{"StartUTC":"2027-01-15T08:00:00Z","ClientAddr":"192.0.2.1:5","RequestMethod":"POST","RequestPath":"%s","DownstreamStatus":201}`,
		traffic.FormatEnvoy:    `{"start_time":"2027-01-15T08:00:00Z","downstream_remote_address":"192.0.2.1:5","method":"POST","path":"%s","response_code":201}`,
		traffic.FormatHAProxy:  `{"time":"1800000000100","ip":"192.0.2.1","method":"POST","path":"%s","status":201}`,
		traffic.FormatECS:      `{"@timestamp":"2027-01-15T08:00:00Z","source":{"ip":"192.0.2.1"},"http":{"request":{"method":"POST"},"response":{"status_code":201}},"url":{"original":"%s"}}`,
		traffic.FormatCombined: `192.0.2.1 - - [15/Jan/2027:08:00:00 +0000] "POST %s HTTP/1.1" 201 5`,
	}
	for name, line := range lines {
		for _, path := range []string{
			"/v1/guest-tokens", "//v1/guest-tokens", "/v1/%67uest-tokens", "/v1/x/../guest-tokens", "/v1/guest-tokens#", "/v1/guest-tokens;a",
			"http://api.example.com/v1/guest-tokens", "http://api.example.com/v1/guest-tokens?a#b",
			"http://api.example.com%2fv1/guest-tokens", "v1/guest-tokens#://api.example.com/a",
		} {
			format := name
			text := fmt.Sprintf(line, path)
			if name == "nginx's request line" {
				format = traffic.FormatNginx
			}
			for record := detectors.OldestRecordFormat; record <= detectors.RecordFormat; record++ {
				opt := routedOptions(true)
				routing := watchRouting()
				routing.RecordFormat, routing.Format.Name = record, format
				routing.Rules[0].Match = rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
				routing.Rules = routing.Rules[:1]
				v := compiled(t, opt, routing)
				r := eventRouter{live: opt.Live, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
				got := r.read(v, &traffic.Message{Appended: noon + 1, Value: []byte(text)}, 1)
				plain := r.request.Path == "/v1/guest-tokens"
				if want := plain || record >= rules.ReadingRecordFormat; (got.fate == FateRouted) != want || got.fate == FateDead {
					t.Errorf("%s, record format %d, %s: fate %d (%s), want routed: %v", name, record, path, got.fate, got.detail, want)
				}
			}
		}
	}
}
