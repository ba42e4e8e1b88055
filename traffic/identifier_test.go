package traffic

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// identifierOf compiles a map that a test takes for granted.
func identifierOf(t testing.TB, change func(*IdentityMap)) *Identifier {
	t.Helper()
	m := DefaultIdentityMap()
	if change != nil {
		change(&m)
	}
	x, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestAddressOfEvent(t *testing.T) {
	for _, c := range []struct {
		name      string
		proxies   int
		ip, chain string
		want      string
		missing   MissingReason
	}{
		{"peer", 0, "192.0.2.1:99", "203.0.113.9", "192.0.2.1", Present},
		{"no peer", 0, "", "203.0.113.9", "", MissingAbsent},
		{"peer is a name", 0, "AWS Internal", "", "", MissingBadIP},
		{"one proxy", 1, "10.0.0.1", "6.6.6.6, 203.0.113.9", "203.0.113.9", Present},
		{"two proxies", 2, "10.0.0.1", "6.6.6.6, 203.0.113.9, 10.0.0.2", "203.0.113.9", Present},
		{"chain too short", 2, "10.0.0.1", "203.0.113.9", "", MissingShort},
		{"no chain", 1, "10.0.0.1", "", "", MissingShort},
		{"entry is no address", 1, "10.0.0.1", "203.0.113.9, unknown", "", MissingBadIP},
		{"empty entry", 1, "10.0.0.1", "203.0.113.9, ", "", MissingBadIP},
		{"mapped, with port", 1, "10.0.0.1", "[::ffff:203.0.113.9]:443", "203.0.113.9", Present},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := identifierOf(t, func(m *IdentityMap) { m.IP.TrustedProxies.Hops = c.proxies })
			id, missing := x.FromEvent(&Request{IP: c.ip, Forwarded: c.chain})
			want, _ := netip.ParseAddr(c.want)
			if id.IP != want || missing[FieldIP] != c.missing {
				t.Fatalf("got %v, %v", id.IP, missing[FieldIP])
			}
		})
	}
}

// An unspecified address is no client's, however it is written: at a gate as in an event, or all whose address is unknown
// would be one source, and blocked together.
func TestUnspecifiedAddressIsMissing(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.0.0.0:80", "::", "[::]", "[::]:80", "::%eth0", "[::%25eth0]:443", "::ffff:0.0.0.0", "[::ffff:0.0.0.0]:80",
		"::ffff:0:0", "::ffff:0.0.0.0%eth0", "0:0:0:0:0:0:0:0", "0::0", "::0.0.0.0", ` "[::]:80" `,
	} {
		for proxies := range 2 {
			x := identifierOf(t, func(m *IdentityMap) { m.IP.TrustedProxies.Hops = proxies })
			peer, chain := text, "203.0.113.9"
			if proxies == 1 {
				peer, chain = "203.0.113.9", "192.0.2.1, "+text
			}
			id, missing := x.FromEvent(&Request{IP: peer, Forwarded: chain})
			if id.IP.IsValid() || missing[FieldIP] != MissingUnspecified {
				t.Errorf("%q behind %d proxies in an event: %v, %v", text, proxies, id.IP, missing[FieldIP])
			}
			id, missing = x.FromCarrier(&Carrier{Peer: peer, Forwarded: []string{chain}, Header: http.Header{}})
			if id.IP.IsValid() || missing[FieldIP] != MissingUnspecified {
				t.Errorf("%q behind %d proxies at a gate: %v, %v", text, proxies, id.IP, missing[FieldIP])
			}
		}
	}
	for _, text := range []string{"0.0.0.1", "::1", "::ffff:0.0.0.1", "::ffff"} {
		if id, missing := identifierOf(t, nil).FromEvent(&Request{IP: text}); !id.IP.IsValid() || missing[FieldIP] != Present {
			t.Errorf("%q: %v, %v; want an address", text, id.IP, missing[FieldIP])
		}
	}
}

