package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

const fullEvent = `{"v":1,"time":"2026-11-21T05:06:07.123456Z","id":"r-1","ip":"192.0.2.1:4711","forwarded_for":"203.0.113.9, 198.51.100.2",
	"device":"tv-7","user":"u1","api_key":"k1","session":"s1","method":"POST","host":"api.example.com","path":"/v1/guest-tokens?x=1",
	"route":"guest","status":201,"user_agent":"curl/8","latency_ms":12.5,"bytes":345,"plan":"free","attrs":{"a":[1,"b"]},
	"headers":{"X-A":"1","x-b":"2"},"gateway":"gw-3","verdict":{"rule":"flood","block":"b-9"},"other":[{}]}`

func fullRequest() traffic.Request {
	return traffic.Request{
		Time: traffic.At(time.Date(2026, 11, 21, 5, 6, 7, 123456000, time.UTC)), HasTime: true, ID: "r-1", IP: "192.0.2.1:4711",
		Forwarded: "203.0.113.9, 198.51.100.2", Device: "tv-7", User: "u1", APIKey: "k1", Session: "s1", Method: "POST",
		Host: "api.example.com", Path: "/v1/guest-tokens", Route: "guest", Status: 201, UserAgent: "curl/8",
		LatencyUS: 12500, Bytes: 345, Plan: "free", Attrs: []byte(`{"a":[1,"b"]}`),
		Headers: []traffic.Header{{Name: "X-A", Value: "1"}, {Name: "x-b", Value: "2"}}, Gateway: "gw-3", Verdict: traffic.Verdict{Rule: "flood", Block: "b-9"},
		UnknownFields: 1,
	}
}

