package oracle_test

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/weirhq/weir/internal/oracle"
)

func TestSubjects(t *testing.T) {
	tests := []struct {
		name, client, device string
		byDevice             bool
		want                 string
	}{
		{"an address", "192.0.2.1", "", false, "ip=192.0.2.1%2F32"},
		{"mapped into IPv6", "::ffff:192.0.2.1", "", false, "ip=192.0.2.1%2F32"},
		{"IPv6 counts by its network", "2001:db8:1:2:3:4:5:6", "tv-7", true, "ip=2001%3Adb8%3A1%3A2%3A%3A%2F64&device=tv-7"},
		{"a zone is no part of it", "fe80::1%eth0", "", false, "ip=fe80%3A%3A%2F64"},
		{"bytes that are reserved", "192.0.2.1", "a&b=c \xff", true, "ip=192.0.2.1%2F32&device=a%26b%3Dc%20%FF"},
		{"no device", "192.0.2.1", "", true, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := oracle.Rule{Device: test.byDevice}
			if got := r.Subject(netip.MustParseAddr(test.client), test.device); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := (&oracle.Rule{}).Subject(netip.Addr{}, "tv"); got != "" {
		t.Errorf("no address: got %q", got)
	}
}

func TestOver(t *testing.T) {
	r := oracle.Rule{Method: "GET", Path: "/c/*", Limit: 1, Window: 10}
	at := func(time int64, client, path string, refused bool) oracle.Request {
		return oracle.Request{Time: time, Client: netip.MustParseAddr(client), Method: "GET", Path: path, Refused: refused}
	}
	got := r.Over([]oracle.Request{
		at(1, "192.0.2.1", "/c/a", false), at(11, "192.0.2.1", "/c/b", false), // just outside
		at(20, "192.0.2.1", "/c/", false),                                   // over
		at(25, "192.0.2.1", "/d", false), at(26, "192.0.2.1", "/c/a", true), // neither counts
		at(31, "192.0.2.1", "/c/a", false),                                  // 20 is gone, or would be
		at(1, "192.0.2.2", "/c/a", false), at(2, "192.0.2.2", "/c/a", true), // refused
	})
	want := map[string][]oracle.Episode{"ip=192.0.2.1%2F32": {{First: 20, Last: 20, Count: 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v (sources %v)", got, want, slices.Sorted(maps.Keys(got)))
	}
}
