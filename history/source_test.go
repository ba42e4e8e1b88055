package history_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

func subject(id traffic.Identity, v4, v6 uint8, fields ...traffic.Field) traffic.Subject {
	var key []traffic.KeyField
	for _, f := range fields {
		k := traffic.KeyField{Field: f}
		if f == traffic.FieldIP {
			k.V4, k.V6 = v4, v6
		}
		key = append(key, k)
	}
	s, _ := traffic.MakeSubject(&id, key)
	return s
}

func TestHitsBySource(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	subjects := []traffic.Subject{
		0:  subject(traffic.Identity{IP: addr("192.0.2.1")}, 32, 64, traffic.FieldIP),
		1:  subject(traffic.Identity{IP: addr("192.0.2.9")}, 24, 64, traffic.FieldIP),
		2:  subject(traffic.Identity{IP: addr("2001:db8::1"), Device: "tv"}, 32, 64, traffic.FieldIP, traffic.FieldDevice),
		3:  subject(traffic.Identity{User: "192.0.2.1"}, 0, 0, traffic.FieldUser),
		4:  subject(traffic.Identity{Session: "a=b\x00"}, 0, 0, traffic.FieldSession),
		5:  subject(traffic.Identity{}, 32, 64, traffic.FieldIP), // missing: ip without a value
		6:  "",
		7:  subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice),
		8:  subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice).Stored(),
		9:  "ip=198.51.100.7%2F32&attrs.tenant=acme%20co&%7Bid%7D=7",
		10: traffic.Subject("attrs.tenant=" + strings.Repeat("x", 70)).Stored(),
		11: subject(traffic.Identity{IP: addr("198.51.100.8"), User: "alice&device=tv"}, 32, 64, traffic.FieldIP,
			traffic.FieldUser),
		12: subject(traffic.Identity{Device: "tv 9", User: "alice"}, 0, 0, traffic.FieldDevice, traffic.FieldUser),
		13: subject(traffic.Identity{User: "bob", Session: "x"}, 0, 0, traffic.FieldUser, traffic.FieldSession),
		14: subject(traffic.Identity{User: "bob&session=x"}, 0, 0, traffic.FieldUser),
		15: subject(traffic.Identity{Device: "x", User: "c\ufffdd"}, 0, 0, traffic.FieldDevice, traffic.FieldUser),
		16: subject(traffic.Identity{User: traffic.BoundedValue(strings.Repeat("y", 300))}, 0, 0, traffic.FieldUser),
		17: subject(traffic.Identity{User: "c\nd"}, 0, 0, traffic.FieldUser), // by a build before record format 4
	}
	var hits []detectors.Hit
	for n, s := range subjects {
		h := hitNumber(n)
		h.Subject = s
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	tests := []struct {
		source string
		want   []int64 // offsets
	}{
		{"ip=192.0.2.1", []int64{1, 0}},
		{"192.0.2.1", []int64{3, 1, 0}},
		{"::ffff:192.0.2.1", []int64{1, 0}},
		{"ip=192.0.2.0/24", []int64{1, 0}},
		{"192.0.2.0/25", []int64{0}},
		{"2001:db8::ffff", []int64{2}},
		{"2001:db8:1::1", nil},
		{"tv", []int64{2}},
		{"device=tv", []int64{2}},
		{"user=tv", nil},
		{"user=192.0.2.1", []int64{3}},
		{"session=a=b\x00", []int64{4}},
		{"session=a%3Db%00", []int64{4}},
		{"ip=192.0.2.1%2F32", []int64{0}},
		{"device=" + strings.Repeat("tv ", 30), []int64{8, 7}}, // a block's subject holds the digest
		{"device=" + strings.Repeat("tv%20", 30), []int64{8, 7}},
		{strings.Repeat("tv ", 30), []int64{8, 7}},
		{string(subject(traffic.Identity{Device: strings.Repeat("tv ", 30)}, 0, 0, traffic.FieldDevice).Stored()), []int64{8}},
		{"00:1b:44:11:3a:b7", nil},
		{"attrs.tenant=acme co", []int64{9}},
		{"attrs.tenant=acme", nil},
		{"{id}=7", []int64{9}},
		{"ip=198.51.100.7", []int64{9}},
		{"ip=198.51.100.7%2F32&attrs.tenant=acme%20co&%7Bid%7D=7", []int64{9}},
		{"attrs.tenant=" + strings.Repeat("x", 70), []int64{10}},
		{"user=192.0.2.1&session=x", nil},
		{"user=alice&device=tv", []int64{11}}, // no subject has its fields in this order
		{traffic.SourceText("user", "alice&device=tv"), []int64{11}},
		{"user=alice%26device%3Dtv", []int64{11}},
		{"device=tv%209", []int64{12}},
		{"device=tv 9", []int64{12}},
		{"device=tv%209&user=alice", []int64{12}},
		{"user=bob", []int64{13}},
		{"user=bob&session=x", []int64{13}},
		{traffic.SourceText("user", "bob&session=x"), []int64{14}},
		{"user=c\nd", []int64{17, 15}}, // as ROUTE reads it, and as it is
		{"user=c%0Ad", []int64{17, 15}},
		{"user= c\x1bd ", []int64{15}},
		{"c\x00d", []int64{15}},
		{"device=x&user=c%0Ad", []int64{15}},
		{"user=" + strings.Repeat("y", 300), []int64{16}},
		{strings.Repeat("y", 300), []int64{16}},
	}
	for _, tt := range tests {
		source, err := history.ParseSource(tt.source)
		if err != nil {
			t.Errorf("%q: %v", tt.source, err)
			continue
		}
		if got := b.offsets(t, history.HitQuery{Source: &source}); !slices.Equal(got, tt.want) {
			t.Errorf("source %q finds %v, want %v", tt.source, got, tt.want)
		}
	}
	for _, bad := range []string{
		"", "ip=tv", "ip=", "user=", "a=b\x00", "foo=bar", "devcie=tv", "300.1.1.1", "192.0.2.0/33", "192.0.2.1/", "2001:db8::/129", "2001:db8:::1",
	} {
		if _, err := history.ParseSource(bad); err == nil {
			t.Errorf("source %q was taken", bad)
		}
	}
}
