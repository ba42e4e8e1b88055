package condition

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/traffic"
)

// dearExpressions are as great as they can be, in one way each. Many are refused.
func dearExpressions() map[string]string {
	fill := func(before, part, between, after string) string {
		n := (MaxBytes - len(before) - len(after)) / (len(part) + len(between))
		return before + strings.TrimSuffix(strings.Repeat(part+between, n), between) + after
	}
	nest := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	deep := nest(MaxLiteral, "[", "1", "]")
	maps := nest(MaxLiteral, "{1:", "1", "}")
	return map[string]string{
		"not":            fill("", "!", "", "true"),
		"nots":           strings.Repeat("!", MaxOperators) + "true",
		"minus":          fill("", "-", "", "1 == 1"),
		"not spaced":     fill("", "!", " ", "true"),
		"and":            strings.Repeat("true&&", MaxOperators) + "true",
		"and or":         strings.Repeat("true&&false||", MaxOperators/2) + "true",
		"and clauses":    fill("", "event.status==401", "&&", ""),
		"sum":            fill("", "1", "+", "==1"),
		"comparisons":    fill("", "1", "<", ""),
		"choices":        fill("", "true?true", ":", ":true"),
		"lists":          deep + " == " + deep,
		"lists of lists": fill("[", deep, ",", "]==[[1]]"),
		"many lists":     fill("", deep, "==", ""),
		"deep lists":     nest(60, "[", "1", "]") + "==" + nest(60, "[", "1", "]"),
		"maps":           fill("[", maps, ",", "]=="+maps),
		"deep maps":      nest(60, "{1:", "1", "}") + "==" + nest(60, "{1:", "1", "}"),
		"empty lists":    fill("[", "[]", ",", "] == []"),
		"many in":        fill("event.status in [", "1", ",", "]"),
		"texts in":       fill("event.plan in [", `""`, ",", "]"),
		"concatenation":  fill("", "event.plan", "+", `==""`),
		"members":        fill("event.attrs", ".a", "", ""),
		"indexes":        fill("event.attrs", "[0]", "", ""),
		"parentheses":    nest(MaxBytes/2-2, "(", "true", ")"),
		"open":           fill("", "[{", "", ""),
		"loops":          nest(20, "event.attrs.a.all(x, ", "true", ")"),
		"digits":         fill("event.status == ", "9", "", ""),
		"dyn":            fill("", "dyn(1)", "+", "==1"),
		"times":          fill("", `event.time.getHours("+01:00")>1`, "&&", ""),
		"patterns":       strings.Repeat(`event.path.matches("a.{9}b(x|y)?") && `, 4) + "true",
		"states":         `event.path.matches("a.{11}[bc](x|y)?")`,
		"refused states": `event.path.matches("(x|y)?a.{14}(b|c).{14}d")`,
		"letters":        `event.path.matches("` + strings.Repeat(`\\pL`, 150) + `")`,
		"scripts":        `event.path.matches("` + every("\\\\p{%s}", "Greek Latin Han Arabic Thai Lao Khmer Cyrillic Hebrew Tamil Bengali Gujarati Oriya Telugu Hiragana L N P S Z C M Lu Ll") + `")`,
		"repeated":       `event.path.matches("(?i)(\\pL|\\d|[a-k]){160}$")`,
	}
}

// What is out of bounds is refused with the place at which the bound is passed.
func TestExtent(t *testing.T) {
	l := language(t)
	operators := fmt.Sprintf("got one more operator, allowed at most %d in one condition", MaxOperators)
	for _, tt := range []struct{ expr, want string }{
		{strings.Repeat("!", MaxOperators) + "true", ""},
		{strings.Repeat("!", MaxOperators+1) + "true", "line 1, column 257: " + operators},
		{"true &&\n" + strings.Repeat("!", MaxOperators) + "true", "line 2, column 256: " + operators},
		{`"` + strings.Repeat("!", 900) + `" != '` + strings.Repeat("\\'!", 300) + `'`, ""},
		{`r"\" != """` + strings.Repeat(`"!`, 300) + `""" // ` + strings.Repeat("!", 300), ""},
		{"event.plan == 'é' // '\n&& " + strings.Repeat("!", MaxOperators-1) + "true", "line 2, column 258: " + operators},
		{"(" + strings.Repeat("(", 60) + "true" + strings.Repeat(")", 61), ""},
		{strings.Repeat("(", 65) + "true" + strings.Repeat(")", 65), "line 1, column 65: got one more bracket within others, allowed at most 64 levels"},
		{`event.plan == "` + strings.Repeat("(", 100) + `"`, ""},
		{strings.Repeat("[", MaxLiteral) + "1" + strings.Repeat("]", MaxLiteral) + " == []", ""},
		{strings.Repeat("[", MaxLiteral+1) + "1" + strings.Repeat("]", MaxLiteral+1) + " == []", "line 1, column 9: got one more list or map within others, allowed at most 8 levels"},
		{"[[1], [2], [3], [4], [5], [6], [7], [8], [9]] == []", ""},
		{"1" + strings.Repeat("+1", 100) + " == 1", "got an expression that nests too deep, allowed at most 64 levels; operators in a row are levels, but for && and ||, and so are members"},
		{"event.attrs" + strings.Repeat(".a", 200), "got an expression that nests too deep, allowed at most 64 levels"},
		{"'" + strings.Repeat("!", 300), "got no CEL"},
	} {
		_, err := l.Compile(tt.expr)
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.80s\ngot  %v\nwant %s", tt.expr, err, tt.want)
		}
	}
}

