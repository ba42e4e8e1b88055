package condition

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

func language(t testing.TB) *Language {
	t.Helper()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// event is one of a shop, with attrs of every type.
func event() *Event {
	at, _ := traffic.ParseClient("203.0.113.9")
	e := &Event{}
	e.Reset(&traffic.Request{
		Time: 1_764_000_000_000_000, HasTime: true, ID: "r-1", Method: "post", Host: "API.example.com", Path: "/v1/login", Route: "login", Status: 401,
		UserAgent: "tv/3.1", LatencyUS: 12500, Bytes: 345, Plan: "free", Gateway: "edge-3",
		Attrs:   []byte(`{"country": "DE", "cost": 7, "ratio": 0.25, "staff": false, "nothing": null, "tags": ["a", "b", 3], "deep": {"er": {"x-y": "z"}}, "with.dot": 1, "zone": "eu-1", "esc": "a\u00e9"}`),
		Headers: []traffic.Header{{Name: "X-App-Version", Value: "2.1"}, {Name: "Accept", Value: "a"}, {Name: "accept", Value: "b"}},
	}, &traffic.Identity{IP: at, Device: "tv-7", User: "u-42"})
	return e
}

// Each line is an expression and what it comes to: true, false, or a fault.
const verdicts = `
event.plan == "free" => true
event.plan != "free" => false
event.plan == "" => false
event.api_key == "" => true
has(event.api_key) => false
has(event.plan) && has(event.time) && has(event.status) && has(event.latency_ms) => true
event.method == "POST" => true
event.host == "api.example.com" => true
event.ip == "203.0.113.9" && event.ip.startsWith("203.0.") => true
event.device in ["tv-6", "tv-7"] => true
event.status >= 400 && event.status < 500 => true
event.status in [401, 403] => true
400 <= event.status => true
500 < event.status => false
event.latency_ms > 12 && event.latency_ms == 12.5 => true
event.bytes > 344.5 => true
event.path.startsWith("/v1/") && event.path.endsWith("login") && event.path.contains("/log") => true
event.path.matches("^/v[0-9]+/login$") => true
event.time.getHours() == 16 => true
event.time.getHours("+01:00") == 17 => true
event.time > timestamp("2025-01-01T00:00:00Z") => true
size(event.plan) == 4 => true
event.attrs.country == "DE" => true
event.attrs["country"] == "DE" => true
event.attrs.country != "DE" => false
event.attrs.country in ["AT", "DE"] => true
event.attrs.cost > 5 && event.attrs.cost == 7.0 && event.attrs.cost < 7.5 => true
event.attrs.ratio < 1 => true
event.attrs.staff => false
!event.attrs.staff => true
event.attrs.staff == false => true
event.attrs.nothing == null => true
has(event.attrs.nothing) => true
event.attrs.deep.er["x-y"] == "z" => true
event.attrs["with.dot"] == 1 => true
has(event.attrs.with.dot) => false
event.attrs.esc == "aé" => true
"a" in event.attrs.tags => true
3 in event.attrs.tags => true
"c" in event.attrs.tags => false
event.attrs.tags[0] == "a" => true
event.attrs.tags[9] == "a" => false
"country" in event.attrs => true
event.headers["x-app-version"] == "2.1" => true
event.headers["X-APP-VERSION"] == "2.1" => true
event.headers.accept == "a, b" => true
has(event.headers["x-none"]) => false
event.headers["x-none"] == "" => false
event.attrs.none == "x" => false
event.attrs.none != "x" => false
event.attrs.none < 5 => false
event.attrs.none >= 5 => false
event.attrs.none in ["x"] => false
"x" in event.attrs.none => false
event.attrs.none => false
!event.attrs.none => true
!(event.attrs.none == "x") => true
event.attrs.none.startsWith("x") => false
event.attrs.none.matches("x") => false
event.attrs.none == "x" || event.plan == "free" => true
event.attrs.none == "x" && event.plan == "free" => false
event.attrs.none.deeper.still == 1 => false
event.attrs.country.deeper == 1 => false
event.attrs[event.plan] == 1 => false
(has(event.attrs.none) ? event.attrs.none : 0) < 5 => true
has(event.attrs.none) ? event.attrs.none < 5 : event.plan == "free" => true
event.attrs.country == 5 => false
event.attrs.country != 5 => true
event.attrs.country < 5 => fault type
event.attrs.country < 5 || event.plan == "free" => true
event.attrs.country < 5 && event.plan == "gold" => false
event.attrs.country < 5 && event.plan == "free" => fault type
!(event.attrs.country < 5) => fault type
event.attrs.country => fault type
event.attrs.cost.startsWith("7") => fault type
event.attrs.tags < 5 => fault type
event.attrs.tags == "a" => false
event.status / event.attrs.zero > 1 => false
event.status / (event.status - 401) > 1 => fault value
int(event.plan) > 1 => fault value
true => true
!false => true
`

func TestVerdicts(t *testing.T) {
	l, e := language(t), event()
	for line := range strings.Lines(strings.TrimSpace(verdicts)) {
		expr, want, _ := strings.Cut(strings.TrimSpace(line), " => ")
		c, err := l.Compile(expr)
		if err != nil {
			t.Errorf("%s\n%v", expr, err)
			continue
		}
		if got := said(c, e); got != want {
			t.Errorf("%s: got %s, want %s", expr, got, want)
		}
		if c, err = l.compile(expr, mode{program: true}); err != nil {
			t.Errorf("%s as a program: %v", expr, err)
		} else if got := said(c, e); got != want {
			t.Errorf("%s as a program: got %s, want %s", expr, got, want)
		}
	}
}

func said(c *Condition, e *Event) string {
	holds, f := c.Holds(e)
	switch {
	case f != Fine && holds:
		return "a fault that holds"
	case f != Fine:
		return "fault " + f.String()
	case holds:
		return "true"
	}
	return "false"
}

// Each mistake is told with its place, what was found, what is allowed and, where there is one, what was probably meant.
func TestErrors(t *testing.T) {
	const fields = "allowed event. and one of id, time, ip, device, user, api_key, session, method, host, path, route, status, user_agent, latency_ms, bytes, plan, gateway, attrs, headers"
	const cel = `allowed a condition in CEL, true or false, such as event.plan == "free" && event.status >= 400`
	const whole = `allowed has(event.FIELD), has(event.attrs.NAME), has(event.headers["NAME"])`
	l := language(t)
	for _, test := range []struct{ expr, want string }{
		{`event.plann == "free"`, `line 1, column 1: got "event.plann", which no event has, ` + fields + "; did you mean event.plan?"},
		{"event.status > 400 &&\n  event.PLAN == \"a\"", `line 2, column 3: got "event.PLAN", which no event has, ` + fields + "; did you mean event.plan?"},
		{`event.cost > 1`, `line 1, column 1: got "event.cost", which no event has, ` + fields + "; did you mean event.host?"},
		{`event.zebra > 1`, `line 1, column 1: got "event.zebra", which no event has, ` + fields + "; members of your own are in event.attrs"},
		{`plan == "free"`, `line 1, column 1: got "plan", which nothing is called, allowed event.FIELD, literals, operators and functions of CEL; did you mean event.plan?`},
		{`event.plan = "free"`, `line 1, column 12: got no CEL (token recognition error at: '= '), ` + cel + "; == compares"},
		{`event.plan == "free" and true`, `line 1, column 22: got no CEL (mismatched input 'and'), ` + cel + "; && is and"},
		{"event.plan ==\n  5", "line 1, column 12: got == with a text and a whole number, allowed two values of one type; a text is written in quotes, a number without"},
		{`event.latency_ms == 5`, "line 1, column 18: got == with a number with decimals and a whole number, allowed two values of one type; write the whole number with a point: 5.0"},
		{`event.plan`, "line 1, column 1: got an expression that gives a text, " + cel + "; compare it with something"},
		{`event.status + 1`, "line 1, column 1: got an expression that gives a whole number, " + cel + "; compare it with something"},
		{`event.plan && true`, "line 1, column 6: got a text, allowed true or false; compare it with something"},
		{`event == 1`, "line 1, column 1: got event as a whole, " + fields},
		{`event.plan.x == 1`, `line 1, column 1: got "event.plan.x", allowed event.plan, which has no members`},
		{`event.headers == 1`, `line 1, column 1: got event.headers without the name of one header, allowed event.headers["x-app-version"]`},
		{`has(plan)`, "line 1, column 5: got has() of something else than a member of the event, " + whole},
		{`has(event)`, "line 1, column 5: got has() of something else than a member of the event, " + whole},
		{`event.attrs.tags.exists(x, x == 1)`, `line 1, column 24: got "exists", which would be a loop, allowed conditions without loops; in asks whether a list has a value`},
		{`event.path.matches(event.plan)`, `line 1, column 25: got a pattern that is not written out, allowed a text: event.path.matches("^/v[0-9]+/login$")`},
		{`event.path.matches("(")`, "line 1, column 20: got a pattern that is none (error parsing regexp: missing closing ): `(`), allowed a regular expression of RE2"},
		{`event.path.matches("a{999}")`, "line 1, column 20: got patterns of 1001 instructions, allowed at most 500 in one condition; repetitions like {100} count as often as they repeat"},
		{`event.time.getHours("Europe/Berlin") == 1`, `line 1, column 21: got "Europe/Berlin", allowed "UTC" or an offset such as "+01:00"; what a zone's name means differs between machines`},
		{`event.plan.startWith("x")`, `line 1, column 21: got "startWith", which nothing is called, allowed event.FIELD, literals, operators and functions of CEL; did you mean startsWith?`},
		{``, "got nothing, " + cel},
		{"event.plan == '\xff'", `got an expression with bytes that cannot be seen, allowed printable text; escapes such as \n in quotes`},
		{`(`, "line 1, column 2: got no CEL (mismatched input '<EOF>'), " + cel},
		{`google.protobuf.Value{} == 1`, `line 1, column 22: got "google.protobuf.Value", a message of a type of its own, allowed texts, numbers, lists and maps`},
		{strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), "line 1, column 65: got one more bracket within others, allowed at most 64 levels"},
		{strings.Repeat("x", 3000), "got an expression of 3000 bytes, allowed at most 2048 bytes"},
		{strings.Repeat("event.user_agent.contains(event.path) || ", 40) + "true", "line 1, column 1: got an expression that may cost 26843640 steps for one event, allowed at most 100000; compare fewer texts with each other, or split the rule"},
	} {
		_, err := l.Compile(test.expr)
		var e *Error
		if !errors.As(err, &e) || err.Error() != test.want {
			t.Errorf("%s\ngot  %v\nwant %s", test.expr, err, test.want)
		}
	}
	var many strings.Builder
	for i := range MaxValues + 1 {
		fmt.Fprintf(&many, "event.attrs.a%d == 1 || ", i)
	}
	if _, err := l.Compile(many.String() + "true"); err == nil || !strings.Contains(err.Error(), "at most 16 in one condition") {
		t.Errorf("%d values: %v", MaxValues+1, err)
	}
}

