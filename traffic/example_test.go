package traffic_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/weirhq/weir/traffic"
)

// A gate and the stream derive the same identity from a request: one sees its headers, the other the event of it.
func ExampleIdentifier() {
	identity := traffic.DefaultIdentityMap() // ip from the connection, device from X-Device-Id, …
	identity.IP.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	identifier, err := identity.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}

	header := http.Header{"X-Device-Id": {"tv-7"}}
	atGate, _ := identifier.FromCarrier(&traffic.Carrier{Peer: "10.0.0.1:4711", Forwarded: []string{"203.0.113.9"}, Header: header})

	event := traffic.Request{IP: "10.0.0.1", Forwarded: "203.0.113.9", Device: "tv-7"}
	inStream, missing := identifier.FromEvent(&event)

	fmt.Println(atGate == inStream, inStream.IP, inStream.Device)
	fmt.Println("user:", missing[traffic.FieldUser])
	// Output:
	// true 203.0.113.9 tv-7
	// user: absent
}

// A subject is whom a rule counts and blocks: the values of its key, as text that no other values have.
func ExampleMakeSubject() {
	id := traffic.Identity{IP: netip.MustParseAddr("203.0.113.9"), User: "ann & bob"}
	key := []traffic.KeyField{{Field: traffic.FieldUser}, {Field: traffic.FieldIP, V4: 24, V6: 48}}

	subject, missing := traffic.MakeSubject(&id, key)
	fmt.Println(subject, missing)

	values, err := subject.Values()
	fmt.Println(values[1].Field, values[1].Value, err)

	key = append(key, traffic.KeyField{Field: traffic.FieldDevice})
	subject, missing = traffic.MakeSubject(&id, key)
	fmt.Println(subject, missing)
	// Output:
	// ip=203.0.113.0%2F24&user=ann%20%26%20bob 0
	// user ann & bob <nil>
	// ip=203.0.113.0%2F24&device&user=ann%20%26%20bob 1
}
