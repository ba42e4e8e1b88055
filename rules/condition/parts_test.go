package condition

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// outlineOf writes parts as and(a, or(b, c)), each part as it was written.
func outlineOf(p *Parts) string {
	if p.join == JoinNone {
		return p.condition.source
	}
	var of []string
	for _, part := range p.of {
		of = append(of, outlineOf(part))
	}
	return string(p.join) + "[" + strings.Join(of, " ; ") + "]"
}

// A condition is taken apart where its operators stand, and not where they stand in texts, comments, lists and calls.
func TestPartsAreThoseThatWereWritten(t *testing.T) {
	l := language(t)
	for expr, want := range map[string]string{
		"event.status == 404": "event.status == 404",
		`event.status == 404 && (event.attrs.tries > 3 || !has(event.attrs.ok)) && event.user_agent.matches("^curl")`: `and[event.status == 404 ; or[event.attrs.tries > 3 ; !has(event.attrs.ok)] ; event.user_agent.matches("^curl")]`,
		"event.attrs.a && event.attrs.b || event.attrs.c":                                                             "or[and[event.attrs.a ; event.attrs.b] ; event.attrs.c]",
		"event.attrs.a && (event.attrs.b && ((event.attrs.c)))":                                                       "and[event.attrs.a ; event.attrs.b ; event.attrs.c]",
		"!(event.attrs.a || event.attrs.b)":                                                                           "not[or[event.attrs.a ; event.attrs.b]]",
		"!!( event.attrs.a || event.attrs.b )":                                                                        "not[not[or[event.attrs.a ; event.attrs.b]]]",
		"!(event.status == 404) && !event.attrs.a":                                                                    "and[!(event.status == 404) ; !event.attrs.a]",
		"!(event.attrs.a || event.attrs.b) == true":                                                                   "!(event.attrs.a || event.attrs.b) == true",
		"(event.attrs.a || event.attrs.b) == (event.attrs.c && true)":                                                 "(event.attrs.a || event.attrs.b) == (event.attrs.c && true)",
		"event.attrs.a ? event.attrs.b && true : event.attrs.c || false":                                              "event.attrs.a ? event.attrs.b && true : event.attrs.c || false",
		"(event.attrs.a ? true : false) || event.attrs.b":                                                             "or[event.attrs.a ? true : false ; event.attrs.b]",
		`event.plan == "a && (b" || event.plan in ['x\' || (', """q"||"(""", r"\" ]`:                                  `or[event.plan == "a && (b" ; event.plan in ['x\' || (', """q"||"(""", r"\" ]]`,
		"event.attrs.a // && (\n && event.attrs.b":                                                                    "and[event.attrs.a ; event.attrs.b]",
		"event.attrs.`a//b c` && event.attrs.b":                                                                       "and[event.attrs.`a//b c` ; event.attrs.b]",
		"[event.attrs.a || true][0] && event.attrs.b":                                                                 "and[[event.attrs.a || true][0] ; event.attrs.b]",
	} {
		p, err := l.Parts(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		} else if got := outlineOf(p); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", expr, got, want)
		}
	}
	if _, err := l.Parts("event.stats == 404"); err == nil {
		t.Error("it took apart what does not compile")
	}
}

// joined is what the parts come to by the truth table.
func joined(t *rapid.T, j *Judged) answer {
	own := answer{holds: j.Holds}
	for f := Fine + 1; f < NumFaults; f++ {
		if f.String() == j.Fault {
			own.fault = f
		}
	}
	if len(j.Parts) == 0 {
		return own
	}
	all := joined(t, &j.Parts[0])
	for i := range j.Parts[1:] {
		next := joined(t, &j.Parts[i+1])
		if j.Join == JoinAnd {
			all = judgeAnd(all, next)
		} else {
			all = judgeOr(all, next)
		}
	}
	if j.Join == JoinNot {
		all = judgeNot(all)
	}
	if all != own {
		t.Fatalf("%s is %+v, its parts come to %+v", j.Condition, own, all)
	}
	return own
}

