package traffic

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
		got, ok := ParseClient(in)
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
		a, ok := ParseClient(in)
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

// proxies makes the prefixes that an identity map trusts.
func proxies(t testing.TB, text string) TrustedProxies {
	t.Helper()
	var p TrustedProxies
	if err := p.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTrustedPrefixes walks chains from the peer to the left.
func TestTrustedPrefixes(t *testing.T) {
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
		missing    MissingReason
	}{
		{"a stranger is itself, whatever it claims", "198.51.100.66:4711", []string{"203.0.113.8"}, "198.51.100.66", Present},
		{"a stranger that claims nothing", "198.51.100.66", nil, "198.51.100.66", Present},
		{"a stranger that claims a proxy", "198.51.100.66", []string{"203.0.113.8, 10.0.0.2"}, "198.51.100.66", Present},
		{"through one proxy", "10.0.0.1", []string{"203.0.113.9"}, "203.0.113.9", Present},
		{"through two", "10.0.0.1:80", []string{"203.0.113.9, 192.0.2.7"}, "203.0.113.9", Present},
		{"the client's own entries are never looked at", "10.0.0.1", []string{"10.6.6.6, not an address, 203.0.113.9, 10.0.0.2"}, "203.0.113.9", Present},
		{"several lines are one list", "10.0.0.1", []string{"10.6.6.6", "203.0.113.9", "10.0.0.3, 10.0.0.2"}, "203.0.113.9", Present},
		{"IPv6 and mapped IPv4", "[2001:db8:1::5]:443", []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9", Present},
		{"ports and brackets within", "10.0.0.1", []string{"[2001:db8:2::1]:5, 10.0.0.2:80"}, "2001:db8:2::1", Present},
		{"a proxy that names nobody", "10.0.0.1", nil, "", MissingShort},
		{"a proxy with an empty chain", "10.0.0.1", []string{" "}, "", MissingShort},
		{"nobody but proxies", "10.0.0.1", []string{"192.0.2.7, 10.0.0.3"}, "", MissingShort},
		{"no peer", "", []string{"203.0.113.9"}, "", MissingAbsent},
		{"a peer that is no address", "unix:", []string{"203.0.113.9"}, "", MissingBadIP},
		{"an unspecified peer", "0.0.0.0", []string{"203.0.113.9"}, "", MissingUnspecified},
		{"a proxy that does not know", "10.0.0.1", []string{"203.0.113.9, unknown"}, "", MissingBadIP},
		{"an empty entry", "10.0.0.1", []string{"203.0.113.9,, 10.0.0.2"}, "", MissingBadIP},
		{"an unspecified entry", "10.0.0.1", []string{"203.0.113.9, ::"}, "", MissingUnspecified},
		{"next to a prefix", "192.0.2.8", []string{"203.0.113.9"}, "192.0.2.8", Present},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := identifierOf(t, func(m *IdentityMap) { m.IP.TrustedProxies = proxies(t, "10.0.0.0/8,192.0.2.7,2001:db8:1::/48") })
			want, _ := netip.ParseAddr(c.want)
			id, missing := x.FromEvent(&Request{IP: c.peer, Forwarded: strings.Join(c.lines, ",")})
			if id.IP != want || missing[FieldIP] != c.missing {
				t.Errorf("event: %v, %v", id.IP, missing[FieldIP])
			}
			id, missing = x.FromCarrier(&Carrier{Peer: c.peer, Forwarded: c.lines, Header: http.Header{}})
			if id.IP != want || missing[FieldIP] != c.missing {
				t.Errorf("gate: %v, %v", id.IP, missing[FieldIP])
			}
		})
	}
}