func TestFieldSources(t *testing.T) {
	headers := []Header{{"x-device-id", "d1"}, {"X-DEVICE-ID", " d2 "}, {"x-other", " o "}, {"Cookie", `a=1; sid="s1"; b; sid=`}}
	for _, c := range []struct {
		name    string
		src     FieldSource
		own     string
		want    string
		missing MissingReason
	}{
		{"own member first", FieldSource{Header: "X-Device-Id"}, "own", "own", Present},
		{"several lines of a header", FieldSource{Header: "X-Device-Id"}, "", "", MissingRepeated},
		{"several lines, and a cookie", FieldSource{Header: "X-Device-Id", Cookie: "sid"}, "", "", MissingRepeated},
		{"cookie", FieldSource{Cookie: "sid"}, "", "s1", Present},
		{"header before cookie", FieldSource{Header: "X-Other", Cookie: "sid"}, "", "o", Present},
		{"cookie without the header", FieldSource{Header: "X-None", Cookie: "sid"}, "", "s1", Present},
		{"cookies have a case", FieldSource{Cookie: "SID"}, "", "", MissingAbsent},
		{"neither", FieldSource{Header: "X-None"}, "", "", MissingAbsent},
		{"blank", FieldSource{Header: "X-None"}, " \t", "", MissingAbsent},
		{"no source", FieldSource{}, "own", "", MissingNoSource},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := identifierOf(t, func(m *IdentityMap) { m.Device = c.src })
			id, missing := x.FromEvent(&Request{Device: c.own, Headers: headers})
			if id.Device != c.want || missing[FieldDevice] != c.missing {
				t.Fatalf("got %q, %v", id.Device, missing[FieldDevice])
			}
			if c.own != "" {
				return // a request has headers alone
			}
			carried := http.Header{}
			for _, h := range headers {
				carried.Add(h.Name, h.Value)
			}
			id, missing = x.FromCarrier(&Carrier{Header: carried})
			if id.Device != c.want || missing[FieldDevice] != c.missing {
				t.Fatalf("at a gate: got %q, %v", id.Device, missing[FieldDevice])
			}
		})
	}
}

// TestWhatAClientClaimsOfItself: a member that no gateway answers for comes behind header and cookie, and is nothing to
// a field that the gateway vouches for.
func TestWhatAClientClaimsOfItself(t *testing.T) {
	headers := []Header{{"X-Other", "o"}, {"Cookie", "sid=s1"}}
	for _, c := range []struct {
		name    string
		src     FieldSource
		want    string
		missing MissingReason
	}{
		{"nothing else is there", FieldSource{Header: "X-None"}, "claim", Present},
		{"a header is there", FieldSource{Header: "X-Other"}, "o", Present},
		{"a cookie is there", FieldSource{Header: "X-None", Cookie: "sid"}, "s1", Present},
		{"the gateway vouches", FieldSource{Header: "X-None", Vouched: true}, "", MissingClaimed},
		{"the gateway vouches, and says", FieldSource{Header: "X-Other", Vouched: true}, "o", Present},
	} {
		x := identifierOf(t, func(m *IdentityMap) { m.Device = c.src })
		id, missing := x.FromEvent(&Request{Device: "claim", Claimed: FieldSet(0).With(FieldDevice), Headers: headers})
		if id.Device != c.want || missing[FieldDevice] != c.missing {
			t.Errorf("%s: got %q, %v", c.name, id.Device, missing[FieldDevice])
		}
	}
}

func TestLongValuesAreDigested(t *testing.T) {
	x := identifierOf(t, nil)
	for _, n := range []int{255, 256, 257, 272, 1 << 20} {
		value := strings.Repeat("v", n-1) + "~"
		id, _ := x.FromEvent(&Request{User: value})
		want := value
		if n > 256 {
			want = fmt.Sprintf("%s~sha256:%x", value[:200], sha256.Sum256([]byte(value)))
		}
		if id.User != want {
			t.Errorf("%d bytes: got %q", n, id.User)
		}
	}
}

// TestSameIdentityAtGateAndInEvent expresses one request in both ways.
func TestSameIdentityAtGateAndInEvent(t *testing.T) {
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"", "-", "d1", " d2 ", "é", "a,b", "\xff\x00", `"q"`, "a=b", strings.Repeat("x", 300)}),
		rapid.Map(rapid.SliceOfN(rapid.ByteRange(' ', 0xff), 0, 8), func(b []byte) string { return string(b) }))
	address := rapid.SampledFrom([]string{"", "192.0.2.1", "192.0.2.1:80", "[::1]:80", "::ffff:10.0.0.1", "fe80::1%eth0", "unknown", " 203.0.113.9 "})
	cookieText := rapid.StringMatching(`(sid|a|SID)=("?)[ -:<-~\x80]{0,6}("?)`)
	rapid.Check(t, func(t *rapid.T) {
		m := IdentityMap{}
		if m.IP.TrustedProxies.Hops = rapid.IntRange(-1, 3).Draw(t, "proxies"); m.IP.TrustedProxies.Hops < 0 {
			m.IP.TrustedProxies = TrustedProxies{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")}}
		}
		sources := []*FieldSource{&m.Device, &m.User, &m.APIKey, &m.Session}
		names := []string{"X-Device-Id", "x-user", "Authorization", "X-S"}
		r := Request{IP: address.Draw(t, "peer")}
		h := http.Header{}
		if lines := rapid.SliceOfN(cookieText, 0, 3).Draw(t, "cookies"); len(lines) > 0 {
			if rapid.Bool().Draw(t, "one line") {
				lines = []string{strings.Join(lines, "; ")}
			}
			for _, line := range lines {
				h.Add("Cookie", line)
				r.Headers = append(r.Headers, Header{"cookie", line})
			}
		}
		own := []*string{&r.Device, &r.User, &r.APIKey, &r.Session}
		for i, src := range sources {
			if rapid.Bool().Draw(t, "has header") {
				src.Header = names[i]
			}
			if rapid.Bool().Draw(t, "has cookie") {
				src.Cookie = "sid"
			}
			src.Vouched = rapid.Bool().Draw(t, "vouched") && (src.Header != "" || src.Cookie != "")
			src.Commas = src.Header != "" && rapid.Bool().Draw(t, "commas")
			values := rapid.SliceOfN(value, 1, 2).Draw(t, "values")
			for _, v := range values {
				h.Add(names[i], v)
				if len(values) == 1 && rapid.Bool().Draw(t, "own member") && src.Header != "" {
					*own[i] = v // the gateway has taken it from the header
				} else {
					r.Headers = append(r.Headers, Header{strings.ToUpper(names[i]), v})
				}
			}
		}
		lines := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(address, 1, 3), func(a []string) string { return strings.Join(a, ", ") }), 0, 3).Draw(t, "forwarded")
		r.Forwarded = strings.Join(lines, ",")
		x, err := m.Compile()
		if err != nil {
			t.Fatal(err)
		}
		fromEvent, missing1 := x.FromEvent(&r)
		fromGate, missing2 := x.FromCarrier(&Carrier{Peer: r.IP, Forwarded: lines, Header: h})
		if fromEvent != fromGate || missing1 != missing2 {
			t.Fatalf("event %+v %v\ngate  %+v %v", fromEvent, missing1, fromGate, missing2)
		}
	})
}

