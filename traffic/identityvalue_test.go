package traffic

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// atGate is the identity of a request with these header lines.
func atGate(x *Identifier, lines ...Header) (Identity, Missing) {
	h := http.Header{}
	for _, l := range lines {
		h.Add(l.Name, l.Value)
	}
	return x.FromCarrier(&Carrier{Peer: "192.0.2.1:4711", Header: h})
}

// TestSeveralCookieLinesAreOneList: the first cookie of a name is the one that most servers take, in whichever line it is.
func TestSeveralCookieLinesAreOneList(t *testing.T) {
	x := identifierOf(t, func(m *IdentityMap) { m.Session = FieldSource{Cookie: "sid", Vouched: true} })
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"sid=real"}, "real"},
		{[]string{"sid=real", "sid=other"}, "real"},
		{[]string{"sid=real; sid=other"}, "real"},
		{[]string{"a=b", "c; sid=real; sid=other", "sid=third"}, "real"},
		{[]string{"SID=x", `sid="real"`}, "real"},
		{[]string{"sid", "sid=real"}, "real"}, // a name without = is no cookie of that name
		{[]string{"sid=; sid=real"}, ""},      // servers take the first, which is empty
		{[]string{"sid=", "sid=real"}, ""},
		{[]string{`sid=""`, "sid=real"}, ""},
		{[]string{"", "sid=real"}, "real"},
		{[]string{"xsid=1; sid=a,b"}, "a,b"}, // lines of cookies are joined by semicolons
	} {
		missing := Present
		if c.want == "" {
			missing = MissingAbsent
		}
		var sent []Header
		for _, line := range c.lines {
			sent = append(sent, Header{"Cookie", line})
		}
		for way, event := range map[string]Request{
			"lines": {Headers: sent}, "joined": {Headers: []Header{{"cookie", strings.Join(c.lines, "; ")}}},
		} {
			if id, why := x.FromEvent(&event); id.Session != c.want || why[FieldSession] != missing {
				t.Errorf("%q in an event, %s: %q, %v", c.lines, way, id.Session, why[FieldSession])
			}
		}
		if id, why := atGate(x, sent...); id.Session != c.want || why[FieldSession] != missing {
			t.Errorf("%q at a gate: %q, %v", c.lines, id.Session, why[FieldSession])
		}
	}
}

// TestCommasThatJoinNothing: values that have commas of their own stay whole.
func TestCommasThatJoinNothing(t *testing.T) {
	const agent, name = "Mozilla/5.0 (KHTML, like Gecko)", "CN=alice,O=Example"
	x := identifierOf(t, func(m *IdentityMap) {
		m.Device = FieldSource{Header: "X-Agent"}
		m.User = FieldSource{Header: "X-Client-DN", Vouched: true, Commas: true}
		m.Session = FieldSource{Header: "X-Session-Id", Cookie: "sid", Vouched: true}
	})
	sent := []Header{{"X-Agent", agent}, {"X-Client-DN", name}, {"Cookie", "sid=a,b"}} // lines of cookies are joined by semicolons
	gate, _ := atGate(x, sent...)
	event, _ := x.FromEvent(&Request{Headers: sent})
	for end, id := range map[string]Identity{"gate": gate, "event": event} {
		if id.Device != agent || id.User != name || id.Session != "a,b" {
			t.Errorf("%s: %+v", end, id)
		}
	}
	if _, missing := atGate(x, append(sent, sent...)...); missing[FieldUser] != MissingRepeated || missing[FieldDevice] != MissingRepeated {
		t.Errorf("two lines each: %v", missing)
	}
}

