package condition

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
)

// model is an event as the judge sees it: Go values, no JSON.
type model struct {
	fields map[string]any // by name: string, int or float64
	attrs  map[string]any
}

// answer is what a condition comes to: a truth value, or a fault.
type answer struct {
	holds bool
	fault Fault
}

// node is a condition: how it is written, and what it means.
type node struct {
	text  string
	judge func(*model) answer
}

// judgeAnd and judgeOr are the truth table of docs/rules.md.
func judgeAnd(a, b answer) answer {
	switch {
	case a == answer{} || b == answer{}:
		return answer{}
	case a.fault != Fine:
		return a
	}
	return b
}

func judgeOr(a, b answer) answer {
	t := answer{holds: true}
	switch {
	case a == t || b == t:
		return t
	case a.fault != Fine:
		return a
	}
	return b
}

func judgeNot(a answer) answer {
	if a.fault != Fine {
		return a
	}
	return answer{holds: !a.holds}
}

var (
	someTexts   = []string{"", "a", "ab", "b", "é", "free", "GET"}
	someNumbers = []float64{-1, 0, 1, 2, 2.5, 401, 1e15}
)

func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case nil:
		return "null"
	case float64:
		if v != float64(int64(v)) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatInt(int64(v), 10)
	}
	return fmt.Sprint(v)
}

func anyConstant(t *rapid.T) any {
	switch rapid.IntRange(0, 4).Draw(t, "type") {
	case 0, 1:
		return rapid.SampledFrom(someTexts).Draw(t, "text")
	case 2, 3:
		return rapid.SampledFrom(someNumbers).Draw(t, "number")
	}
	return rapid.SampledFrom([]any{true, false, nil}).Draw(t, "constant")
}

func anyModel(t *rapid.T) *model {
	m := &model{fields: map[string]any{}, attrs: map[string]any{}}
	for _, name := range []string{"plan", "device", "path", "route"} {
		m.fields[name] = rapid.SampledFrom(someTexts).Draw(t, name)
	}
	m.fields["status"] = rapid.SampledFrom([]float64{0, 1, 2, 401}).Draw(t, "status")
	m.fields["latency_ms"] = rapid.SampledFrom([]float64{0, 1, 2.5, 401}).Draw(t, "latency")
	for _, name := range []string{"a", "b", "c"} {
		switch rapid.IntRange(0, 5).Draw(t, "has "+name) {
		case 0:
		case 1:
			m.attrs[name] = []any{1.0, "a"}
		case 2:
			m.attrs[name] = map[string]any{"a": anyConstant(t)}
		default:
			m.attrs[name] = anyConstant(t)
		}
	}
	return m
}

func (m *model) event(t *rapid.T) *Event {
	attrs, err := json.Marshal(m.attrs)
	if err != nil {
		t.Fatal(err)
	}
	text := func(name string) string { return m.fields[name].(string) }
	e := &Event{}
	e.Reset(&traffic.Request{
		Plan: text("plan"), Path: text("path"), Route: text("route"), Status: int(m.fields["status"].(float64)),
		LatencyUS: int64(m.fields["latency_ms"].(float64) * 1000), Attrs: attrs,
	}, &traffic.Identity{Device: text("device")})
	return e
}

// lookUp is the value behind a.b.
func lookUp(attrs map[string]any, path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	v, ok := attrs[name]
	if !ok || !deeper {
		return v, ok
	}
	inner, isMap := v.(map[string]any)
	if !isMap {
		return nil, false
	}
	return lookUp(inner, rest)
}

// compareAny is the meaning of an operator between two values; ok is false for types that it does not take.
func compareAny(op string, a, b any) (holds, ok bool) {
	x, aNumber := a.(float64)
	y, bNumber := b.(float64)
	s, aText := a.(string)
	q, bText := b.(string)
	order := 0
	switch {
	case aNumber && bNumber && x < y, aText && bText && s < q:
		order = -1
	case aNumber && bNumber && x > y, aText && bText && s > q:
		order = 1
	}
	ordered := aNumber && bNumber || aText && bText
	switch op {
	case "==", "!=":
		_, aMap := a.(map[string]any)
		_, aList := a.([]any)
		same := ordered && order == 0 || !ordered && !aMap && !aList && a == b
		return same == (op == "=="), true
	case "<":
		return order < 0, ordered
	case "<=":
		return order <= 0, ordered
	case ">":
		return order > 0, ordered
	case ">=":
		return order >= 0, ordered
	case "startsWith":
		return strings.HasPrefix(s, q), aText
	case "endsWith":
		return strings.HasSuffix(s, q), aText
	}
	return strings.Contains(s, q), aText
}

func anyNode(t *rapid.T, depth int) node {
	if depth > 0 {
		switch rapid.IntRange(0, 4).Draw(t, "operator") {
		case 0, 1:
			a, b := anyNode(t, depth-1), anyNode(t, depth-1)
			return node{"(" + a.text + " && " + b.text + ")", func(m *model) answer { return judgeAnd(a.judge(m), b.judge(m)) }}
		case 2, 3:
			a, b := anyNode(t, depth-1), anyNode(t, depth-1)
			return node{"(" + a.text + " || " + b.text + ")", func(m *model) answer { return judgeOr(a.judge(m), b.judge(m)) }}
		}
		a := anyNode(t, depth-1)
		return node{"!(" + a.text + ")", func(m *model) answer { return judgeNot(a.judge(m)) }}
	}
	switch rapid.IntRange(0, 3).Draw(t, "clause") {
	case 0:
		return fieldNode(t)
	case 1:
		path := anyPath(t)
		return node{"has(event.attrs." + path + ")", func(m *model) answer { _, ok := lookUp(m.attrs, path); return answer{holds: ok} }}
	}
	return attrNode(t)
}

