package condition

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// MaxEventCost bounds what all conditions of all rules together may cost for one event, in units of about 30 ns: a
// step costs one (eight in a CEL program), a value of attrs or headers four, and each ten bytes of a text one for
// each step that reads it. It is enough for forty patterns on a text of MaxText bytes, and takes about a millisecond.
const MaxEventCost = 32_768

const (
	programStep = 8  // a step of a program, in steps of a clause
	valueCost   = 4  // finding a value
	unitBytes   = 10 // of a text, read once
)

// Cost is what judging events by a condition costs, known before they are judged. The zero Cost is nothing.
type Cost struct {
	Steps int64 // whatever the event is
	// Reads are how often texts are read, so that Steps + Reads×ceil(longest text ÷ 10) is the most that an event can
	// cost.
	Reads int64
}

// textRead is how often a condition's steps read the text of a field, or of the value with this index.
type textRead struct {
	field field
	value int // -1: of the field
	times int64
}

// weight is a condition's cost.
type weight struct {
	Cost
	texts []textRead
}

// weigh finds out what a checked expression costs. Every step that is given a text, also through other steps, may
// read all of it.
func weigh(e ast.Expr, values []value, program bool) weight {
	w := weight{}
	w.read(e)
	if program {
		w.Steps *= programStep
	}
	w.Steps += int64(len(values)) * valueCost
	for _, r := range w.texts {
		w.Reads += r.times
	}
	return w
}

// read adds what e costs, and returns the texts that its outcome may be made of.
func (w *weight) read(e ast.Expr) (of []textRead) {
	w.Steps++
	switch e.Kind() {
	case ast.IdentKind:
		return textOf(e.AsIdent())
	case ast.SelectKind:
		return w.read(e.AsSelect().Operand())
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			of = append(of, w.read(element)...)
		}
		return of
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			of = append(append(of, w.read(entry.AsMapEntry().Key())...), w.read(entry.AsMapEntry().Value())...)
		}
		return of
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			of = w.read(call.Target())
		}
		for _, arg := range call.Args() {
			of = append(of, w.read(arg)...)
		}
		switch call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, clauseName:
			return nil
		case operators.Conditional: // it is one of these, and reads none
			return of
		}
		for _, r := range of {
			w.add(r)
		}
		return of
	}
	return nil
}

func (w *weight) add(r textRead) {
	for i := range w.texts {
		if w.texts[i].field == r.field && w.texts[i].value == r.value {
			w.texts[i].times += r.times
			return
		}
	}
	w.texts = append(w.texts, r)
}

// textOf is the text that a variable stands for; nothing for a number, or whether something is there.
func textOf(name string) []textRead {
	if prefix, i, ok := parseValueName(name); ok {
		if prefix == valuePrefix {
			return []textRead{{value: i, times: 1}}
		}
		return nil
	}
	if len(name) < len(eventPrefix) {
		return nil
	}
	if f, ok := fieldNamed(name[len(eventPrefix):]); ok && fieldKinds[f] == kindText {
		return []textRead{{field: f, value: -1, times: 1}}
	}
	return nil
}

// Weight is what the condition costs whatever the event is, and how often it reads texts.
func (c *Condition) Weight() Cost { return c.weight.Cost }

// Cost is what judging e costs, in the units of MaxEventCost. It is a function of the condition and the event alone.
func (c *Condition) Cost(e *Event) int64 {
	cost := c.weight.Steps
	for _, r := range c.weight.texts {
		n := 0
		if r.value < 0 {
			n = len(e.text(r.field))
		} else {
			got := c.values[r.value].of(e)
			n = min(max(len(got.Text), len(got.JSON)), MaxComposite)
		}
		cost += r.times * int64((n+unitBytes-1)/unitBytes)
	}
	return cost
}

// Units is the most that reading any text of e once can cost.
func (e *Event) Units() int64 {
	r, id := e.request, e.identity
	longest := 0
	for _, s := range []string{
		r.ID, r.Method, r.Host, r.Path, r.Route, r.UserAgent, r.Plan, r.Gateway, id.Device, id.User,
		id.APIKey, id.Session,
	} {
		longest = max(longest, len(s))
	}
	headers := 0
	for i := range r.Headers {
		headers += len(r.Headers[i].Value) + len(", ")
	}
	const address = 45 // the longest text of one
	longest = max(longest, len(r.Attrs), headers, address)
	return int64((min(longest, MaxComposite) + unitBytes - 1) / unitBytes)
}
