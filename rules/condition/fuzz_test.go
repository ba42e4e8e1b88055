package condition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// mustEnd does something that has a bound, and ends the run where it goes on for minutes. How long it takes is what
// BenchmarkCompileAtTheBounds and BenchmarkWorstEvent measure.
func mustEnd(what string, do func()) {
	hangs := time.AfterFunc(2*time.Minute, func() { panic("without end: " + what) })
	defer hangs.Stop()
	do()
}

// FuzzWhen: whatever is written and whatever the event is, there is an answer in bounded time, or an error with a place; and
// closures and program agree.
func FuzzWhen(f *testing.F) {
	for line := range strings.Lines(strings.TrimSpace(verdicts)) {
		expr, _, _ := strings.Cut(line, " => ")
		f.Add(expr, "/v1/login", "free", 401, `{"country": "DE", "cost": 7, "tags": ["a", {"b": [1.5]}]}`)
	}
	f.Add(`(((((((event.path.matches("(a*)*b"))))))) ? true : false`, strings.Repeat("a", 2000), "", 0, `[[[[]]]]`)
	f.Add(strings.Repeat("!", 500)+"true", "", "", 0, "")
	f.Add(`event.attrs.a.matches("`+strings.Repeat("(x|y)?", 60)+`")`, "", "", 0, `{"a": "`+strings.Repeat("xy", 4000)+`"}`)
	f.Add(strings.Repeat("event.plan + ", 100)+`event.plan == ""`, "", strings.Repeat("p", 9000), 0, "")
	for _, expr := range dearExpressions() {
		f.Add(expr, strings.Repeat("xy", 200), strings.Repeat("é", 200), 0, `{"a": [1, [2], {"b": "x"}]}`)
	}
	for _, n := range []string{"9007199254740993", "-9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615", "9007199254740992.0", "1e400", "-0"} {
		f.Add(`event.attrs.x in [9007199254740992.0, 9223372036854775807] || event.attrs.x >= 9007199254740993`, "", "", 0, `{"x": `+n+`}`)
		f.Add(`event.attrs.x in [-9007199254740992.0, null] && event.attrs.x == 9223372036854775808.0`, "", "", 0, `{"x": `+n+`}`)
	}
	l, err := New()
	if err != nil {
		f.Fatal(err)
	}
	decoder, err := format.NewDecoder(format.Weir, nil, format.DefaultMaxEventBytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expr, path, plan string, status int, attrs string) {
		var c *Condition
		var err error
		mustEnd(fmt.Sprintf("compiling %q", expr), func() { c, err = l.Compile(expr) })
		if err != nil {
			bad := (*Error)(nil)
			if !errors.As(err, &bad) || len(bad.Problems) == 0 || strings.ContainsAny(bad.Problems[0].Got, "\n\x00") || len(err.Error()) > 8192 {
				t.Fatalf("%q: %v", expr, err)
			}
			return
		}
		slow, err := l.compile(expr, mode{program: true})
		if err != nil {
			t.Fatalf("%q is no program: %v", expr, err)
		}
		// Attrs are what a decoder takes: JSON.
		var r traffic.Request
		if decoder.Decode([]byte(`{"attrs": `+attrs+`}`), &r) != nil {
			r = traffic.Request{}
		}
		r.Path, r.Plan, r.Status = path, plan, status
		mustEnd(fmt.Sprintf("%q of %q %q %d %q", expr, path, plan, status, attrs), func() {
			e := &Event{}
			e.Reset(&r, &traffic.Identity{Device: plan})
			holds, fault := c.Holds(e)
			if again, f := slow.Holds(e); again != holds || f != fault {
				t.Fatalf("%q of %q %q %d %q: %v %v, as a program %v %v", expr, path, plan, status, attrs, holds, fault, again, f)
			}
		})
	})
}