func TestIdentityWithoutAllocation(t *testing.T) {
	for _, proxies := range []string{"1", "198.51.100.0/24"} {
		testIdentityWithoutAllocation(t, identifierOf(t, func(m *IdentityMap) {
			m.Session = FieldSource{Cookie: "sid"}
			m.APIKey.Header = "X-API-Key" // as nobody but a person spells it
			if err := m.IP.TrustedProxies.UnmarshalText([]byte(proxies)); err != nil {
				t.Fatal(err)
			}
		}))
	}
}

func testIdentityWithoutAllocation(t *testing.T, x *Identifier) {
	t.Helper()
	h := http.Header{"X-Device-Id": {"d"}, "X-User-Id": {"u"}, "X-Api-Key": {"k"}, "Cookie": {"a=b; sid=s"}}
	forwarded := []string{"192.0.2.1, 2001:db8::1"}
	r := Request{IP: "198.51.100.7", Forwarded: forwarded[0], Device: "d", User: "u", APIKey: "k", Headers: []Header{{"cookie", "a=b; sid=s"}}}
	var a, b Identity
	if n := testing.AllocsPerRun(100, func() { a, _ = x.FromEvent(&r) }); n != 0 {
		t.Errorf("FromEvent: %v allocations", n)
	}
	carrier := Carrier{Peer: "198.51.100.7:80", Forwarded: forwarded, Header: h}
	if n := testing.AllocsPerRun(100, func() { b, _ = x.FromCarrier(&carrier) }); n != 0 {
		t.Errorf("FromCarrier: %v allocations", n)
	}
	want := Identity{IP: netip.MustParseAddr("2001:db8::1"), Device: "d", User: "u", APIKey: "k", Session: "s"}
	if a != want || b != want {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestIdentityMapValidate(t *testing.T) {
	good := DefaultIdentityMap()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := new(IdentityMap).Validate(); err != nil {
		t.Fatal(err)
	}
	bad := IdentityMap{
		IP:     IPSource{TrustedProxies: TrustedProxies{Hops: -1}, V4: 33, V6: 129},
		Device: FieldSource{Header: "X Device"}, User: FieldSource{Cookie: "a;b"},
		APIKey: FieldSource{Header: "cookie"}, Session: FieldSource{Vouched: true},
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"identity.ip.trusted_proxies: got -1; allowed: a list of prefixes and addresses, like 10.0.0.0/8 or 192.0.2.7, or a number from 0 to 32", "identity.ip.v4: got 33", "identity.ip.v6: got 129",
		`identity.device.header: got "X Device"`, `identity.user.cookie: got "a;b"`,
		`identity.api_key.header: got "cookie"`, "identity.session.vouched",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := bad.Compile(); err == nil {
		t.Error("compiled a bad map")
	}
}

func TestIdentityMapQuestions(t *testing.T) {
	m := IdentityMap{User: FieldSource{Cookie: "u", Vouched: true}}
	for f, want := range map[Field][2]bool{FieldIP: {true, true}, FieldDevice: {false, false}, FieldUser: {true, true}, NumFields: {false, false}} {
		if got := [2]bool{m.Carries(f), m.Vouched(f)}; got != want {
			t.Errorf("%v: carries, vouched = %v, want %v", f, got, want)
		}
	}
	labels := map[string]bool{}
	for r := Present; r < NumMissingReasons; r++ {
		labels[r.String()] = true
	}
	if len(labels) != int(NumMissingReasons) || labels["unknown"] {
		t.Errorf("labels %v", labels)
	}
}
