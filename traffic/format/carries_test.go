package format

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func TestCarries(t *testing.T) {
	for _, test := range []struct {
		format, name string
		fields       map[string]string
		want         bool
	}{
		{Combined, "plan", nil, false}, {Combined, "attrs", nil, false}, {Combined, "headers", nil, false}, {Combined, "host", nil, false},
		{Combined, "status", nil, true}, {Combined, "user_agent", nil, true}, {Combined, "latency_ms", nil, false},
		{Weir, "plan", nil, true}, {Protobuf, "attrs", nil, true}, {JSON, "plan", nil, true}, {HAProxy, "plan", nil, true}, {Nginx, "attrs", nil, true},
		{Envoy, "plan", nil, false}, {Envoy, "plan", map[string]string{"plan": "tier"}, true}, {Envoy, "route", nil, true}, {Caddy, "route", nil, false},
		{Caddy, "headers", nil, true}, {Traefik, "attrs", nil, false}, {ECS, "device", nil, true},
	} {
		if got := Carries(test.format, test.fields, test.name); got != test.want {
			t.Errorf("%s %s by %v: got %v", test.format, test.name, test.fields, got)
		}
	}
}

// What a line of access log fills is what Carries says of combined.
func TestCarriesCombined(t *testing.T) {
	d, err := NewDecoder(Combined, nil, DefaultMaxEventBytes)
	if err != nil {
		t.Fatal(err)
	}
	var r traffic.Request
	if err := d.Decode([]byte(`203.0.113.9 - bob [21/Nov/2026:05:06:07 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl"`), &r); err != nil {
		t.Fatal(err)
	}
	filled := map[string]bool{
		"id": r.ID != "", "ip": r.IP != "", "device": r.Device != "", "user": r.User != "", "method": r.Method != "", "host": r.Host != "", "path": r.Path != "",
		"route": r.Route != "", "status": r.Status != 0, "user_agent": r.UserAgent != "", "latency_ms": r.LatencyUS != 0, "bytes": r.Bytes != 0,
		"plan": r.Plan != "", "attrs": r.Attrs != nil, "headers": len(r.Headers) > 0, "gateway": r.Gateway != "",
	}
	for name, want := range filled {
		if got := Carries(Combined, nil, name); got != want || !slices.Contains(memberNames[:], name) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestAttrValue(t *testing.T) {
	attrs := []byte(`{"a": {"b.c": [1, 2]}, "t": "x\u00e9", "n": null, "y": true, "f": false, "w": 70e-1, "d": -0.5, "big": 1e400, "huge": 123456789012345678901234567890}`)
	for _, test := range []struct {
		names []string
		want  AttrKind
	}{
		{[]string{"a"}, AttrComposite}, {[]string{"a", "b.c"}, AttrComposite}, {[]string{"a", "b", "c"}, AttrMissing}, {[]string{"t"}, AttrText},
		{[]string{"n"}, AttrNull}, {[]string{"y"}, AttrTrue}, {[]string{"f"}, AttrFalse}, {[]string{"w"}, AttrWhole}, {[]string{"d"}, AttrDecimal},
		{[]string{"big"}, AttrDecimal}, {[]string{"huge"}, AttrDecimal}, {[]string{"none"}, AttrMissing}, {nil, AttrComposite}, {[]string{"t", "x"}, AttrMissing},
	} {
		if got := AttrPathOf(test.names...).Value(attrs); got.Kind != test.want {
			t.Errorf("%v: got %+v, want %v", test.names, got, test.want)
		}
	}
	if got := AttrPathOf("w").Value(attrs); got.Whole != 7 {
		t.Errorf("got %+v", got)
	}
	if got := AttrPathOf("t").Value(attrs); got.Text != "xé" {
		t.Errorf("got %+v", got)
	}
	if got := AttrPathOf("a", "b.c").Value(attrs); string(got.JSON) != "[1, 2]" {
		t.Errorf("got %+v", got)
	}
	for _, none := range []string{"", "  ", "{", `{"a"`, `{"a":`, `{"a": "`, `{"a": [`, `{"a": -}`} {
		if got := AttrPathOf("a").Value([]byte(none)); got.Kind != AttrMissing {
			t.Errorf("%q: got %+v", none, got)
		}
	}
}
