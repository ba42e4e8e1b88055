package format

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// basicUserLines are access logs of a request with the header X-User-Id: attacker and, in Basic authentication, the user
// name victim, as each program tells of both. %s stands for what else a line has.
var basicUserLines = map[string]struct{ format, line, header string }{
	"nginx":          {Nginx, `{"remote_addr":"192.0.2.1","remote_user":"victim","status":"401"%s}`, `,"http_x_user_id":"attacker"`},
	"nginx, renamed": {Nginx, `{"remote_addr":"192.0.2.1","user":"victim","status":"401"%s}`, `,"headers":{"X-User-Id":"attacker"}`},
	"haproxy":        {HAProxy, `{"ip":"192.0.2.1","user":"victim","status":401%s}`, `,"headers":{"X-User-Id":"attacker"}`},
	"caddy":          {Caddy, `{"status":401,"user_id":"victim"%s}`, `,"request":{"headers":{"X-User-Id":["attacker"]}}`},
	"traefik":        {Traefik, `{"ClientAddr":"192.0.2.1:1","ClientUsername":"victim","DownstreamStatus":401%s}`, `,"request_X-User-Id":"attacker"`},
	"ecs, name":      {ECS, `{"source":{"ip":"192.0.2.1"},"user":{"name":"victim"},"http.response.status_code":401%s}`, `,"http":{"request":{"headers":{"X-User-Id":"attacker"}}}`},
	"ecs, id":        {ECS, `{"source":{"ip":"192.0.2.1"},"user":{"id":"victim"},"http.response.status_code":401%s}`, `,"http.request.headers.X-User-Id":"attacker"`},
	"combined":       {Combined, `192.0.2.1 - victim [21/Nov/2026:05:06:07 +0000] "POST /login HTTP/1.1" 401 0%s`, ""},
	"json":           {JSON, `{"ip":"192.0.2.1","user":"victim"%s}`, `,"headers":{"X-User-Id":"attacker"}`},
}

// TestAClaimedUserNeverFillsAVouchedField: anybody may write any user name into Basic authentication. Where a gateway
// vouches for another header, that name is nobody's identity, or anybody could have anybody counted, and blocked; also
// after weir ingest has written the line as an event of its own.
func TestAClaimedUserNeverFillsAVouchedField(t *testing.T) {
	vouched := identifierOf(t, func(m *traffic.IdentityMap) { m.User.Vouched = true })
	claimed := identifierOf(t, nil)
	for name, c := range basicUserLines {
		for _, header := range []string{c.header, ""} {
			var r traffic.Request
			if err := mustDecoder(t, c.format, nil).Decode([]byte(fmt.Sprintf(c.line, header)), &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var asEvent, asProto traffic.Request
			if err := mustDecoder(t, Weir, nil).Decode(AppendEvent(nil, &r), &asEvent); err != nil || asEvent.UnknownFields > 0 {
				t.Fatalf("%s: %v", name, err)
			}
			if err := mustDecoder(t, Protobuf, nil).Decode(AppendProtobuf(nil, &r), &asProto); err != nil || asProto.UnknownFields > 0 {
				t.Fatalf("%s: %v", name, err)
			}
			for way, event := range map[string]*traffic.Request{"as it is": &r, "as weir's event": &asEvent, "as weir's message": &asProto} {
				id, missing := vouched.FromEvent(event)
				if header != "" && id.User != "attacker" || header == "" && (id.User != "" || missing[traffic.FieldUser] != traffic.MissingClaimed) {
					t.Errorf("%s, %s, with the header %v, vouched: %q, %v", name, way, header != "", id.User, missing[traffic.FieldUser])
				}
				want := "victim"
				if header != "" {
					want = "attacker" // what the gate reads, too
				}
				if id, _ := claimed.FromEvent(event); id.User != want {
					t.Errorf("%s, %s, with the header %v, not vouched: %q, want %q", name, way, header != "", id.User, want)
				}
			}
		}
	}
}

// TestAMappedMemberIsTheGatewaysWord: what events.map names is not there by chance, except for what is a client's word
// under any name.
func TestAMappedMemberIsTheGatewaysWord(t *testing.T) {
	x := identifierOf(t, func(m *traffic.IdentityMap) { m.User.Vouched = true })
	for _, c := range []struct {
		format, fields, in string
		want               string
		missing            traffic.MissingReason
	}{
		{JSON, "user=user", `{"user":"u","headers":{"X-User-Id":"other"}}`, "u", traffic.Present},
		{JSON, "user=claims.sub", `{"claims":{"sub":"u"},"user":"basic"}`, "u", traffic.Present},
		{JSON, "device=user", `{"user":"u"}`, "", traffic.MissingClaimed},
		{Nginx, "user=jwt_sub", `{"jwt_sub":"u","remote_user":"basic","http_x_user_id":"other","status":200}`, "u", traffic.Present},
		{Nginx, "user=remote_user", `{"remote_user":"basic","status":200}`, "", traffic.MissingClaimed},
		{Traefik, "user=ClientUsername", `{"ClientUsername":"basic","DownstreamStatus":200}`, "", traffic.MissingClaimed},
		{Caddy, "user=user_id", `{"user_id":"checked","status":200}`, "checked", traffic.Present}, // set once Caddy has authenticated it
		{ECS, "user=user.id", `{"user":{"id":"u"},"http.response.status_code":200}`, "u", traffic.Present},
		{Weir, "", `{"v":1,"user":"u","headers":{"X-User-Id":"other"}}`, "u", traffic.Present},
		{Weir, "", `{"v":1,"user":"u","claimed":["user"],"headers":{"X-User-Id":"other"}}`, "other", traffic.Present},
		{Weir, "", `{"v":1,"user":"u","claimed":["device","user"]}`, "", traffic.MissingClaimed},
		{Weir, "", `{"v":1,"user":"u","claimed":["user"],"claimed":null}`, "u", traffic.Present},
		{Weir, "", `{"v":1,"user":"u","claimed":["user"],"claimed":[]}`, "u", traffic.Present},
	} {
		fields, err := ParseFieldMap(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		var r traffic.Request
		if err := mustDecoder(t, c.format, fields).Decode([]byte(c.in), &r); err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		if id, missing := x.FromEvent(&r); id.User != c.want || missing[traffic.FieldUser] != c.missing {
			t.Errorf("%s --map %s: %s: %q, %v", c.format, c.fields, c.in, id.User, missing[traffic.FieldUser])
		}
	}
}

// TestClaimedOfAnotherKind: events may have had a member of that name before it meant anything, and are taken as ever.
func TestClaimedOfAnotherKind(t *testing.T) {
	for in, unknown := range map[string]int{
		`{"user":"u","claimed":"user"}`: 1, `{"user":"u","claimed":{"user":true}}`: 1, `{"user":"u","claimed":false}`: 1,
		`{"user":"u","claimed":[1,["user"],"ip","plan"]}`: 4, `{"user":"u","claimed":null}`: 0, `{"user":"u","claimed":[]}`: 0,
	} {
		var r traffic.Request
		if err := mustDecoder(t, Weir, nil).Decode([]byte(in), &r); err != nil || r.User != "u" || r.Claimed != 0 || r.UnknownFields != unknown {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
	}
	for _, in := range []string{`{"claimed":["user"`, `{"claimed":["user",]}`, `{"claimed":["user" "device"]}`} {
		if err := mustDecoder(t, Weir, nil).Decode([]byte(in), new(traffic.Request)); reasonOf(err) != ReasonMalformed {
			t.Errorf("%s: %v", in, err)
		}
	}
}
