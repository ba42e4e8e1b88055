package route

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// sipHash is SipHash-2-4 written from the paper (Aumasson and Bernstein, 2012), beside the library that Target uses.
func sipHash(k0, k1 uint64, m []byte) uint64 {
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	rounds := func(n int) {
		for range n {
			v0 += v1
			v2 += v3
			v1, v3 = bits.RotateLeft64(v1, 13)^v0, bits.RotateLeft64(v3, 16)^v2
			v0 = bits.RotateLeft64(v0, 32)
			v2 += v1
			v0 += v3
			v1, v3 = bits.RotateLeft64(v1, 17)^v2, bits.RotateLeft64(v3, 21)^v0
			v2 = bits.RotateLeft64(v2, 32)
		}
	}
	last := make([]byte, len(m)/8*8+8)
	copy(last, m)
	last[len(last)-1] = byte(len(m))
	for ; len(last) > 0; last = last[8:] {
		w := binary.LittleEndian.Uint64(last)
		v3 ^= w
		rounds(2)
		v0 ^= w
	}
	v2 ^= 0xff
	rounds(4)
	return v0 ^ v1 ^ v2 ^ v3
}

// targetByTheBook computes what Target's doc comment says.
func targetByTheBook(secret string, message string, n int) int {
	key := sha256.Sum256([]byte("weir/target/1\x00" + secret))
	k0, k1 := binary.LittleEndian.Uint64(key[0:]), binary.LittleEndian.Uint64(key[8:])
	return int(sipHash(k0, k1, []byte(message)) % uint64(n))
}

func TestTarget(t *testing.T) {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	ip24 := traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 48}
	device := traffic.KeyField{Field: traffic.FieldDevice}
	tests := []struct {
		name    string
		field   traffic.KeyField
		value   string
		missing bool
		rule    string
		message string
	}{
		{"a value", ip, "192.0.2.1/32", false, "", "\x01ip\x00192.0.2.1/32"},
		{"an empty value is not a missing one", device, "", false, "", "\x01device\x00"},
		{"any bytes", device, "tv\x00\xff&=", false, "", "\x01device\x00tv\x00\xff&="},
		{"missing", device, "ignored", true, "", "\x02device\x00\x00\x00"},
		{"missing address of one prefix", ip, "", true, "", "\x02ip\x00\x20\x40"},
		{"missing address of another", ip24, "", true, "", "\x02ip\x00\x18\x30"},
		{"a rule without a key", traffic.KeyField{}, "", false, "all-logins", "\x00all-logins"},
	}
	for _, tt := range tests {
		for _, n := range []int{1, 2, 64, 1000003} {
			want := targetByTheBook("secret", tt.message, n)
			if got := target([]byte("secret"), tt.field, tt.value, tt.missing, tt.rule, n); got != want {
				t.Errorf("%s, of %d: got %d, want %d", tt.name, n, got, want)
			}
		}
	}
}

// An identity's value gives the partition of that value's text.
func TestTargetOfIdentity(t *testing.T) {
	targets := newTargeter([]byte("secret"), 1000003)
	id := traffic.Identity{IP: netip.MustParseAddr("192.0.2.77"), User: "ann"}
	for _, field := range []traffic.KeyField{{Field: traffic.FieldIP, V4: 24, V6: 48}, {Field: traffic.FieldUser}, {Field: traffic.FieldDevice}} {
		value, present := id.Value(field)
		if got, want := targets.ofIdentity(field, &id), targets.ofValue(field, value, !present); got != want {
			t.Errorf("%v: got %d, want %d", field, got, want)
		}
	}
}

// TestTargetStays holds the numbers themselves: a change of the rule would send running windows to other partitions.
func TestTargetStays(t *testing.T) {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	for value, want := range map[string]int{"192.0.2.1/32": 585087, "2001:db8::/64": 152985} {
		if got := target([]byte("secret"), ip, value, false, "", 1<<20); got != want {
			t.Errorf("%s: got %d, want %d", value, got, want)
		}
	}
}

func TestTargetSpreads(t *testing.T) {
	device := traffic.KeyField{Field: traffic.FieldDevice}
	const n, values = 16, 16_000
	targets := newTargeter([]byte("secret"), n)
	var counts [n]int
	for i := range values {
		id := traffic.Identity{Device: string(binary.BigEndian.AppendUint32(nil, uint32(i)))}
		at := targets.ofIdentity(device, &id)
		if at != targets.ofValue(device, id.Device, false) {
			t.Fatalf("value %d: partition %d by the identity", i, at)
		}
		counts[at]++
	}
	for q, c := range counts {
		if c < values/n*8/10 || c > values/n*12/10 {
			t.Errorf("partition %d gets %d of %d values, want about %d", q, c, values, values/n)
		}
	}
}

// target is where a rule's window for an event is; ruleID is set for a rule with the empty key.
func target(secret []byte, field traffic.KeyField, value string, missing bool, ruleID string, n int) int {
	t := newTargeter(secret, n)
	if ruleID != "" {
		return t.ofRule(ruleID)
	}
	return t.ofValue(field, value, missing)
}

// What asks where a source is counted computes as the stage does.
func TestTargetOfASource(t *testing.T) {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 48}
	device, host := traffic.KeyField{Field: traffic.FieldDevice}, traffic.KeyField{Field: traffic.FieldHost}
	either := traffic.KeyField{Field: traffic.FieldFallback, Name: "host|ip", V4: 24, V6: 48}
	for _, c := range []struct {
		key     []traffic.KeyField
		source  traffic.Subject
		message string
	}{
		{nil, "", "\x00logins"},
		{[]traffic.KeyField{ip, device}, "ip=192.0.2.0%2F24&device=tv", "\x01ip\x00192.0.2.0/24"},
		{[]traffic.KeyField{device, ip}, "ip=192.0.2.0%2F24&device=t%26v", "\x01device\x00t&v"},
		{[]traffic.KeyField{device, ip}, "ip=192.0.2.0%2F24&device", "\x02device\x00\x00\x00"},
		{[]traffic.KeyField{ip}, "ip", "\x02ip\x00\x18\x30"},
		{[]traffic.KeyField{host}, "host=a.example", "\x01host\x00a.example"},
		{[]traffic.KeyField{host}, "host", "\x02host\x00\x00\x00"},
		{[]traffic.KeyField{either}, "host=a.example", "\x01host\x00a.example"},
		{[]traffic.KeyField{either}, "ip=192.0.2.0%2F24", "\x01ip\x00192.0.2.0/24"},
		{[]traffic.KeyField{either}, "host%7Cip", "\x02host|ip\x00\x18\x30"},
	} {
		if got, err := TargetOf([]byte("secret"), 1000003, "logins", c.key, c.source); err != nil || got != targetByTheBook("secret", c.message, 1000003) {
			t.Errorf("%v %s: %d, %v", c.key, c.source, got, err)
		}
	}
	if _, err := TargetOf([]byte("secret"), 4, "logins", []traffic.KeyField{ip}, "device=tv"); err == nil {
		t.Error("gave a partition to what is no source of the key")
	}
}