// Values at the bounds: what is behind MaxText does not count, and an object beyond MaxComposite is a fault.
func TestBounds(t *testing.T) {
	l := language(t)
	long := strings.Repeat("a", MaxText)
	e := &Event{}
	for _, test := range []struct {
		expr, path, attrs, want string
	}{
		{`event.path.endsWith("b")`, long + "b", "", "false"},
		{`event.path.endsWith("a")`, long + "b", "", "true"},
		{`event.path.matches("b$")`, long + "b", "", "false"},
		{`size(event.path) == 8192`, long + "b", "", "true"},
		{`size(event.attrs.x) == 8192`, "", `{"x": "` + long + `b"}`, "true"},
		{`event.attrs.x.contains("b")`, "", `{"x": "` + long + `b"}`, "false"},
		{`has(event.attrs.x)`, "", `{"x": ["` + strings.Repeat("a", MaxComposite) + `"]}`, "true"},
		{`"a" in event.attrs.x`, "", `{"x": ["` + strings.Repeat("a", MaxComposite) + `"]}`, "fault size"},
		{`event.attrs.x == "a"`, "", `{"x": ["` + strings.Repeat("a", MaxComposite) + `"]}`, "fault size"},
		{`event.attrs.x in ["a"]`, "", `{"x": ["` + strings.Repeat("a", MaxComposite) + `"]}`, "fault size"},
		{`event.attrs.x < "a"`, "", `{"x": ["` + strings.Repeat("a", MaxComposite) + `"]}`, "fault size"},
		{`event.attrs.x > 1`, "", `{"x": 1e999}`, "true"},
		{`event.attrs.x == 9007199254740993`, "", `{"x": 9007199254740993}`, "true"},
		{`event.attrs.x == 9007199254740992`, "", `{"x": 9007199254740993}`, "false"},
		{`event.attrs.x == 1`, "", `{"x": 0, "x": 10e-1}`, "true"},
		{`event.attrs == 1`, "", `1`, "true"},
		{`event.attrs.x == 1`, "", `[{"x": 1}]`, "false"},
		{`event.attrs.x == 1`, "", ``, "false"},
	} {
		for _, program := range []bool{false, true} {
			c, err := l.compile(test.expr, mode{program: program})
			if err != nil {
				t.Fatalf("%s: %v", test.expr, err)
			}
			e.Reset(&traffic.Request{Path: test.path, Attrs: []byte(test.attrs)}, &traffic.Identity{})
			if got := said(c, e); got != test.want {
				t.Errorf("%s, program %v: got %s, want %s", test.expr, program, got, test.want)
			}
		}
	}
}

