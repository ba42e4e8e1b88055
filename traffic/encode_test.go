package traffic

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// anyText draws any bytes, with what needs escaping more often than chance has it.
func anyText() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "\xff", `"`, `\`, "\n", "\x1f", "\x7f", "é", "界", "😀", "\u2028", `\u0000`, "\xed\xa0\x80", "<&>"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 12), func(b []byte) string { return string(b) }),
		rapid.StringMatching(`[a-z0-9./-]{0,20}`),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 4), func(p []string) string { return strings.Join(p, "") })
}

func anyRequest(t *rapid.T) Request {
	text := func(name string) string { return anyText().Draw(t, name) }
	r := Request{
		ID: text("id"), IP: text("ip"), Forwarded: text("forwarded"), Device: text("device"), User: text("user"),
		APIKey: text("api key"), Session: text("session"), Method: text("method"), Host: text("host"),
		Path: cutQuery(text("path")), Route: text("route"), UserAgent: text("user agent"), Plan: text("plan"),
		Gateway: text("gateway"), Verdict: Verdict{Rule: text("rule"), Block: text("block")},
		Status:    rapid.IntRange(0, maxStatus).Draw(t, "status"),
		LatencyUS: rapid.Int64Min(0).Draw(t, "latency"),
		Bytes:     rapid.Int64Min(0).Draw(t, "bytes"),
	}
	if rapid.Bool().Draw(t, "timed") {
		r.HasTime, r.Time = true, Time(rapid.Int64Range(int64(minEventTime), int64(maxEventTime)).Draw(t, "time"))
	}
	if attrs := rapid.SampledFrom([]string{"", "null", `{"a":[1,2.5e3,"x"]}`, `"é"`, "[ ]", "-0"}).Draw(t, "attrs"); attrs != "" {
		r.Attrs = []byte(attrs)
	}
	for f := FieldDevice; f < NumFields; f++ {
		if rapid.Bool().Draw(t, "claimed") {
			r.Claimed = r.Claimed.With(f)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{Name: text("name"), Value: text("value")})
	}
	return r
}

func TestAppendEventRoundTrip(t *testing.T) {
	d := mustDecoder(t, FormatWeir, nil)
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
		var got Request
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
	r := Request{HasTime: true, Time: EndOfTime, Status: 1000, Bytes: -1, LatencyUS: -1, Path: "/a?b", UnknownFields: 3}
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
