package format_test

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// One event of a gateway becomes a request, the request an identity, and the identity the subject of a rule's key.
func ExampleNewDecoder() {
	decoder, err := format.NewDecoder(format.Weir, nil, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	var r traffic.Request
	event := []byte(`{"v":1,"time":"2026-11-21T05:06:07Z","ip":"203.0.113.9","device":"tv-7","method":"POST","path":"/v1/guest-tokens?src=tv","status":201}`)
	if err := decoder.Decode(event, &r); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Time, r.Method, r.Path, r.Status)

	identity := traffic.DefaultIdentityMap()
	identifier, err := identity.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	id, missing := identifier.FromEvent(&r)
	fmt.Println(id.IP, id.Device, missing[traffic.FieldUser])

	subject, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}})
	fmt.Println(subject)
	// Output:
	// 2026-11-21T05:06:07.000000Z POST /v1/guest-tokens 201
	// 203.0.113.9 tv-7 absent
	// ip=203.0.113.9%2F32&device=tv-7
}

// Somebody else's JSON is read by a map from event fields to its members; dots lead into objects.
func ExampleParseFieldMap() {
	fieldMap, err := format.ParseFieldMap("time=ts,ip=client.addr,status=code")
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder, err := format.NewDecoder(format.JSON, fieldMap, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	var r traffic.Request
	err = decoder.Decode([]byte(`{"ts":1795237567,"client":{"addr":"203.0.113.9"},"code":"429","host":"api.example.com"}`), &r)
	fmt.Println(r.Time, r.IP, r.Status, r.Host, err)
	// Output:
	// 2026-11-21T05:06:07.000000Z 203.0.113.9 429 api.example.com <nil>
}

// What is no event is refused with a reason that can be counted, and the place.
func ExampleDecodeError() {
	decoder, err := format.NewDecoder(format.Weir, nil, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = decoder.Decode([]byte(`{"v":1,"status":"many"}`), new(traffic.Request))
	if refused := (*format.DecodeError)(nil); errors.As(err, &refused) {
		fmt.Println(refused.Reason, refused.Column)
		fmt.Println(refused.Detail)
	}
	// Output:
	// wrong_type 17
	// column 17: status: got a string, allowed: a whole number
}

// A gateway written in Go appends its events to a buffer of its own.
func ExampleAppendEvent() {
	r := traffic.Request{IP: "203.0.113.9", Method: "GET", Path: "/a", Status: 200, LatencyUS: 12_500}
	fmt.Printf("%s\n", format.AppendEvent(nil, &r))
	// Output:
	// {"v":1,"ip":"203.0.113.9","method":"GET","path":"/a","status":200,"latency_ms":12.5}
}
