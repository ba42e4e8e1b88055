package format

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// sampleRequest is what all samples have in common: a request that passed, or the one that weir refused.
func sampleRequest(at string, refused bool, change func(r *traffic.Request)) traffic.Request {
	r := traffic.Request{
		HasTime: true, IP: "127.0.0.1", Forwarded: "192.0.2.66, 203.0.113.9", Method: "POST", Host: "api.example.com",
		Path: "/v1/guest-tokens", Status: 201, UserAgent: `tv/3.1 "beta" é`, Headers: []traffic.Header{{Name: "X-Device-Id", Value: "tv-7"}},
	}
	if err := r.Time.UnmarshalText([]byte(at)); err != nil {
		panic(err) // a typing error in the table
	}
	if refused {
		r.Status, r.Headers[0].Value = 429, "tv-held"
		r.Verdict = traffic.Verdict{Rule: "guest-token-flood", Block: "0123456789abcdef"}
	}
	change(&r)
	return r
}

// TestSamples reads the lines that the real programs wrote: testdata/gateways/README.md says which.
func TestSamples(t *testing.T) {
	want := map[string][2]traffic.Request{
		Nginx: {
			sampleRequest("2026-11-21T07:06:38.284Z", false, func(r *traffic.Request) {
				r.ID, r.Bytes, r.LatencyUS, r.Gateway = "160b9723dcc59d9e35d74c23cb0378f3", 15, 1000, "edge-3"
			}),
			sampleRequest("2026-11-21T07:06:38.285Z", true, func(r *traffic.Request) {
				r.ID, r.Bytes, r.Gateway = "3ba83e2aba73ca8599c13deabbb0e37f", 255, "edge-3"
			}),
		},
		Envoy: {
			sampleRequest("2026-11-21T07:04:26.772Z", false, func(r *traffic.Request) {
				r.ID, r.IP, r.Bytes, r.Route, r.Gateway = "43950e3b-7fe9-41c5-9ee8-38476cf725a4", "198.51.100.2:40000", 15, "guest", "edge-3"
			}),
			sampleRequest("2026-11-21T07:04:26.774Z", true, func(r *traffic.Request) {
				r.ID, r.IP, r.Route, r.Gateway = "7c2bd743-f070-4e88-a0ad-3fb3281d2840", "198.51.100.2:40000", "guest", "edge-3"
			}),
		},
		Caddy: {
			sampleRequest("2026-11-21T07:04:36.917589Z", false, func(r *traffic.Request) {
				r.ID, r.Bytes, r.LatencyUS = "ac74ef5a-f20e-4f5c-98aa-5f953d4a4498", 15, 997
				r.Headers = append(r.Headers, traffic.Header{Name: "Accept-Encoding", Value: "gzip"}, traffic.Header{Name: "Connection", Value: "close"}, traffic.Header{Name: "Content-Length", Value: "0"})
			}),
			sampleRequest("2026-11-21T07:04:36.918335Z", true, func(r *traffic.Request) {
				r.ID, r.LatencyUS = "11c696d8-7146-4b35-b594-924cc1aa1bbd", 200
				r.Headers = []traffic.Header{{Name: "Content-Length", Value: "0"}, r.Headers[0], {Name: "Accept-Encoding", Value: "gzip"}, {Name: "Connection", Value: "close"}}
			}),
		},
		Traefik: {
			sampleRequest("2026-11-21T07:04:37.296125Z", false, func(r *traffic.Request) {
				r.ID, r.IP, r.Route, r.Bytes, r.LatencyUS = "req-of-the-client", "127.0.0.1:47042", "api@file", 15, 824
			}),
			sampleRequest("2026-11-21T07:04:37.296858Z", true, func(r *traffic.Request) {
				r.ID, r.IP, r.Route, r.LatencyUS = "req-of-the-client", "127.0.0.1:47050", "api@file", 164
			}),
		},
		HAProxy: {
			sampleRequest("2026-11-21T07:04:39.319Z", false, func(r *traffic.Request) {
				r.ID, r.Bytes, r.Gateway = "9c033ddb-001f-4749-9bbb-7d3011526d97", 140, "edge-3"
			}),
			sampleRequest("2026-11-21T07:04:39.319Z", true, func(r *traffic.Request) {
				r.ID, r.Bytes, r.Gateway = "b824afeb-9a9b-408f-813c-22e55e7cf82e", 166, "edge-3"
			}),
		},
		ECS: {
			sampleRequest("2026-11-21T05:06:07.123Z", false, func(r *traffic.Request) {
				r.ID, r.IP, r.Forwarded, r.User, r.UserAgent = "req-7f3a", "198.51.100.2", "192.0.2.66,203.0.113.9", "u-42", "tv/3.1"
				r.Claimed = theUser
				r.LatencyUS, r.Bytes, r.Gateway = 12500, 345, "edge-3"
			}),
			sampleRequest("2026-11-21T05:06:08.123Z", true, func(r *traffic.Request) {
				r.IP, r.UserAgent, r.LatencyUS, r.Bytes, r.Gateway = "198.51.100.2", "tv/3.1", 500, 512, "edge-3"
				r.Headers[0].Name = "x-device-id"
			}),
		},
	}
	for i := range namedFormats {
		format := namedFormats[i].name
		for n, line := range sampleLines(t, format) {
			var got traffic.Request
			if err := mustDecoder(t, format, nil).Decode([]byte(line), &got); err != nil {
				t.Errorf("%s: %v", format, err)
			} else if !reflect.DeepEqual(got, want[format][n]) {
				t.Errorf("%s\ngot  %+v\nwant %+v", line, got, want[format][n])
			}
		}
	}
}