// An event's memory is used again: nothing of the one before is left.
func TestReset(t *testing.T) {
	l, e := language(t), &Event{}
	for _, program := range []bool{false, true} {
		c, err := l.compile(`event.ip == "203.0.113.9" && event.plan == "a"`, mode{program: program})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := traffic.ParseClient("203.0.113.9")
		for _, plan := range []string{"a", "b", "a"} {
			e.Reset(&traffic.Request{Plan: plan}, &traffic.Identity{IP: at})
			if holds, _ := c.Holds(e); holds != (plan == "a") {
				t.Errorf("program %v, plan %s: %v", program, plan, holds)
			}
			e.Reset(&traffic.Request{Plan: plan}, &traffic.Identity{})
			if holds, _ := c.Holds(e); holds {
				t.Errorf("program %v, plan %s: the address of the event before is left", program, plan)
			}
		}
	}
}

func TestReads(t *testing.T) {
	l := language(t)
	got := l.Reads(`event.plan == "a" || has(event.attrs.a.b) || event.attrs["c"] == 1 || event.headers["X-A"] == "1" || event.plan == ""`)
	if want := "attrs.a.b attrs.c headers.x-a plan"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if got := l.Reads("event.nothing"); got != nil {
		t.Errorf("of what does not compile: %v", got)
	}
}