// What the parts of a condition say, put together, is what the condition says.
func TestPartsAgreeWithTheWhole(t *testing.T) {
	l := language(t)
	faults := 0
	rapid.Check(t, func(t *rapid.T) {
		n := anyNode(t, rapid.IntRange(0, 3).Draw(t, "depth"))
		p, err := l.Parts(n.text)
		if err != nil {
			t.Fatalf("%s: %v", n.text, err)
		}
		for range 5 {
			m := anyModel(t)
			got := p.Judge(m.event(t))
			if whole := joined(t, &got); whole != n.judge(m) {
				t.Fatalf("%s\nof %v: %+v, the judge %+v", n.text, m, whole, n.judge(m))
			}
			if got.Fault != "" {
				faults++
			}
		}
	})
	if faults < 5 {
		t.Errorf("%d faults: the test has shown little", faults)
	}
}

// The values that a part reads are shown as the event has them: texts in quotes, with what moves a cursor escaped, and cut.
func TestPartsTellWhatTheyRead(t *testing.T) {
	e := &Event{}
	e.Reset(&traffic.Request{
		Status: 404, LatencyUS: 2500, Time: 1_767_225_600_000_000, UserAgent: "\x1b[2J\u202e" + strings.Repeat("x", 100), Headers: []traffic.Header{{Name: "X-App", Value: "1"}},
		Attrs: []byte(`{"n":"6","m":6,"d":1.5,"yes":true,"nil":null,"o":{"a":[` + strings.Repeat("1,", 40) + `"\u001b"]},"s":{"a.b":1}}`),
	}, &traffic.Identity{})
	l := language(t)
	for expr, want := range map[string]string{
		"event.status == 404": "status 404", "event.latency_ms > 2.0": "latency_ms 2.5", `event.plan == ""`: `plan ""`,
		`event.attrs.n == "6" || event.attrs.m > 3`: `attrs.n "6", attrs.m 6`, "event.attrs.d > 1.0 && event.attrs.yes": "attrs.d 1.5, attrs.yes true",
		"event.attrs.nil == null": "attrs.nil null", "has(event.attrs.none)": "attrs.none missing", `event.headers["x-app"] == "1"`: `headers.x-app "1"`,
		`event.attrs.s["a.b"] == 1`: "attrs.s.a.b 1", `event.time > timestamp("2026-01-01T00:00:00Z")`: "time 2026-01-01T00:00:00Z",
		`event.user_agent.matches("^curl")`: `user_agent "\x1b[2J\u202e` + strings.Repeat("x", maxShown-7) + `"…`,
		`event.attrs.o == {}`:               `attrs.o {"a":[` + strings.Repeat("1,", 27) + `…`, "1 < 2": "",
	} {
		p, err := l.Parts(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		var said []string
		var tell func(j *Judged)
		tell = func(j *Judged) {
			for _, r := range j.Reads {
				said = append(said, fmt.Sprintf("%s %s%s%s", r.Field, r.Value, map[bool]string{true: "missing"}[r.Missing], map[bool]string{true: "…"}[r.Cut]))
			}
			for i := range j.Parts {
				tell(&j.Parts[i])
			}
		}
		got := p.Judge(e)
		tell(&got)
		if text := strings.Join(said, ", "); text != want {
			t.Errorf("%s:\ngot  %s\nwant %s", expr, text, want)
		}
	}
}

// Whatever compiles can be taken apart, and its parts are stretches of it.
func FuzzParts(f *testing.F) {
	l := language(f)
	for _, seed := range []string{`event.status == 404 && (event.attrs.a > 3 || !has(event.attrs.b))`, `!(event.plan in ["a", 'b', r"\"])`, "true ? event.attrs.a : false // x", `"""a"b""" == event.plan || b"x" == b'y'`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if _, err := l.Compile(expr); err != nil {
			return
		}
		p, err := l.Parts(expr)
		if err != nil {
			t.Fatalf("%q: %v", expr, err)
		}
		all := []*Parts{p}
		for len(all) > 0 {
			if !strings.Contains(expr, all[0].condition.source) {
				t.Fatalf("%q has a part %q", expr, all[0].condition.source)
			}
			all = slices.Concat(all[1:], all[0].of)
		}
	})
}
