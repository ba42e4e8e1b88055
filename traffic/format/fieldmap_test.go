package format

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func TestParseFieldMap(t *testing.T) {
	got, err := ParseFieldMap("time=ts, user_agent=ua,user=claims.sub")
	want := map[string]string{"time": "ts", "user_agent": "ua", "user": "claims.sub"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
	if got, err := ParseFieldMap(""); err != nil || got != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	for in, want := range map[string]string{
		"time":           `got "time", allowed: event field=member`,
		"time=ts,":       `got ""`,
		"time=a,time=b":  `"time" is mapped twice`,
		"agent=ua":       `got event field "agent", allowed: time, id, ip, forwarded_for, device, user, api_key, session, method, host, path, route, status, user_agent, latency_ms, bytes, plan, attrs, headers, gateway, verdict, verdict.rule, verdict.block`,
		"time=":          `event field time: got member ""`,
		"time=a.":        `got member "a."`,
		"control=closed": `got event field "control"`,
	} {
		if _, err := ParseFieldMap(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", in, err, want)
		}
	}
}

func TestMappedDecode(t *testing.T) {
	for _, c := range []struct {
		name, fields, in string
		want             traffic.Request
	}{
		{"own names without a map", "", `{"id":"a","status":200,"x":1}`, traffic.Request{ID: "a", Status: 200, UnknownFields: 1}},
		{"renamed", "time=ts,user_agent=ua", `{"seq":1,"ts":"2023-07-10T11:42:36Z","ua":"x","ip":"10.0.0.1"}`,
			traffic.Request{HasTime: true, Time: 1688989356_000000, UserAgent: "x", IP: "10.0.0.1", UnknownFields: 1}},
		{"a mapped field has lost its own name", "user=sub", `{"user":"a","sub":"b"}`, traffic.Request{User: "b", UnknownFields: 1}},
		{"nested", "user=claims.sub,ip=net.peer.ip", `{"claims":{"sub":"u","x":[]},"net":{"peer":{"ip":"::1"},"y":1}}`, traffic.Request{User: "u", IP: "::1"}},
		{"dots in a name", "status=http.status", `{"http.status":404}`, traffic.Request{Status: 404}},
		{"not an object on the way", "user=claims.sub", `{"claims":"none","id":"a"}`, traffic.Request{ID: "a"}},
		{"null on the way", "user=claims.sub", `{"claims":null}`, traffic.Request{}},
		{"one member, two fields", "user=sub,session=sub", `{"sub":"u"}`, traffic.Request{User: "u", Session: "u"}},
		{"a member and what is in it", "attrs=claims,user=claims.sub", `{"claims":{"sub":"u"},"id":"a"}`,
			traffic.Request{User: "u", ID: "a", Attrs: []byte(`{"sub":"u"}`)}},
		{"a member of another field's name", "user=ip", `{"ip":"1.1.1.1"}`, traffic.Request{User: "1.1.1.1", IP: "1.1.1.1"}},
		{"numbers where text is wanted", "", `{"user":42,"id":-1.50e3,"verdict":{"block":7}}`, traffic.Request{User: "42", Claimed: theUser, ID: "-1.50e3", Verdict: traffic.Verdict{Block: "7"}}},
		{"text where numbers are wanted", "", `{"status":"200","bytes":"17","latency_ms":"0.250"}`, traffic.Request{Status: 200, Bytes: 17, LatencyUS: 250}},
		{"nginx writes 000", "", `{"status":"000"}`, traffic.Request{}},
		{"dashes and empty text", "", `{"user":"-","ip":"","status":"-","bytes":"","latency_ms":"-","time":"-","host":"--"}`, traffic.Request{Host: "--"}},
		{"time_local", "", `{"time":"17/May/2015:10:05:03 +0000"}`, traffic.Request{HasTime: true, Time: 1431857103_000000}},
		{"time without zone", "", `{"time":"2015-05-17T10:05:03"}`, traffic.Request{HasTime: true, Time: 1431857103_000000}},
		{"msec of nginx", "time=msec", `{"msec":"1431857103.250"}`, traffic.Request{HasTime: true, Time: 1431857103_250000}},
		{"verdict in parts", "verdict.rule=weir_rule,verdict.block=weir_block", `{"weir_rule":"r","weir_block":"b","verdict":{"rule":"x"}}`,
			traffic.Request{Verdict: traffic.Verdict{Rule: "r", Block: "b"}, UnknownFields: 1}},
		{"query is cut", "path=request_uri", `{"request_uri":"/a?b"}`, traffic.Request{Path: "/a"}},
		{"last name wins", "user=a.b", `{"a":{"b":"1"},"a":{"b":"2"}}`, traffic.Request{User: "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, err := ParseFieldMap(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			var got traffic.Request
			if err := mustDecoder(t, JSON, fields).Decode([]byte(c.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMappedRefuses(t *testing.T) {
	d := mustDecoder(t, JSON, map[string]string{"user": "claims.sub", "time": "ts"})
	for in, want := range map[string]string{
		`{"claims":{"sub":true}}`:     "wrong_type event: column 18: user: got true, allowed: a string or a number",
		`{"claims":{"sub":"u"}`:       "malformed event: column 22",
		`{"claims":{"sub":"u",}}`:     "malformed event: column 22",
		`{"claims":`:                  "malformed event: column 11: got the end of the message, allowed: a value",
		`{"status":"2oo"}`:            `bad_value event: column 11: status: got "2oo"`,
		`{"ts":"tomorrow"}`:           `bad_value event: column 7: time: got "tomorrow", allowed: RFC 3339`,
		`{"ts":[]}`:                   "wrong_type event: column 7: time: got an array",
		`{"bytes":"1` + "\x00" + `"}`: "malformed event: column 12: control character",
		`"text"`:                      "malformed event: column 1",
	} {
		var r traffic.Request
		if err := d.Decode([]byte(in), &r); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
}