func anyPath(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "a.a", "b.a", "none"}).Draw(t, "path")
}

var operatorsOf = []string{"==", "!=", "<", "<=", ">", ">="}

func fieldNode(t *rapid.T) node {
	if rapid.Bool().Draw(t, "number") {
		name := rapid.SampledFrom([]string{"status", "latency_ms"}).Draw(t, "field")
		op := rapid.SampledFrom(operatorsOf).Draw(t, "op")
		c := rapid.SampledFrom([]float64{-1, 0, 1, 2, 401}).Draw(t, "constant")
		text := literal(c)
		if name == "latency_ms" {
			text += ".0"
		}
		return node{"event." + name + " " + op + " " + text, func(m *model) answer { h, _ := compareAny(op, m.fields[name], c); return answer{holds: h} }}
	}
	name := rapid.SampledFrom([]string{"plan", "device", "path", "route"}).Draw(t, "field")
	op := rapid.SampledFrom([]string{"==", "!=", "startsWith", "endsWith", "contains"}).Draw(t, "op")
	c := rapid.SampledFrom(someTexts).Draw(t, "constant")
	return node{written("event."+name, op, literal(c)), func(m *model) answer { h, _ := compareAny(op, m.fields[name], c); return answer{holds: h} }}
}

func written(operand, op, constant string) string {
	if len(op) > 2 {
		return operand + "." + op + "(" + constant + ")"
	}
	return operand + " " + op + " " + constant
}

func attrNode(t *rapid.T) node {
	path := anyPath(t)
	operand := "event.attrs." + path
	switch rapid.IntRange(0, 4).Draw(t, "form") {
	case 0: // by itself
		return node{operand, func(m *model) answer {
			v, ok := lookUp(m.attrs, path)
			if b, isBool := v.(bool); isBool {
				return answer{holds: b}
			} else if !ok {
				return answer{}
			}
			return answer{fault: FaultType}
		}}
	case 1: // in a list
		list := []any{anyConstant(t), anyConstant(t)}
		return node{operand + " in [" + literal(list[0]) + ", " + literal(list[1]) + "]", func(m *model) answer {
			v, ok := lookUp(m.attrs, path)
			first, _ := compareAny("==", v, list[0])
			second, _ := compareAny("==", v, list[1])
			return answer{holds: ok && (first || second)}
		}}
	case 2: // a function of texts
		op := rapid.SampledFrom([]string{"startsWith", "endsWith", "contains"}).Draw(t, "op")
		return comparison(operand, path, op, rapid.SampledFrom(someTexts).Draw(t, "text"))
	}
	op := rapid.SampledFrom(operatorsOf).Draw(t, "op")
	if c := anyConstant(t); len(op) == 2 && op[1] == '=' && (op == "==" || op == "!=") {
		return comparison(operand, path, op, c)
	}
	c := any(rapid.SampledFrom(someNumbers).Draw(t, "number"))
	if rapid.Bool().Draw(t, "a text") {
		c = rapid.SampledFrom(someTexts).Draw(t, "text")
	}
	return comparison(operand, path, op, c)
}

func comparison(operand, path, op string, c any) node {
	return node{written(operand, op, literal(c)), func(m *model) answer {
		v, ok := lookUp(m.attrs, path)
		if !ok {
			return answer{}
		}
		holds, typed := compareAny(op, v, c)
		if !typed {
			return answer{fault: FaultType}
		}
		return answer{holds: holds}
	}}
}

// Closures, the CEL program and a judge that reads neither JSON nor CEL come to the same.
func TestAgree(t *testing.T) {
	l := language(t)
	faults, held := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n := anyNode(t, rapid.IntRange(0, 4).Draw(t, "depth"))
		if len(n.text) > MaxBytes {
			t.Skip("too long")
		}
		fast, err := l.Compile(n.text)
		if err != nil {
			t.Fatalf("%s: %v", n.text, err)
		}
		if fast.clause == nil {
			t.Fatalf("%s is of the common subset, and became a program", n.text)
		}
		slow, err := l.compile(n.text, mode{program: true})
		if err != nil {
			t.Fatalf("%s: %v", n.text, err)
		}
		for range 5 {
			m := anyModel(t)
			e, want := m.event(t), n.judge(m)
			for name, c := range map[string]*Condition{"closures": fast, "program": slow} {
				if holds, f := c.Holds(e); (answer{holds, f}) != want {
					t.Fatalf("%s\nof %v: %s say %v %s, the judge %v %s", n.text, m, name, holds, f, want.holds, want.fault)
				}
			}
			if want.fault != Fine {
				faults++
			} else if want.holds {
				held++
			}
		}
	})
	if faults < 10 || held < 10 {
		t.Errorf("%d faults, %d held: the test has shown little", faults, held)
	}
}