func TestWeirDecodesEveryMember(t *testing.T) {
	var got traffic.Request
	if err := mustDecoder(t, Weir, nil).Decode([]byte(fullEvent), &got); err != nil {
		t.Fatal(err)
	}
	if want := fullRequest(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestWeirDecodeOverwritesEverything(t *testing.T) {
	d := mustDecoder(t, Weir, nil)
	var r traffic.Request
	if err := d.Decode([]byte(fullEvent), &r); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode([]byte(`{}`), &r); err != nil {
		t.Fatal(err)
	}
	r.Headers = append([]traffic.Header(nil), r.Headers...)
	if !reflect.DeepEqual(r, traffic.Request{}) {
		t.Fatalf("left over: %+v", r)
	}
}

func TestWeirValues(t *testing.T) {
	d := mustDecoder(t, Weir, nil)
	for _, c := range []struct {
		name, in string
		want     traffic.Request
	}{
		{"empty object", " {\n} \r\n", traffic.Request{}},
		{"nulls are nothing", `{"v":null,"time":null,"id":null,"status":null,"bytes":null,"latency_ms":null,"headers":null,"verdict":null}`, traffic.Request{}},
		{"null attrs are a value", `{"attrs":null}`, traffic.Request{Attrs: []byte("null")}},
		{"attrs without the space around", `{"attrs": [ 1 ] ,"id":"x"}`, traffic.Request{Attrs: []byte("[ 1 ]"), ID: "x"}},
		{"last name wins", `{"id":"a","id":"b","verdict":{"rule":"x"},"verdict":{"block":"y"},"headers":{"a":"1"},"headers":{"b":"2"}}`,
			traffic.Request{ID: "b", Verdict: traffic.Verdict{Block: "y"}, Headers: []traffic.Header{{Name: "b", Value: "2"}}}},
		{"last null wins", `{"id":"a","time":1,"status":3,"id":null,"time":null,"status":null}`, traffic.Request{}},
		{"escapes", `{"id":"\"\\\/\b\f\n\r\t\u0000\u00e9\u754c"}`, traffic.Request{ID: "\"\\/\b\f\n\r\t\x00é界"}},
		{"escaped name", `{"\u0069d":"a"}`, traffic.Request{ID: "a"}},
		{"surrogate pair", `{"id":"\ud83d\ude00!"}`, traffic.Request{ID: "😀!"}},
		{"lone surrogates", `{"id":"\ud83d|\ude00\ud83d\ud83d\ude00\ud83dx\u0041"}`, traffic.Request{ID: "\ufffd|\ufffd\ufffd😀\ufffdxA"}},
		{"raw bytes stay", "{\"user\":\"a\xff\xc0b\xed\xa0\x80\"}", traffic.Request{User: "a\xff\xc0b\xed\xa0\x80"}},
		{"raw bytes beside escapes", "{\"user\":\"a\xff\\n\xfe\"}", traffic.Request{User: "a\xff\n\xfe"}},
		{"query is cut", `{"path":"/a/b?c=d?e"}`, traffic.Request{Path: "/a/b"}},
		{"names have a case", `{"ID":"a"}`, traffic.Request{UnknownFields: 1}},
		{"unknown members", `{"a":1,"b":{"id":"x"},"c":[[]],"d":"e","f":true,"g":false,"h":null}`, traffic.Request{UnknownFields: 7}},
		{"epoch seconds", `{"time":1700000000.1234567}`, traffic.Request{HasTime: true, Time: 1700000000_123456}},
		{"epoch milliseconds", `{"time":1700000000123}`, traffic.Request{HasTime: true, Time: 1700000000_123000}},
		{"epoch microseconds", `{"time":1700000000123456}`, traffic.Request{HasTime: true, Time: 1700000000_123456}},
		{"epoch nanoseconds", `{"time":1700000000123456789}`, traffic.Request{HasTime: true, Time: 1700000000_123456}},
		{"epoch with exponent", `{"time":1.7e9}`, traffic.Request{HasTime: true, Time: 1700000000_000000}},
		{"the epoch itself", `{"time":0}`, traffic.Request{HasTime: true}},
		{"before the epoch", `{"time":-0.0000015}`, traffic.Request{HasTime: true, Time: -2}},
		{"offset", `{"time":"2026-11-21T05:06:07+01:30"}`, traffic.Request{HasTime: true, Time: traffic.At(time.Date(2026, 11, 21, 3, 36, 7, 0, time.UTC))}},
		{"spellings of a whole number", `{"status":2e2,"bytes":1.50e1}`, traffic.Request{Status: 200, Bytes: 15}},
		{"greatest bytes", `{"bytes":9223372036854775807}`, traffic.Request{Bytes: 9223372036854775807}},
		{"latency is cut to a microsecond", `{"latency_ms":0.0019}`, traffic.Request{LatencyUS: 1}},
		{"version in another spelling", `{"v":1.0}`, traffic.Request{}},
		{"unknown verdict member", `{"verdict":{"rule":"a","why":["x"]}}`, traffic.Request{Verdict: traffic.Verdict{Rule: "a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got traffic.Request
			if err := d.Decode([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestWeirRefuses(t *testing.T) {
	d := mustDecoder(t, Weir, nil)
	for _, c := range []struct{ in, reason, detail string }{
		{`[]`, ReasonMalformed, `column 1: got "[]", allowed: an object, {`},
		{`{"id":"a"`, ReasonMalformed, "column 10: got the end of the message, allowed: a comma or }"},
		{`{"id":"a"} x`, ReasonMalformed, `column 12: got "x", allowed: nothing after the event`},
		{`{"id":"a"}{}`, ReasonMalformed, "column 11"},
		{`{"id":"a",}`, ReasonMalformed, "a member name in double quotes"},
		{`{"id" "a"}`, ReasonMalformed, "a colon"},
		{`{id:"a"}`, ReasonMalformed, "a member name in double quotes"},
		{`{"id":"a`, ReasonMalformed, "column 7: a string without its closing quote"},
		{`{"id":"a\`, ReasonMalformed, "without its closing quote"},
		{`{"id":"\x"}`, ReasonMalformed, "column 8: escape"},
		{`{"id":"\u12g4"}`, ReasonMalformed, "four hex digits"},
		{"{\"id\":\"a\nb\"}", ReasonMalformed, "control character 0x0a"},
		{"{\"id\":\"a\x00b\"}", ReasonMalformed, "control character 0x00"},
		{"\xef\xbb\xbf{}", ReasonMalformed, "column 1"},
		{`{"id":tru}`, ReasonMalformed, "allowed: true"},
		{`{"id":x}`, ReasonMalformed, "allowed: a value"},
		{`{"x":tru}`, ReasonMalformed, "allowed: true"},
		{`{"status":-}`, ReasonMalformed, "a digit"},
		{`{"status":01}`, ReasonMalformed, "a comma or }"},
		{`{"id":7}`, ReasonWrongType, "column 7: id: got a number, allowed: a string"},
		{`{"id":{"secret":1}}`, ReasonWrongType, "id: got an object, allowed: a string"},
		{`{"id":{"secret":}}`, ReasonMalformed, "a value"},
		{`{"api_key":["k"]}`, ReasonWrongType, "api_key: got an array"},
		{`{"status":"200"}`, ReasonWrongType, "status: got a string, allowed: a whole number"},
		{`{"time":true}`, ReasonWrongType, "time: got true, allowed: an RFC 3339 string"},
		{`{"headers":[]}`, ReasonWrongType, "headers: got an array, allowed: an object of strings"},
		{`{"headers":{"a":1}}`, ReasonWrongType, "headers: got a number"},
		{`{"verdict":"x"}`, ReasonWrongType, "verdict: got a string"},
		{`{"verdict":{"rule":false}}`, ReasonWrongType, "verdict.rule: got false"},
		{`{"status":1000}`, ReasonBadValue, `status: got "1000", allowed: a whole number from 0 to 999`},
		{`{"status":-1}`, ReasonBadValue, "status"},
		{`{"status":200.5}`, ReasonBadValue, "status"},
		{`{"bytes":9223372036854775808}`, ReasonBadValue, "bytes"},
		{`{"bytes":1e999999999999}`, ReasonBadValue, "bytes"},
		{`{"latency_ms":-1}`, ReasonBadValue, "latency_ms"},
		{`{"time":"yesterday"}`, ReasonBadValue, `column 9: time: got "yesterday", allowed: an RFC 3339 string`},
		{`{"time":""}`, ReasonBadValue, "time"},
		{`{"time":"2026-11-21T05:06:07"}`, ReasonBadValue, "time"},
		{`{"time":1e30}`, ReasonBadValue, "time"},
		{`{"time":-99999999999}`, ReasonBadValue, "time"},
		{`{"v":2}`, ReasonVersion, `v: got "2", allowed: 1`},
		{`{"v":"1"}`, ReasonWrongType, "v: got a string"},
		{`{"v":1,"control":"end"}`, ReasonMalformed, "control: a reserved member"},
		{`{"attrs":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1) + `}`, ReasonMalformed, "nested too deep, allowed: 512 levels"},
	} {
		var r traffic.Request
		err := d.Decode([]byte(c.in), &r)
		if got := reasonOf(err); got != c.reason {
			t.Errorf("%s: got %q (%v), want %q", c.in, got, err, c.reason)
		} else if !strings.Contains(decodeError(err).Detail, c.detail) {
			t.Errorf("%s: got %q, want %q in it", c.in, err, c.detail)
		}
	}
}

func TestDeepestNesting(t *testing.T) {
	in := `{"attrs":` + strings.Repeat(`[{"a":`, maxDepth/2) + `1` + strings.Repeat("}]", maxDepth/2) + `}`
	if err := mustDecoder(t, Weir, nil).Decode([]byte(in), new(traffic.Request)); err != nil {
		t.Fatal(err)
	}
}

func TestEndMark(t *testing.T) {
	d := mustDecoder(t, Weir, nil, AllowControl())
	var r traffic.Request
	if err := d.Decode(EndMark(), &r); err != nil || r.Control != ControlEnd {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got := string(AppendEvent(nil, &r)); got != string(EndMark()) {
		t.Fatalf("encoded as %s", got)
	}
	for _, in := range []string{
		`{"control":"begin"}`, `{"control":null}`, `{"control":1}`, `{"control":"END"}`,
		`{"control":"end","id":"x"}`, `{"id":"x","control":"end"}`, `{"control":"end","more":1}`,
	} {
		if got := reasonOf(d.Decode([]byte(in), &r)); got != ReasonMalformed {
			t.Errorf("%s: got %q", in, got)
		}
	}
	if err := d.Decode([]byte(`{"id":"x"}`), &r); err != nil || r.Control != "" {
		t.Errorf("an event in a replay: %+v, %v", r, err)
	}
	for _, format := range []string{Weir, JSON} {
		live := mustDecoder(t, format, nil)
		if err := live.Decode(EndMark(), &r); err == nil && r.Control != "" {
			t.Errorf("%s: a live stream took an end mark", format)
		}
	}
}

// anyText draws any bytes, with what needs escaping more often than chance has it.
func anyText() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "\xff", `"`, `\`, "\n", "\x1f", "\x7f", "é", "界", "😀", "\u2028", `\u0000`, "\xed\xa0\x80", "<&>"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 12), func(b []byte) string { return string(b) }),
		rapid.StringMatching(`[a-z0-9./-]{0,20}`),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 4), func(p []string) string { return strings.Join(p, "") })
}

func anyRequest(t *rapid.T) traffic.Request {
	text := func(name string) string { return anyText().Draw(t, name) }
	r := traffic.Request{
		ID: text("id"), IP: text("ip"), Forwarded: text("forwarded"), Device: text("device"), User: text("user"),
		APIKey: text("api key"), Session: text("session"), Method: text("method"), Host: text("host"),
		Path: cutQuery(text("path")), Route: text("route"), UserAgent: text("user agent"), Plan: text("plan"),
		Gateway: text("gateway"), Verdict: traffic.Verdict{Rule: text("rule"), Block: text("block")},
		Status:    rapid.IntRange(0, maxStatus).Draw(t, "status"),
		LatencyUS: rapid.Int64Min(0).Draw(t, "latency"),
		Bytes:     rapid.Int64Min(0).Draw(t, "bytes"),
	}
	if rapid.Bool().Draw(t, "timed") {
		r.HasTime, r.Time = true, traffic.Time(rapid.Int64Range(int64(minEventTime), int64(maxEventTime)).Draw(t, "time"))
	}
	if attrs := rapid.SampledFrom([]string{"", "null", `{"a":[1,2.5e3,"x"]}`, `"é"`, "[ ]", "-0"}).Draw(t, "attrs"); attrs != "" {
		r.Attrs = []byte(attrs)
	}
	for f := traffic.FieldDevice; f < traffic.NumFields; f++ {
		if rapid.Bool().Draw(t, "claimed") {
			r.Claimed = r.Claimed.With(f)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, traffic.Header{Name: text("name"), Value: text("value")})
	}
	return r
}

func TestAppendEventRoundTrip(t *testing.T) {
	d := mustDecoder(t, Weir, nil)
	rapid.Check(t, func(t *rapid.T) {
		want := anyRequest(t)
		text := AppendEvent([]byte("before"), &want)
		if string(text[:6]) != "before" {
			t.Fatal("did not append")
		}
		text = text[6:]
		if !json.Valid(text) {
			t.Fatalf("no JSON: %q", text)
		}
		var got traffic.Request
		if err := d.Decode(text, &got); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\ngot  %+v\nwant %+v", text, got, want)
		}
		if utf8.Valid(text) {
			var std struct{ ID, User string }
			if err := json.Unmarshal(text, &std); err != nil || std.ID != want.ID || std.User != want.User {
				t.Fatalf("encoding/json reads %+v, %v", std, err)
			}
		}
	})
}

func TestAppendEventLeavesOutWhatTheFormatCannotSay(t *testing.T) {
	r := traffic.Request{HasTime: true, Time: traffic.EndOfTime, Status: 1000, Bytes: -1, LatencyUS: -1, Path: "/a?b", UnknownFields: 3}
	if got, want := string(AppendEvent(nil, &r)), `{"v":1,"path":"/a"}`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestAppendMillis(t *testing.T) {
	for us, want := range map[int64]string{1: "0.001", 10: "0.01", 100: "0.1", 1000: "1", 1500: "1.5", 123456: "123.456", 2000010: "2000.01"} {
		if got := string(appendMillis(nil, us)); got != want {
			t.Errorf("%d: got %s, want %s", us, got, want)
		}
	}
}

// A decoder takes for the next member's name what came next in an event before. Whatever that was, and whoever else reads by the
// same decoder, an event says what it says to a new one.
func TestMembersInAnyOrder(t *testing.T) {
	t.Parallel()
	members := []string{
		`"v":1`, `"time":"2026-11-21T05:06:07Z"`, `"id":"a"`, `"ip":"192.0.2.1"`, `"user":"u"`, `"user" : "w"`, `"user":null`, `"user_agent":"x"`,
		`"path":"/p"`, `"plan": "free"`, `"status":404`, `"u":1`, `"us":[{}]`, `"attrs":{"user":"n"}`, `"latency_ms":1.5`, `"\u0069d":"b"`,
	}
	shared := mustDecoder(t, Weir, nil)
	readers := make(chan error, 4)
	for reader := range cap(readers) {
		events := rapid.Custom(func(t *rapid.T) string {
			return "{" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(members), 0, 12).Draw(t, "members"), rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma")) + "}"
		})
		go func() {
			readers <- func() error {
				for seed := range 500 {
					event := []byte(events.Example(500*reader + seed))
					fresh := newWeirDecoder(DefaultMaxEventBytes, false)
					var got, want traffic.Request
					if err := errors.Join(shared.Decode(event, &got), fresh.Decode(event, &want)); err != nil {
						return fmt.Errorf("%s: %w", event, err)
					}
					if !reflect.DeepEqual(got, want) {
						return fmt.Errorf("%s:\ngot  %+v\nwant %+v", event, got, want)
					}
				}
				return nil
			}()
		}()
	}
	for range cap(readers) {
		if err := <-readers; err != nil {
			t.Error(err)
		}
	}
}