// Everything that is wrong with an expression is told at once, each at its own place, whichever stage of the compiler finds it.
func TestAllErrorsAreToldAtOnce(t *testing.T) {
	const expr = `event.pth == "x" || [1, 2].exists(x, x > 1) || event.foo(3) || event.user.substring(1) == "" ||
  event.status == "1" || event.method == GET || has(event.plam) || event.path.matches("(") || 1 == "a"`
	_, err := language(t).Compile(expr)
	bad := (*Error)(nil)
	if !errors.As(err, &bad) {
		t.Fatalf("got %v, want an *Error", err)
	}
	want := []struct {
		line, column int
		got, hint    string
	}{
		{1, 1, `"event.pth", which no event has`, "did you mean event.path?"},
		{1, 34, `"exists", which would be a loop`, "in asks whether a list has a value"},
		{1, 57, `"foo" as a function of the event`, "the event has fields only: event.FIELD, without ()"},
		{1, 84, `"substring", which nothing is called`, "did you mean string?"},
		{2, 16, "== with a whole number and a text", "a text is written in quotes, a number without"},
		{2, 42, `"GET", which nothing is called`, `a text is written in quotes: "GET"`},
		{2, 53, `"event.plam", which no event has`, "did you mean event.plan?"},
		{2, 87, "a pattern that is none (error parsing regexp: missing closing ): `(`)", ""},
		{2, 97, "== with a whole number and a text", "a text is written in quotes, a number without"},
	}
	if len(bad.Problems) != len(want) {
		t.Errorf("got %d problems, want %d", len(bad.Problems), len(want))
	}
	for i, p := range bad.Problems[:min(len(bad.Problems), len(want))] {
		if w := want[i]; p.Line != w.line || p.Column != w.column || p.Got != w.got || p.Hint != w.hint {
			t.Errorf("problem %d: got %+v, want %+v", i, p, w)
		}
	}
}
