package traffic

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseClient(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":                             "192.0.2.1",
		"192.0.2.1:5678":                        "192.0.2.1",
		" \t192.0.2.1 ":                         "192.0.2.1",
		"[::1]:80":                              "::1",
		"[::1]":                                 "::1",
		"::1":                                   "::1",
		`"[2001:db8::1]:4711"`:                  "2001:db8::1",
		"::ffff:192.0.2.1":                      "192.0.2.1",
		"[::ffff:192.0.2.1]:80":                 "192.0.2.1",
		"::FFFF:c000:201":                       "192.0.2.1",
		"fe80::1%eth0":                          "fe80::1",
		"[fe80::1%25eth0]:80":                   "fe80::1",
		"::ffff:192.0.2.1%eth0":                 "192.0.2.1",
		"2001:DB8:0:0:0:0:0:1":                  "2001:db8::1",
		"":                                      "",
		" ":                                     "",
		`""`:                                    "",
		"-":                                     "",
		"unknown":                               "",
		"AWS Internal":                          "",
		"health.amazonaws.com":                  "",
		"_hidden":                               "",
		"192.0.2.1:":                            "",
		"192.0.2.1:http":                        "",
		"192.0.2.1:123456":                      "",
		"192.0.2":                               "",
		"192.0.2.256":                           "",
		"010.0.0.1":                             "",
		"[192.0.2.1]:80":                        "",
		"[::1":                                  "",
		"[::1]80":                               "",
		"[::1]:":                                "",
		"::1::":                                 "",
		"192.0.2.1, 192.0.2.2":                  "",
		"192.0.2.1\x00":                         "",
		strings.Repeat("1", 1<<20):              "",
		"fe80::1%" + strings.Repeat("e", 1<<10): "",
	} {
		got, ok := parseClient(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("parseClient(%.60q): got %v, %v, want %q", in, got, ok, want)
		}
	}
}

func FuzzParseClient(f *testing.F) {
	for _, seed := range []string{"192.0.2.1:80", "[::ffff:1.2.3.4%x]:80", `"::1"`, "[", "%", `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		a, ok := parseClient(in)
		if ok != a.IsValid() || a.Zone() != "" || a.Is4In6() {
			t.Fatalf("%q: %v, %v", in, a, ok)
		}
		if std, err := netip.ParseAddr(in); err == nil && len(in) <= maxAddressText && std.Zone() == "" && (!ok || a != std.Unmap()) {
			t.Fatalf("%q: got %v, %v", in, a, ok)
		}
	})
}

func TestChainEntry(t *testing.T) {
	for _, c := range []struct {
		lines []string
		n     int
		want  string
		ok    bool
	}{
		{nil, 1, "", false},
		{[]string{""}, 1, "", false},
		{[]string{" "}, 1, "", false},
		{[]string{"a"}, 1, "a", true},
		{[]string{"a"}, 2, "", false},
		{[]string{"a,b, c"}, 1, " c", true},
		{[]string{"a,b, c"}, 3, "a", true},
		{[]string{"a,b, c"}, 4, "", false},
		{[]string{"a,b", "c"}, 2, "b", true},
		{[]string{"a", "b", "c"}, 3, "a", true},
		{[]string{"a,"}, 1, "", true},
		{[]string{"a,,b"}, 2, "", true},
		{[]string{"a", ""}, 1, "", true},
	} {
		entries, got, ok := newChain(c.lines), "", true
		for range c.n {
			got, ok = entries.next()
		}
		if got != c.want || ok != c.ok {
			t.Errorf("entry %d of %q: %q, %v", c.n, c.lines, got, ok)
		}
	}
}