// The checker of types is never shown what takes it long: what is refused for its size is refused before.
func TestDearExpressionsAreRefusedEarly(t *testing.T) {
	l := language(t)
	early := map[string]bool{"not": true, "minus": true, "not spaced": true, "deep lists": true, "deep maps": true, "parentheses": true, "open": true, "comparisons": true, "sum": true}
	for name, expr := range dearExpressions() {
		_, err := l.Compile(expr)
		bad := (*Error)(nil)
		if err != nil && (!errors.As(err, &bad) || bad.Problems[0].Line < 1 && len(expr) <= MaxBytes) {
			t.Errorf("%s: %v", name, err)
		}
		refused := err != nil && (strings.Contains(err.Error(), "one more") || strings.Contains(err.Error(), "nests too deep"))
		if early[name] && !refused {
			t.Errorf("%s: got %v", name, err)
		}
		if len(expr) > MaxBytes {
			t.Errorf("%s has %d bytes: this says nothing", name, len(expr))
		}
	}
}

// BenchmarkCompileAtTheBounds is what the dearest expressions that are taken, or just refused, cost to compile.
func BenchmarkCompileAtTheBounds(b *testing.B) {
	l := language(b)
	for name, expr := range dearExpressions() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = l.Compile(expr)
			}
		})
	}
}

// A list of attrs is taken apart once for an event, however often conditions name it.
func TestAListIsTakenApartOnce(t *testing.T) {
	l, e := language(t), &Event{}
	r := &traffic.Request{Attrs: []byte(`{"a": [` + strings.TrimSuffix(strings.Repeat(`"x",`, 1000), ",") + `]}`)}
	cost := func(n int) float64 {
		c, err := l.Compile(strings.Repeat(`event.attrs.a[9] == "y" || `, n) + `event.attrs.a[0] == "y"`)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(10, func() {
			e.Reset(r, &traffic.Identity{})
			if holds, fault := c.Holds(e); holds || fault != Fine {
				t.Fatal(holds, fault)
			}
		})
	}
	if once, often := cost(0), cost(50); once < 1000 || often > once+1000 {
		t.Errorf("%v allocations where it is named once, %v where it is named 51 times", once, often)
	}
}

// BenchmarkWorstEvent is what the dearest expressions that are taken cost for the longest texts and values.
func BenchmarkWorstEvent(b *testing.B) {
	l := language(b)
	wide := strings.Repeat("é", MaxText/2)
	list := "[" + strings.TrimSuffix(strings.Repeat(`"é",`, MaxComposite/6), ",") + "]"
	for name, expr := range map[string]string{
		"patterns":    strings.Repeat(`event.path.matches("(?i)(\\pL|\\d|[a-k]){40}z$") || `, 3) + `event.path.matches("zz$")`,
		"contains":    strings.Repeat(`event.path.contains("éa") || `, 60) + "false",
		"joined":      strings.Repeat(`(event.path + event.path).contains("éa") || `, 8) + "false",
		"indexes":     strings.Repeat(`event.attrs.a[9] == "x" || `, 70) + "false",
		"in":          strings.Repeat(`"x" in event.attrs.a || `, 5) + "false",
		"equal lists": strings.Repeat(`event.attrs.a == event.attrs.b || `, 5) + "false",
		"size":        strings.Repeat(`size(event.path) == 1 || `, 80) + "false",
		"times":       strings.Repeat(`event.time.getHours("+01:00") > 25 || `, 50) + "false",
		"many":        `event.plan in [` + strings.Repeat(`"a",`, 470) + `"b"]`,
	} {
		c, err := l.Compile(expr)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		b.Run(name, func(b *testing.B) {
			e := &Event{}
			r := &traffic.Request{Path: wide, Attrs: []byte(`{"a": ` + list + `, "b": ` + strings.Replace(list, "é", "è", 1) + `}`)}
			for b.Loop() {
				e.Reset(r, &traffic.Identity{})
				if holds, _ := c.Holds(e); holds {
					b.Fatal(expr)
				}
			}
		})
	}
}
