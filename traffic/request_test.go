package traffic

import (
	"strings"
	"time"

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

// anyRequest draws a request with any texts.
func anyRequest(t *rapid.T) Request {
	text := func(name string) string { return anyText().Draw(t, name) }
	r := Request{
		ID: text("id"), IP: text("ip"), Forwarded: text("forwarded"), Device: text("device"), User: text("user"),
		APIKey: text("api key"), Session: text("session"), Method: text("method"), Host: text("host"),
		Path: text("path"), Route: text("route"), UserAgent: text("user agent"), Plan: text("plan"),
		Gateway: text("gateway"), Verdict: Verdict{Rule: text("rule"), Block: text("block")},
		Status:    rapid.IntRange(0, 999).Draw(t, "status"),
		LatencyUS: rapid.Int64Min(0).Draw(t, "latency"),
		Bytes:     rapid.Int64Min(0).Draw(t, "bytes"),
	}
	if rapid.Bool().Draw(t, "timed") {
		r.HasTime, r.Time = true, Time(rapid.Int64Range(-62167219200_000000, 253402300799_999999).Draw(t, "time"))
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

// fullRequest has every member.
func fullRequest() Request {
	return Request{
		Time: At(time.Date(2026, 11, 21, 5, 6, 7, 123456000, time.UTC)), HasTime: true, ID: "r-1", IP: "192.0.2.1:4711",
		Forwarded: "203.0.113.9, 198.51.100.2", Device: "tv-7", User: "u1", APIKey: "k1", Session: "s1", Method: "POST",
		Host: "api.example.com", Path: "/v1/guest-tokens", Route: "guest", Status: 201, UserAgent: "curl/8",
		LatencyUS: 12500, Bytes: 345, Plan: "free", Attrs: []byte(`{"a":[1,"b"]}`),
		Headers: []Header{{"X-A", "1"}, {"x-b", "2"}}, Gateway: "gw-3", Verdict: Verdict{Rule: "flood", Block: "b-9"},
		UnknownFields: 1,
	}
}
