package traffic

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestAddressHeaders asks gate and events for the client that a proxy names in another header than X-Forwarded-For.
func TestAddressHeaders(t *testing.T) {
	const proxy, stranger = "10.0.0.1:80", "198.51.100.66"
	for _, c := range []struct {
		name, header, peer string
		lines              []string
		want               string
		missing            MissingReason
	}{
		{"one address", "CF-Connecting-IP", proxy, []string{" 203.0.113.9 "}, "203.0.113.9", Present},
		{"any header", "X-Client", proxy, []string{"[2001:db8::9]:443"}, "2001:db8::9", Present},
		{"a stranger that claims an address", "CF-Connecting-IP", stranger, []string{"203.0.113.9"}, stranger, Present},
		{"a stranger that claims nothing", "X-Real-IP", stranger, nil, stranger, Present},
		{"a proxy that names nobody", "X-Real-IP", proxy, nil, "", MissingShort},
		{"a proxy with an empty header", "X-Real-IP", proxy, []string{""}, "", MissingShort},
		{"a client that adds a line", "True-Client-IP", proxy, []string{"192.0.2.1", "203.0.113.9"}, "", MissingRepeated},
		{"lines that were joined", "True-Client-IP", proxy, []string{"192.0.2.1, 203.0.113.9"}, "", MissingRepeated},
		{"no address", "X-Real-IP", proxy, []string{"somebody"}, "", MissingBadIP},
		{"unspecified", "X-Real-IP", proxy, []string{"::"}, "", MissingUnspecified},
		{"a proxy's own address", "X-Real-IP", proxy, []string{"10.9.9.9"}, "", MissingShort},
		{"no peer", "X-Real-IP", "", []string{"203.0.113.9"}, "", MissingAbsent},
		{"a peer that is no address", "X-Real-IP", "unix:", []string{"203.0.113.9"}, "", MissingBadIP},

		{"RFC 7239", "Forwarded", proxy, []string{`for=203.0.113.9;proto=http;by=203.0.113.43`}, "203.0.113.9", Present},
		{"names without case, IPv6 with a port", "forwarded", proxy, []string{`Proto=https ; FOR = "[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17", Present},
		{"the chain from the right", "Forwarded", proxy, []string{`for=192.0.2.1, for=203.0.113.9`, `for=10.0.0.2`}, "203.0.113.9", Present},
		{"the client's own text is never looked at", "Forwarded", proxy, []string{`for=192.0.2.1, for="open, for=203.0.113.9`}, "203.0.113.9", Present},
		{"a quote that the client leaves open, and one of the proxy", "Forwarded", proxy, []string{`for="x, for="203.0.113.9:80";host="a,b;c"`}, "203.0.113.9", Present},
		{"an escaped quote", "Forwarded", proxy, []string{`for=192.0.2.1, host="a\",for=192.0.2.2";for=203.0.113.9`}, "203.0.113.9", Present},
		{"quoted pairs", "Forwarded", proxy, []string{`for="203\.0.113.9"`}, "203.0.113.9", Present},
		{"an element without for", "Forwarded", proxy, []string{`for=192.0.2.1, proto=https`}, "", MissingBadIP},
		{"for twice in an element", "Forwarded", proxy, []string{`for=192.0.2.1;for=203.0.113.9`}, "", MissingBadIP},
		{"unknown", "Forwarded", proxy, []string{`for=unknown`}, "", MissingBadIP},
		{"hidden", "Forwarded", proxy, []string{`for=_gazonk`}, "", MissingBadIP},
		{"an empty element", "Forwarded", proxy, []string{`for=192.0.2.1,`}, "", MissingBadIP},
		{"nobody but proxies", "Forwarded", proxy, []string{`for=10.0.0.3, for=10.0.0.2`}, "", MissingShort},
		{"a proxy without the header", "Forwarded", proxy, nil, "", MissingShort},
		{"a stranger with a chain", "Forwarded", stranger, []string{`for=203.0.113.9`}, stranger, Present},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := identifierOf(t, func(m *IdentityMap) {
				m.IP.TrustedProxies, m.IP.Header = proxies(t, "10.0.0.0/8"), c.header
			})
			want, _ := netip.ParseAddr(c.want)
			q := Request{IP: c.peer, Forwarded: "192.0.2.99", Headers: []Header{{"Other", "192.0.2.98"}}}
			h := http.Header{}
			for _, line := range c.lines {
				q.Headers = append(q.Headers, Header{strings.ToUpper(c.header), line})
				h.Add(c.header, line)
			}
			if id, missing := x.FromEvent(&q); id.IP != want || missing[FieldIP] != c.missing {
				t.Errorf("event: %v, %v", id.IP, missing[FieldIP])
			}
			if id, missing := x.FromCarrier(&Carrier{Peer: c.peer, Forwarded: []string{"192.0.2.99"}, Header: h}); id.IP != want || missing[FieldIP] != c.missing {
				t.Errorf("gate: %v, %v", id.IP, missing[FieldIP])
			}
			if got := x.Headers()[0]; !strings.EqualFold(got, c.header) {
				t.Errorf("a gate is told of %s first", got)
			}
		})
	}
}

func TestAddressHeaderOfAMap(t *testing.T) {
	for _, c := range []struct{ header, proxies, want string }{
		{"X-Real-IP", "0", "without prefixes"},
		{"X-Real-IP", "2", "without prefixes"},
		{"Forwarded", "0", "without prefixes"},
		{"Cookie", "10.0.0.0/8", "the name of a header"},
		{"X Real", "10.0.0.0/8", "the name of a header"},
		{"x-forwarded-for", "2", ""},
		{"X-Real-IP", "10.0.0.0/8", ""},
	} {
		m := DefaultIdentityMap()
		m.IP.Header, m.IP.TrustedProxies = c.header, proxies(t, c.proxies)
		err := m.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v", c.header, c.proxies, err)
		}
		plain := m
		plain.IP.Header = ""
		if m.Equal(&plain) {
			t.Errorf("%s makes no difference", c.header)
		}
	}
}

// FuzzForwardedElements: what a client writes left of a proxy's element never changes what that names.
func FuzzForwardedElements(f *testing.F) {
	for _, seed := range []string{``, `for="`, `for=1.2.3.4;host="\\`, `\"`, `a="b,c`, `"""`, `for=203.0.113.9`} {
		f.Add(seed)
	}
	x := identifierOf(f, func(m *IdentityMap) { m.IP.TrustedProxies, m.IP.Header = proxies(f, "10.0.0.0/8"), "Forwarded" })
	want := netip.MustParseAddr("203.0.113.9")
	f.Fuzz(func(t *testing.T, own string) {
		for _, proxy := range []string{`for=203.0.113.9`, `host="a,\"b;";for="203.0.113.9:80"`} {
			if id, _ := x.FromEvent(&Request{IP: "10.0.0.1", Headers: []Header{{"Forwarded", own + ", " + proxy}}}); id.IP != want {
				t.Errorf("%q before %s: %v", own, proxy, id.IP)
			}
		}
		forwardedFor(own)
	})
}
