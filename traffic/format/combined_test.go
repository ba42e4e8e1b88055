package format

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// theUser is the set of the user alone.
const theUser = traffic.FieldSet(1 << traffic.FieldUser)

const combinedTime traffic.Time = 1431857103_000000

func TestCombined(t *testing.T) {
	const head = `192.0.2.1 - - [17/May/2015:10:05:03 +0000] `
	base := traffic.Request{HasTime: true, Time: combinedTime, IP: "192.0.2.1", Method: "GET", Path: "/a", Status: 200, Bytes: 12, UserAgent: "curl/8"}
	with := func(change func(*traffic.Request)) traffic.Request {
		r := base
		change(&r)
		return r
	}
	for _, c := range []struct {
		name, in string
		want     traffic.Request
	}{
		{"combined", head + `"GET /a HTTP/1.1" 200 12 "http://x/" "curl/8"`, base},
		{"line end", head + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"` + "\r\n", base},
		{"more fields", head + `"GET /a HTTP/1.1" 200 12 "-" "curl/8" "1.2.3.4" 0.003 "x`, base},
		{"query", head + `"GET /a?b=c HTTP/2.0" 200 12 "-" "curl/8"`, base},
		{"without protocol", head + `"GET /a" 200 12 "-" "curl/8"`, base},
		{"common", head + `"GET /a HTTP/1.1" 200 12`, with(func(r *traffic.Request) { r.UserAgent = "" })},
		{"no bytes", head + `"GET /a HTTP/1.1" 304 - "-" "-"`, with(func(r *traffic.Request) { r.UserAgent, r.Status, r.Bytes = "", 304, 0 })},
		{"ends at the status", head + `"GET /a HTTP/1.1" 200`, with(func(r *traffic.Request) { r.UserAgent, r.Bytes = "", 0 })},
		{"user agent never closed", head + `"GET /a HTTP/1.1" 200 12 "-" "Mozilla/5.0 (cut`, with(func(r *traffic.Request) { r.UserAgent = "" })},
		{"closing quote is escaped", head + `"GET /a HTTP/1.1" 200 12 "-" "cut\"`, with(func(r *traffic.Request) { r.UserAgent = "" })},
		{"referer never closed", head + `"GET /a HTTP/1.1" 200 12 "cut`, with(func(r *traffic.Request) { r.UserAgent = "" })},
		{"quote within the user agent", head + `"GET /a HTTP/1.1" 200 12 "-" "a"b"`, with(func(r *traffic.Request) { r.UserAgent = "" })},
		{"escapes", head + `"GET /\x22\\\"\xe4%20 HTTP/1.1" 200 12 "\x" "a\tb\q\x4"`, with(func(r *traffic.Request) { r.Path, r.UserAgent = "/\"\\\"\xe4%20", "a\tb\\q\\x4" })},
		{"target with spaces", head + `"GET /a b HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.Path = "/a b" })},
		{"no request", head + `"-" 408 0 "-" "-"`, with(func(r *traffic.Request) { r.Method, r.Path, r.UserAgent, r.Status, r.Bytes = "", "", "", 408, 0 })},
		{"empty request", head + `"" 400 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.Method, r.Path, r.Status = "", "", 400 })},
		{"TLS hello", head + `"\x16\x03\x01 \x00" 400 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.Method, r.Path, r.Status = "", "", 400 })},
		{"user", strings.Replace(head, "- -", "- bob", 1) + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.User, r.Claimed = "bob", theUser })},
		{"empty user", strings.Replace(head, "- -", `- ""`, 1) + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"`, base},
		{"user of two words", strings.Replace(head, "- -", "- John Doe", 1) + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.User, r.Claimed = "John Doe", theUser })},
		{"user with brackets", strings.Replace(head, "- -", "- [x] [", 1) + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.User, r.Claimed = "[x] [", theUser })},
		{"user with a time", strings.Replace(head, "- -", "- [01/Jan/2015:00:00:00 +0000]", 1) + `"GET /a HTTP/1.1" 200 12 "-" "curl/8"`,
			with(func(r *traffic.Request) { r.User, r.Claimed = "[01/Jan/2015:00:00:00 +0000]", theUser })},
		{"ISO time", `192.0.2.1 - - [2015-05-17T10:05:03+00:00] "GET /a HTTP/1.1" 200 12 "-" "curl/8"`, base},
		{"IPv6", `2001:db8::1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.IP = "2001:db8::1" })},
		{"no address", `- - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8"`, with(func(r *traffic.Request) { r.IP = "" })},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got traffic.Request
			if err := mustDecoder(t, Combined, nil).Decode([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestCombinedRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`hello`:           `malformed event: column 1: got "hello", allowed: ip ident user [time]`,
		`{"ip":"x"}`:      "malformed event: column 1",
		`192.0.2.1 -`:     "malformed event: column 11",
		`192.0.2.1 - - x`: `malformed event: column 13: got "- x", allowed: the user and the [time]`,
		`192.0.2.1 - - [17/Mai/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`: `bad_value event: column 15: time: got "[17/Mai/2015`,
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] GET / 200 1`:            "malformed event: column 13",
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1 200 1`:  `malformed event: column 43: got " \"GET`,
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" - 1`:   `malformed event: column 61: status: got "-"`,
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1"`:       `status: got "", allowed: three digits`,
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 2e1 1`: `status: got "2e1"`,
		`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 x`: `bad_value event: column 65: bytes: got "x"`,
	} {
		var r traffic.Request
		if err := mustDecoder(t, Combined, nil).Decode([]byte(in), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
}

// TestCombinedIsLinear has a line that would take hours if each bracket were looked at to the line's end.
func TestCombinedIsLinear(t *testing.T) {
	line := `192.0.2.1 - ` + strings.Repeat("[", 1<<20-100)
	if got := reasonOf(mustDecoder(t, Combined, nil).Decode([]byte(line), new(traffic.Request))); got != ReasonMalformed {
		t.Fatalf("got %q", got)
	}
}