// TestNobodyForgesAnAddress: whatever a client writes into X-Forwarded-For, and whichever of the proxies it reaches first,
// it is itself.
func TestNobodyForgesAnAddress(t *testing.T) {
	x := identifierOf(t, func(m *IdentityMap) { m.IP.TrustedProxies = proxies(t, "10.0.0.0/8,2001:db8:1::/48") })
	ours := []string{"10.0.0.1", "10.1.2.3:80", "2001:db8:1::1", "[2001:db8:1::2]:443"}
	rapid.Check(t, func(t *rapid.T) {
		client := rapid.SampledFrom([]string{"198.51.100.66", "2001:db8:9::6", "::ffff:198.51.100.67"}).Draw(t, "client")
		forged := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(append([]string{"203.0.113.8", "", "unknown", client}, ours...)),
			rapid.StringMatching(`[ -~]{0,12}`)), 0, 4).Draw(t, "forged")
		through := rapid.SliceOfN(rapid.SampledFrom(ours), 0, 3).Draw(t, "through")
		lines, peer := []string(nil), client
		if len(forged) > 0 {
			lines = []string{strings.Join(forged, rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma"))}
		}
		for _, proxy := range through { // each appends who it heard from, to the last line or as one of its own
			if len(lines) == 0 || rapid.Bool().Draw(t, "own line") {
				lines = append(lines, peer)
			} else {
				lines[len(lines)-1] += ", " + peer
			}
			peer = proxy
		}
		want := netip.MustParseAddr(client).Unmap()
		event, _ := x.FromEvent(&Request{IP: peer, Forwarded: strings.Join(lines, ", ")})
		gate, _ := x.FromCarrier(&Carrier{Peer: peer, Forwarded: lines, Header: http.Header{}})
		if event.IP != want || gate.IP != want {
			t.Fatalf("%s through %v: event %v, gate %v", client, through, event.IP, gate.IP)
		}
	})
}

func TestTrustedProxiesText(t *testing.T) {
	for in, want := range map[string]string{
		"": "0", "0": "0", " 2 ": "2", "10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8, 192.0.2.7": "10.0.0.0/8,192.0.2.7/32",
		"2001:db8::1": "2001:db8::1/128", "::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:192.0.2.7": "192.0.2.7/32",
	} {
		p := proxies(t, in)
		if p.String() != want {
			t.Errorf("%q: got %s, want %s", in, p, want)
		}
		b, err := json.Marshal(IPSource{TrustedProxies: p})
		var again IPSource
		if err == nil {
			err = json.Unmarshal(b, &again)
		}
		if err != nil || !again.TrustedProxies.Equal(p) {
			t.Errorf("%q: %s comes back as %s, %v", in, b, again.TrustedProxies, err)
		}
	}
	if b, _ := json.Marshal(proxies(t, "2")); string(b) != "2" {
		t.Errorf("a number is %s, which builds that know no prefixes do not read", b)
	}
	for in, want := range map[string]string{
		"-1": "got -1; allowed: a list of prefixes", "33": "got 33; allowed", "10.0.0.0/8,2": `got "2"; allowed`, "10.0.0.0/33": `got "10.0.0.0`,
		"fe80::1%eth0": "got ", "edge": `got "edge"; allowed`, "10.0.0.0/8,": `got ""; allowed`, "0.0.0.0/0": "everybody", "::/0": "everybody",
		strings.Repeat("10.0.0.1,", 256) + "10.0.0.2": "got 257 prefixes; allowed: up to 256",
	} {
		if err := new(TrustedProxies).UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", in, err, want)
		}
	}
	for _, in := range []string{`"10.0.0.0/8"`, `1.5`, `{}`, `[1]`, `["edge"]`} {
		if err := json.Unmarshal([]byte(in), new(TrustedProxies)); err == nil {
			t.Errorf("%s is taken", in)
		}
	}
	both := IdentityMap{IP: IPSource{TrustedProxies: TrustedProxies{Hops: 1, Prefixes: proxies(t, "10.0.0.0/8").Prefixes}}}
	if err := both.Validate(); err == nil || !strings.Contains(err.Error(), "one of them") {
		t.Errorf("a number and prefixes: %v", err)
	}
}
