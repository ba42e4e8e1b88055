package traffic

import (
	"encoding/json"
	"fmt"
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

// TestARepeatedHeaderIsNobody: of several lines of one header, one server takes the first, another the last. Whose request
// it is can't be told, at a gate or in an event, and where a log has joined the lines neither.
func TestARepeatedHeaderIsNobody(t *testing.T) {
	vouched := identifierOf(t, func(m *IdentityMap) { m.APIKey.Vouched = true })
	for _, sent := range [][]string{{"k1", "k2"}, {"k1", "k1"}, {"k1", ""}, {"", "k1"}, {"", ""}, {"k1", "k2", "k3"}, {"k1,k2"}} {
		var lines []Header
		for _, v := range sent {
			lines = append(lines, Header{"X-Api-Key", v})
		}
		list, _ := json.Marshal(sent)
		if id, missing := atGate(vouched, lines...); id.APIKey != "" || missing[FieldAPIKey] != MissingRepeated {
			t.Errorf("%q at a gate: %q, %v", sent, id.APIKey, missing[FieldAPIKey])
		}
		for _, log := range []struct{ format, line string }{
			{FormatNginx, fmt.Sprintf(`{"status":200,"http_x_api_key":%q}`, strings.Join(sent, ", "))},
			{FormatNginx, fmt.Sprintf(`{"status":200,"headers":{"X-Api-Key":%q}}`, strings.Join(sent, ", "))},
			{FormatTraefik, fmt.Sprintf(`{"DownstreamStatus":200,"request_X-Api-Key":%q}`, strings.Join(sent, ","))},
			{FormatCaddy, fmt.Sprintf(`{"status":200,"request":{"headers":{"X-Api-Key":%s}}}`, list)},
			{FormatECS, fmt.Sprintf(`{"http":{"response":{"status_code":200},"request":{"headers":{"X-Api-Key":%s}}}}`, list)},
			{FormatWeir, fmt.Sprintf(`{"v":1,"api_key":%q}`, strings.Join(sent, ","))},
			{FormatWeir, string(AppendEvent(nil, &Request{Headers: lines}))},
			{FormatProtobuf, string(AppendProtobuf(nil, &Request{Headers: lines}))},
		} {
			var r Request
			if err := mustDecoder(t, log.format, nil).Decode([]byte(log.line), &r); err != nil {
				t.Fatal(err)
			}
			if id, missing := vouched.FromEvent(&r); id.APIKey != "" || missing[FieldAPIKey] != MissingRepeated {
				t.Errorf("%q in %s: %q, %v", sent, log.line, id.APIKey, missing[FieldAPIKey])
			}
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

// TestAHeaderLoggedTwiceIsNotRepeated: an owner of a log may have one header in two places of it.
func TestAHeaderLoggedTwiceIsNotRepeated(t *testing.T) {
	x := identifierOf(t, nil)
	for format, line := range map[string]string{
		FormatNginx: `{"status":200,"http_x_device_id":"d","headers":{"X-Device-Id":"d"}}`,
		FormatECS:   `{"http.request.headers.x-device-id":"d","http":{"request":{"headers":{"X-Device-Id":["d"]}},"response":{"status_code":200}}}`,
	} {
		var r Request
		if err := mustDecoder(t, format, nil).Decode([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if id, missing := x.FromEvent(&r); id.Device != "d" || missing[FieldDevice] != Present {
			t.Errorf("%s: %q, %v", line, id.Device, missing[FieldDevice])
		}
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

// gatewayStrings writes a header's value into JSON as each gateway does: as a string, with its quotes.
var gatewayStrings = map[string]func(string) string{
	FormatNginx:    nginxString,
	FormatCaddy:    zapString,
	FormatTraefik:  func(s string) string { b, _ := json.Marshal(s); return string(b) },
	FormatWeir:     func(s string) string { return string(appendJSONString(nil, s)) },
	FormatProtobuf: func(s string) string { return s },
}

// nginxString is escape=json of nginx's log_format: other bytes than control characters, quotes and backslashes are raw.
func nginxString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteString("\\" + string(rune(c)))
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if c < ' ' {
				fmt.Fprintf(&b, `\u%04X`, c)
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String() + `"`
}

// zapString is how zap, which Caddy logs by, writes strings: what is no UTF-8 as \ufffd.
func zapString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b.WriteString("\\" + string(r))
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\ufffd`)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String() + `"`
}

// sameAtBothEnds writes a request with this device as each gateway logs it, and compares what is read with what the gate
// sees.
func sameAtBothEnds(t *testing.T, x *Identifier, value string) {
	t.Helper()
	switch value {
	case "", "-", "REDACTED":
		return // logs write these where there is nothing
	}
	gate, why := atGate(x, Header{"X-Device-Id", value})
	for format, write := range gatewayStrings {
		text := write(value)
		var line string
		switch format {
		case FormatNginx:
			line = `{"status":200,"http_x_device_id":` + text + `}`
		case FormatCaddy:
			line = `{"status":200,"request":{"headers":{"X-Device-Id":[` + text + `]}}}`
		case FormatTraefik:
			line = `{"DownstreamStatus":200,"request_X-Device-Id":` + text + `}`
		case FormatWeir:
			line = `{"v":1,"device":` + text + `}`
		case FormatProtobuf:
			line = string(AppendProtobuf(nil, &Request{Device: text}))
		}
		var r Request
		if err := mustDecoder(t, format, nil).Decode([]byte(line), &r); err != nil {
			t.Fatalf("%s: %q: %v", format, line, err)
		}
		event, missing := x.FromEvent(&r)
		if event.Device != gate.Device || missing[FieldDevice] != why[FieldDevice] {
			t.Fatalf("%s: %q: event %q (%v), gate %q (%v)", format, value, event.Device, missing[FieldDevice], gate.Device, why[FieldDevice])
		}
	}
}

// TestOddBytesAreOneIdentityAtBothEnds: programs write bytes that are no text each in their own way, and a client that
// sends them must not be counted under one value and looked for under another.
func TestOddBytesAreOneIdentityAtBothEnds(t *testing.T) {
	x := identifierOf(t, nil)
	for c := range 256 {
		for _, value := range []string{string([]byte{byte(c)}), "k" + string([]byte{byte(c)}) + "x", string([]byte{0xc3, byte(c)}), string([]byte{byte(c), byte(c)})} {
			sameAtBothEnds(t, x, value)
		}
	}
	for _, value := range []string{"\ufffd", "é", "\u0085", "\u2028", "\xe7\x95", "\xed\xa0\x80", `\ud800`, `\u0001`, strings.Repeat("\xff", 90), strings.Repeat("é\x01", 120)} {
		sameAtBothEnds(t, x, value)
	}
}

// FuzzIdentityBytes looks for bytes that an event and a gate read as two clients.
func FuzzIdentityBytes(f *testing.F) {
	for _, value := range []string{"tv-7", "k\xff", "a\x01b", "é", " x\t", "\xed\xa0\x80", "\ufffd", strings.Repeat("\xff", 90)} {
		f.Add(value)
	}
	x := identifierOf(f, nil)
	f.Fuzz(func(t *testing.T, value string) {
		sameAtBothEnds(t, x, value)
		if got := readable(value); !utf8.ValidString(got) || readable(got) != got {
			t.Fatalf("%q reads as %q", value, got)
		}
	})
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
		{Request{User: "victim", Claimed: theUser, Headers: []Header{{"X-User-Id", "attacker"}}}, Identity{User: "victim"}},
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