// TestReadable holds the fast scan to the definition, at every place of a word and behind it.
func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "tv-7": "tv-7", "é界😀": "é界😀", "\xff": "\ufffd", "\xff\xfe": "\ufffd\ufffd", "\xe7\x95": "\ufffd\ufffd",
		"\xc3": "\ufffd", "a\x00b": "a\ufffdb", "\x1f \x7f~": "\ufffd \ufffd~", "\u0080\u009f\u00a0": "\ufffd\ufffd\u00a0",
		"\ufffd": "\ufffd", "\u2028\u202e": "\u2028\u202e", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xc0\xaf": "\ufffd\ufffd", "a\tb": "a\ufffdb",
	} {
		for before := range 18 {
			for after := range 18 {
				head, tail := strings.Repeat("x", before), strings.Repeat("~", after)
				if got := readable(head + in + tail); got != head+want+tail {
					t.Fatalf("%q: got %q, want %q", head+in+tail, got, head+want+tail)
				}
			}
		}
	}
	for c := range 256 {
		for _, at := range []int{0, 3, 7, 8, 11} {
			b := []byte("abcdefghijkl")
			b[at] = byte(c)
			plain := c >= ' ' && c < 0x7f
			if got := readable(string(b)); (got == string(b)) != plain || !utf8.ValidString(got) || utf8.RuneCountInString(got) != len(b) {
				t.Fatalf("byte %#x at %d: %q", c, at, got)
			}
		}
	}
	clean := "0a1b2c3d-tv-living-room"
	if n := testing.AllocsPerRun(100, func() { _ = readable(clean) }); n != 0 {
		t.Errorf("%v allocations for a clean value", n)
	}
}

// TestFieldsAsIs: a stream whose routers may be of a build before record format 4 reads as those do.
func TestFieldsAsIs(t *testing.T) {
	m := DefaultIdentityMap()
	m.User.Vouched, m.APIKey.Vouched, m.Session = true, true, FieldSource{Header: "X-Session-Id", Cookie: "sid", Vouched: true}
	x, err := m.Compile(FieldsAsIs())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    Request
		want Identity
	}{
		{Request{User: "victim", Claimed: FieldSet(0).With(FieldUser), Headers: []Header{{"X-User-Id", "attacker"}}}, Identity{User: "victim"}},
		{Request{Headers: []Header{{"X-Api-Key", "k1"}, {"x-api-key", "k2"}}}, Identity{APIKey: "k2"}},
		{Request{Headers: []Header{{"X-Api-Key", "k1"}, {"x-api-key", " "}}}, Identity{}},
		{Request{APIKey: "k1,k2"}, Identity{APIKey: "k1,k2"}},
		{Request{Device: "\xff\x01"}, Identity{Device: "\xff\x01"}},
		{Request{Headers: []Header{{"Cookie", "sid=; sid=a; sid=b"}}}, Identity{Session: "a"}},
		{Request{Headers: []Header{{"Cookie", "sid=a"}, {"Cookie", "sid=b; sid=c"}, {"Cookie", "sid="}}}, Identity{Session: "b"}},
		{Request{Headers: []Header{{"Cookie", "sid=a"}, {"X-Session-Id", "s"}}}, Identity{Session: "s"}},
		{Request{Headers: []Header{{"", "nameless"}}}, Identity{}},
	} {
		id, missing := x.FromEvent(&c.r)
		if id != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.r, id, c.want)
		}
		for f := FieldDevice; f < NumFields; f++ {
			if value, _ := id.Value(KeyField{Field: f}); (missing[f] == Present) != (value != "") || missing[f] == MissingRepeated || missing[f] == MissingClaimed {
				t.Errorf("%+v: %s is %v", c.r, f, missing[f])
			}
		}
	}
}

// FuzzReadable looks for a value whose readable form is no text, or not its own.
func FuzzReadable(f *testing.F) {
	for _, value := range []string{"tv-7", "k\xff", "a\x01b", "é", " x\t", "\xed\xa0\x80", "\ufffd", strings.Repeat("\xff", 90)} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if got := readable(value); !utf8.ValidString(got) || readable(got) != got {
			t.Fatalf("%q reads as %q", value, got)
		}
	})
}
