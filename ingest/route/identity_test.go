package route

import (
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestIdentitiesByRecordFormat: from ReadingRecordFormat on, ROUTE reads identities as the gate does; before, as routers
// of builds that may route the same chunk.
func TestIdentitiesByRecordFormat(t *testing.T) {
	const line = `{"remote_addr":"192.0.2.1","remote_user":"victim","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201",` +
		`"http_x_user_id":"attacker","http_x_api_key":"k1, k2","http_x_device_id":"tv\u0001","http_cookie":"sid=; sid=s"}`
	for format, want := range map[int]traffic.Identity{
		rules.ReadingRecordFormat - 1: {User: "victim", APIKey: "k1, k2", Device: "tv\x01", Session: "s"},
		detectors.RecordFormat:        {User: "attacker", Device: "tv\ufffd"},
	} {
		r := watchRouting()
		r.RecordFormat, r.Format.Name = format, traffic.FormatNginx
		r.Identity.User.Vouched, r.Identity.APIKey.Vouched, r.Identity.Session = true, true, traffic.FieldSource{Cookie: "sid"}
		version, err := compile(r, routedOptions(true))
		if err != nil {
			t.Fatal(err)
		}
		reader := eventRouter{live: true, targets: newTargeter([]byte("x"), 4)}
		got := reader.read(version, &traffic.Message{Value: []byte(line)}, traffic.BeforeTime)
		if got.fate == FateDead {
			t.Fatalf("%s: %s", got.reason, got.detail)
		}
		id := got.identity
		id.IP = want.IP
		if id != want {
			t.Errorf("record format %d: got %+v, want %+v", format, id, want)
		}
		repeated := got.missing[traffic.FieldAPIKey] == traffic.MissingRepeated
		if repeated != (format >= rules.ReadingRecordFormat) {
			t.Errorf("record format %d: the api key is %v", format, got.missing[traffic.FieldAPIKey])
		}
	}
}
