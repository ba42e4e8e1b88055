package format

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// TestARepeatedHeaderIsNobody: of several lines of one header, one server takes the first, another the last. Whose request
// it is can't be told, at a gate or in an event, and where a log has joined the lines neither.
func TestARepeatedHeaderIsNobody(t *testing.T) {
	vouched := identifierOf(t, func(m *traffic.IdentityMap) { m.APIKey.Vouched = true })
	for _, sent := range [][]string{{"k1", "k2"}, {"k1", "k1"}, {"k1", ""}, {"", "k1"}, {"", ""}, {"k1", "k2", "k3"}, {"k1,k2"}} {
		var lines []traffic.Header
		for _, v := range sent {
			lines = append(lines, traffic.Header{Name: "X-Api-Key", Value: v})
		}
		list, _ := json.Marshal(sent)
		if id, missing := atGate(vouched, lines...); id.APIKey != "" || missing[traffic.FieldAPIKey] != traffic.MissingRepeated {
			t.Errorf("%q at a gate: %q, %v", sent, id.APIKey, missing[traffic.FieldAPIKey])
		}
		for _, log := range []struct{ format, line string }{
			{Nginx, fmt.Sprintf(`{"status":200,"http_x_api_key":%q}`, strings.Join(sent, ", "))},
			{Nginx, fmt.Sprintf(`{"status":200,"headers":{"X-Api-Key":%q}}`, strings.Join(sent, ", "))},
			{Traefik, fmt.Sprintf(`{"DownstreamStatus":200,"request_X-Api-Key":%q}`, strings.Join(sent, ","))},
			{Caddy, fmt.Sprintf(`{"status":200,"request":{"headers":{"X-Api-Key":%s}}}`, list)},
			{ECS, fmt.Sprintf(`{"http":{"response":{"status_code":200},"request":{"headers":{"X-Api-Key":%s}}}}`, list)},
			{Weir, fmt.Sprintf(`{"v":1,"api_key":%q}`, strings.Join(sent, ","))},
			{Weir, string(AppendEvent(nil, &traffic.Request{Headers: lines}))},
			{Protobuf, string(AppendProtobuf(nil, &traffic.Request{Headers: lines}))},
		} {
			var r traffic.Request
			if err := mustDecoder(t, log.format, nil).Decode([]byte(log.line), &r); err != nil {
				t.Fatal(err)
			}
			if id, missing := vouched.FromEvent(&r); id.APIKey != "" || missing[traffic.FieldAPIKey] != traffic.MissingRepeated {
				t.Errorf("%q in %s: %q, %v", sent, log.line, id.APIKey, missing[traffic.FieldAPIKey])
			}
		}
	}
}

// TestAHeaderLoggedTwiceIsNotRepeated: an owner of a log may have one header in two places of it.
func TestAHeaderLoggedTwiceIsNotRepeated(t *testing.T) {
	x := identifierOf(t, nil)
	for format, line := range map[string]string{
		Nginx: `{"status":200,"http_x_device_id":"d","headers":{"X-Device-Id":"d"}}`,
		ECS:   `{"http.request.headers.x-device-id":"d","http":{"request":{"headers":{"X-Device-Id":["d"]}},"response":{"status_code":200}}}`,
	} {
		var r traffic.Request
		if err := mustDecoder(t, format, nil).Decode([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if id, missing := x.FromEvent(&r); id.Device != "d" || missing[traffic.FieldDevice] != traffic.Present {
			t.Errorf("%s: %q, %v", line, id.Device, missing[traffic.FieldDevice])
		}
	}
}

// gatewayStrings writes a header's value into JSON as each gateway does: as a string, with its quotes.
var gatewayStrings = map[string]func(string) string{
	Nginx:    nginxString,
	Caddy:    zapString,
	Traefik:  func(s string) string { b, _ := json.Marshal(s); return string(b) },
	Weir:     func(s string) string { return string(appendJSONString(nil, s)) },
	Protobuf: func(s string) string { return s },
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
func sameAtBothEnds(t *testing.T, x *traffic.Identifier, value string) {
	t.Helper()
	switch value {
	case "", "-", "REDACTED":
		return // logs write these where there is nothing
	}
	gate, why := atGate(x, traffic.Header{Name: "X-Device-Id", Value: value})
	for format, write := range gatewayStrings {
		text := write(value)
		var line string
		switch format {
		case Nginx:
			line = `{"status":200,"http_x_device_id":` + text + `}`
		case Caddy:
			line = `{"status":200,"request":{"headers":{"X-Device-Id":[` + text + `]}}}`
		case Traefik:
			line = `{"DownstreamStatus":200,"request_X-Device-Id":` + text + `}`
		case Weir:
			line = `{"v":1,"device":` + text + `}`
		case Protobuf:
			line = string(AppendProtobuf(nil, &traffic.Request{Device: text}))
		}
		var r traffic.Request
		if err := mustDecoder(t, format, nil).Decode([]byte(line), &r); err != nil {
			t.Fatalf("%s: %q: %v", format, line, err)
		}
		event, missing := x.FromEvent(&r)
		if event.Device != gate.Device || missing[traffic.FieldDevice] != why[traffic.FieldDevice] {
			t.Fatalf("%s: %q: event %q (%v), gate %q (%v)", format, value, event.Device, missing[traffic.FieldDevice], gate.Device, why[traffic.FieldDevice])
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
	})
}

// atGate is the identity of a request with these header lines.
func atGate(x *traffic.Identifier, lines ...traffic.Header) (traffic.Identity, traffic.Missing) {
	h := http.Header{}
	for _, l := range lines {
		h.Add(l.Name, l.Value)
	}
	return x.FromCarrier(&traffic.Carrier{Peer: "192.0.2.1:4711", Header: h})
}

// identifierOf is the identifier of the default map with a change.
func identifierOf(t testing.TB, change func(*traffic.IdentityMap)) *traffic.Identifier {
	t.Helper()
	m := traffic.DefaultIdentityMap()
	if change != nil {
		change(&m)
	}
	x, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return x
}