// TestNamedFormats are logs that people have, and what programs write in odd cases.
func TestNamedFormats(t *testing.T) {
	for _, c := range []struct {
		name, format, fields, in string
		want                     traffic.Request
	}{
		{"nginx's variables", Nginx, "", `{"time_local":"21/Nov/2026:05:06:07 +0000","remote_addr":"::1","remote_user":"ann","request":"GET /a?b HTTP/1.1",
			"status": "200","bytes_sent":"900","body_bytes_sent":"800","request_time":"0.005","http_referrer":"-","http_user_agent":"x","server_name":"s","upstream":"u",
			"http_x_api_key":"k","http_cookie":"sid=1","sent_http_x_weir_rule":"r"}`,
			traffic.Request{HasTime: true, Time: 1795237567_000000, IP: "::1", User: "ann", Claimed: theUser, Method: "GET", Path: "/a", Status: 200, Bytes: 800, LatencyUS: 5000,
				Host: "s", UserAgent: "x", Headers: []traffic.Header{{Name: "x-api-key", Value: "k"}, {Name: "cookie", Value: "sid=1"}}, Verdict: traffic.Verdict{Rule: "r"}}},
		{"the exact time wins in any order", Nginx, "", `{"time_iso8601":"2026-11-21T05:06:07+00:00","msec":"1795237567.250","time_local":"21/Nov/2026:05:06:07 +0000","status":"200"}`,
			traffic.Request{HasTime: true, Time: 1795237567_250000, Status: 200}},
		{"an empty member gives way", Nginx, "", `{"msec":"","time_iso8601":"2026-11-21T05:06:07+00:00","request_uri":"-","request":"GET /x HTTP/2.0"}`,
			traffic.Request{HasTime: true, Time: 1795237567_000000, Method: "GET", Path: "/x"}},
		{"bytes of a TLS hello", Nginx, "", `{"request":"\u0016\u0003\u0001","request_method":"","request_uri":"","status":"400"}`, traffic.Request{Status: 400}},
		{"Istio", Envoy, "", `{"start_time":"2026-11-21T05:06:07.250Z","authority":"a","path":"/p?q","method":"GET","response_code":0,"duration":12,"bytes_sent":7,
			"upstream_host":"10.0.0.1:80","x_forwarded_for":"203.0.113.9,198.51.100.2","downstream_remote_address":"198.51.100.2:4711","request_id":"i","user_agent":null,"route_name":"default"}`,
			traffic.Request{HasTime: true, Time: 1795237567_262000, Host: "a", Path: "/p", Method: "GET", LatencyUS: 12000, Bytes: 7, Forwarded: "203.0.113.9",
				IP: "198.51.100.2:4711", ID: "i", Route: "default"}},
		{"Envoy Gateway", Envoy, "", `{":authority":"a","duration":1,"downstream_remote_address":"[2001:db8::1]:1","method":"GET","response_code":200,"start_time":"2026-11-21T05:06:07Z",
			"user-agent":"curl","x-envoy-origin-path":"/","x-forwarded-for":"2001:db8::1","x-request-id":"i"}`,
			traffic.Request{HasTime: true, Time: 1795237567_001000, Host: "a", LatencyUS: 1000, IP: "[2001:db8::1]:1", Method: "GET", Status: 200, UserAgent: "curl", Path: "/", ID: "i"}},
		{"Envoy has found the client by itself", Envoy, "", `{"downstream_direct_remote_address":"10.0.0.1:9","downstream_remote_address":"203.0.113.9:0","x_forwarded_for":"203.0.113.9, 10.0.0.1","method":"GET"}`,
			traffic.Request{IP: "203.0.113.9:0", Forwarded: "203.0.113.9", Method: "GET"}},
		{"Envoy appends nothing", Envoy, "", `{"downstream_remote_address":"10.0.0.1:9","x_forwarded_for":"203.0.113.9, 10.0.0.2","method":"GET"}`,
			traffic.Request{IP: "10.0.0.1:9", Forwarded: "203.0.113.9, 10.0.0.2", Method: "GET"}},
		{"a mapped address is a peer too", Envoy, "ip=peer", `{"peer":"10.0.0.1:9","x_forwarded_for":"203.0.113.9, 10.0.0.1","method":"GET"}`,
			traffic.Request{IP: "10.0.0.1:9", Forwarded: "203.0.113.9", Method: "GET"}},
		{"Caddy hides credentials", Caddy, "", `{"ts":1795237567.25,"request":{"remote_addr":"1.2.3.4:5","method":"GET","uri":"/","headers":{"Authorization":["REDACTED"],"Cookie":[],"X-Api-Key":"REDACTED",
			"X-A":["1","2"],"X-Forwarded-For":["203.0.113.9","10.0.0.1"],"X-B":[null,"b"]}},"duration":1.5e-3,"resp_headers":{"X-Weir-Rule":["r"]}}`,
			traffic.Request{HasTime: true, Time: 1795237567_250000, IP: "1.2.3.4:5", Method: "GET", Path: "/", Headers: []traffic.Header{{Name: "X-A", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "X-B", Value: ""}, {Name: "X-B", Value: "b"}},
				Forwarded: "203.0.113.9,10.0.0.1", LatencyUS: 1500, Verdict: traffic.Verdict{Rule: "r"}}},
		{"Traefik's ClientHost is the client's word", Traefik, "", `{"ClientHost":"6.6.6.6","ClientAddr":"10.0.0.1:5","RequestMethod":"GET","request_Authorization":"REDACTED","request_X-Forwarded-For":"6.6.6.6","Duration":1999}`,
			traffic.Request{IP: "10.0.0.1:5", Method: "GET", Forwarded: "6.6.6.6", LatencyUS: 1}},
		{"HAProxy gave up", HAProxy, "", `{"time":"","status":-1,"latency_ms":-1,"bytes":0,"method":"<BADREQ>","verdict":{"rule":"r","block":"b"},"attrs":[-1]}`,
			traffic.Request{Method: "<BADREQ>", Verdict: traffic.Verdict{Rule: "r", Block: "b"}, Attrs: []byte("[-1]")}},
		{"ECS, a URL", ECS, "", `{"@timestamp":"2026-11-21T05:06:07Z","url":{"full":"https://a.example?x=/y"},"source":{"address":"1.2.3.4"},"user":{"name":"ann"},"host":{"name":"h","hostname":"hh"}}`,
			traffic.Request{HasTime: true, Time: 1795237567_000000, Path: "/", IP: "1.2.3.4", User: "ann", Claimed: theUser, Gateway: "hh"}},
		{"ECS, headers in one", ECS, "", `{"http.request.method":"GET","http":{"request":{"headers":{"x-forwarded-for":"1.2.3.4","Authorization":"[REDACTED]","x-a":"b"}}}}`,
			traffic.Request{Method: "GET", Forwarded: "1.2.3.4", Headers: []traffic.Header{{Name: "x-a", Value: "b"}}}},
		{"a map replaces its entries only", Nginx, "user=sub,latency_ms=took,headers=h,verdict=w",
			`{"remote_user":"x","sub":7,"request_time":"1","took":2,"http_x_a":"1","h":{"X-B":"2"},"weir_rule":"no","w":{"rule":"r"},"status":200}`,
			traffic.Request{User: "7", LatencyUS: 2000, Headers: []traffic.Header{{Name: "X-B", Value: "2"}}, Verdict: traffic.Verdict{Rule: "r"}, Status: 200}},
		{"a map of half a verdict", Traefik, "verdict.rule=rule", `{"downstream_X-Weir-Rule":"no","downstream_X-Weir-Block":"b","rule":"r","DownstreamStatus":429}`,
			traffic.Request{Verdict: traffic.Verdict{Rule: "r", Block: "b"}, Status: 429}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, err := ParseFieldMap(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			var got traffic.Request
			if err := mustDecoder(t, c.format, fields).Decode([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestNamedFormatsRefuse(t *testing.T) {
	for _, c := range []struct{ format, in, want string }{
		{Nginx, `203.0.113.9 - - [21/Nov/2026:05:06:07 +0000] "GET / HTTP/1.1" 200 1`, `malformed event: column 1: got "203.0.11", allowed: an object, { (format nginx)`},
		{Caddy, `{"level":"info","ts":1795237567.25,"msg":"server running"}`, "malformed event: got neither method nor path nor status, allowed: a line of the access log (format caddy)"},
		{Caddy, `{"status":200,"duration":"1.5ms"}`, `bad_value event: column 26: latency_ms: got "1.5ms", allowed: a number of seconds from 0 (format caddy)`},
		{Caddy, `{"request":{"headers":{"X-A":[{}]}}}`, "wrong_type event: column 31: headers: got an object"},
		{Caddy, `{"request":{"headers":{"X-A":["a",]}}}`, "malformed event: column 35"},
		{Caddy, `{"request":{"headers":{"X-Forwarded-For":["a" "b"]}}}`, "malformed event: column 47: got \"\\\"b\\\"]}}}\", allowed: a comma or ]"},
		{Traefik, `{"Duration":true,"DownstreamStatus":200}`, "wrong_type event: column 13: latency_ms: got true, allowed: a number of nanoseconds"},
		{Envoy, `{"response_code":-1}`, "bad_value event: column 18: status"},
		{ECS, `{"@timestamp":"soon"}`, "bad_value event: column 15: time"},
		{HAProxy, ` `, "empty event: got 1 bytes of white space, allowed: one event (format haproxy)"},
		{HAProxy, `{"status":-1`, "malformed event: column 13"},
		{ECS, `{"user_agent":`, "malformed event: column 15: got the end of the message, allowed: a value"},
	} {
		var r traffic.Request
		if err := mustDecoder(t, c.format, nil).Decode([]byte(c.in), &r); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.in, err, c.want)
		}
	}
}

func TestFormats(t *testing.T) {
	want := []string{"weir", "weir-protobuf", "json", "combined", "nginx", "envoy", "caddy", "traefik", "haproxy", "ecs"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := LineNames(); !slices.Equal(got, append([]string{"weir"}, want[2:]...)) {
		t.Errorf("of files: got %v", got)
	}
	rule := map[string]string{"verdict.rule": "r"}
	for _, format := range append(want, "w3c") {
		named := !slices.Contains([]string{"weir", "weir-protobuf", "json", "combined", "w3c"}, format)
		own := format == "weir" || format == "weir-protobuf"
		if got := TakesFieldMap(format); got != (named || format == "json") {
			t.Errorf("%s takes a map: %v", format, got)
		}
		if got := CarriesVerdict(format, nil); got != (named || own) {
			t.Errorf("%s carries a verdict: %v", format, got)
		}
		if got := CarriesVerdict(format, rule); got != (named || own || format == "json") {
			t.Errorf("%s with a map carries a verdict: %v", format, got)
		}
		_, err := NewDecoder(format, map[string]string{"user": ""}, 0)
		switch {
		case err == nil:
			t.Errorf("%s took a map without a member", format)
		case TakesFieldMap(format) && !strings.Contains(err.Error(), `event field user: got member ""`):
			t.Errorf("%s: %v", format, err)
		case format == "w3c" && !strings.Contains(err.Error(), `format: got "w3c", allowed: weir, weir-protobuf, json, combined, nginx, envoy`):
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestPagesHoldTheTables looks for every source of a format in the table of its page, in order.
func TestPagesHoldTheTables(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| (.*) \\|$")
	for i := range namedFormats {
		f := &namedFormats[i]
		doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateways", f.name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		documented := map[string]string{}
		for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
			for field := range strings.SplitSeq(m[1], ", ") {
				documented[strings.Trim(field, "`")] = m[2]
			}
		}
		for _, s := range f.sources {
			field := memberNames[s.field]
			_, rest, ok := strings.Cut(documented[field], "`"+s.path+"`")
			if !ok {
				t.Errorf("docs/gateways/%s.md: the row of %s does not have `%s` at its place: %s", f.name, field, s.path, documented[field])
			}
			if ok && strings.Contains(rest, "`") {
				documented[field] = rest
			}
			for as, unit := range map[notation]string{asSeconds: "in seconds", asNanoseconds: "in nanoseconds"} {
				if s.as == as && !strings.Contains(rest, unit) {
					t.Errorf("docs/gateways/%s.md: %s is %s", f.name, s.path, unit)
				}
			}
		}
		for m := memberTime; f.ownNames && m < numMembers; m++ {
			if m != memberVerdict && documented[memberNames[m]] == "" {
				t.Errorf("docs/gateways/%s.md has no row of %s", f.name, memberNames[m])
			}
		}
		if !strings.Contains(string(doc), "--format "+f.name+" ") {
			t.Errorf("docs/gateways/%s.md shows no weir ingest", f.name)
		}
	}
}

// TestDocumentedECS reads the example of its page.
func TestDocumentedECS(t *testing.T) {
	line := strings.TrimSpace(documentedConfigs(t, ECS, "ecs")[0])
	var r traffic.Request
	if err := mustDecoder(t, ECS, nil).Decode([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(line)) || r.Verdict.Rule == "" || r.Forwarded == "" || len(r.Headers) != 1 || r.LatencyUS != 12500 {
		t.Errorf("got %+v", r)
	}
}
