package condition

import (
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/weirhq/weir/traffic/format"
)

// clause judges an event, without memory of its own.
type clause func(e *Event) verdict

// compiler makes clauses of a checked expression, in which every clause is wrapped.
type compiler struct {
	values []value
	strict bool // see Language.CompileStrict
}

// clause is nil for what only a program can judge: then the whole expression is one.
func (c compiler) clause(e ast.Expr) clause {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			answer := is(bool(b))
			return func(*Event) verdict { return answer }
		}
	case ast.IdentKind:
		return compileHas(e.AsIdent(), c.values)
	case ast.CallKind:
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			return both(c.clauses(args))
		case operators.LogicalOr:
			return either(c.clauses(args))
		case operators.LogicalNot:
			return opposite(c.clauses(args))
		case clauseName:
			leaf := compileLeaf(args[0], c.values)
			if leaf == nil || !c.strict {
				return leaf
			}
			return c.needing(args[0], leaf)
		}
	}
	return nil
}

// clauses is nil unless all can be compiled.
func (c compiler) clauses(args []ast.Expr) []clause {
	out := make([]clause, len(args))
	for i, arg := range args {
		if out[i] = c.clause(arg); out[i] == nil {
			return nil
		}
	}
	return out
}

// needing is a leaf that cannot be judged of an event without what it compares.
func (c compiler) needing(e ast.Expr, leaf clause) clause {
	left, _, _, ok := sides(e)
	if !ok { // a value that stands for itself
		left = e
	}
	if v, ok := valueOf(left, c.values); ok {
		return func(e *Event) verdict {
			if got := v.of(e); got.Kind == format.AttrMissing {
				return failed(FaultValue)
			}
			return leaf(e)
		}
	}
	f, _ := fieldNamed(left.AsIdent()[len(eventPrefix):])
	return func(e *Event) verdict {
		if e.lacks(f) {
			return failed(FaultValue)
		}
		return leaf(e)
	}
}

// both is &&: no if one is no, whatever the other is; else the first fault.
func both(of []clause) clause {
	if len(of) == 0 {
		return nil
	}
	all := of[0]
	for _, next := range of[1:] {
		before := all
		all = func(e *Event) verdict {
			a := before(e)
			if a == no {
				return no
			}
			if b := next(e); a == yes || b == no {
				return b
			}
			return a
		}
	}
	return all
}

// either is ||: yes if one is yes, whatever the other is; else the first fault.
func either(of []clause) clause {
	if len(of) == 0 {
		return nil
	}
	all := of[0]
	for _, next := range of[1:] {
		before := all
		all = func(e *Event) verdict {
			a := before(e)
			if a == yes {
				return yes
			}
			if b := next(e); a == no || b == yes {
				return b
			}
			return a
		}
	}
	return all
}

func opposite(of []clause) clause {
	if len(of) != 1 {
		return nil
	}
	inner := of[0]
	return func(e *Event) verdict {
		switch v := inner(e); v {
		case yes:
			return no
		case no:
			return yes
		default:
			return v
		}
	}
}

func compileHas(name string, values []value) clause {
	if f, ok := fieldAsked(name); ok {
		return func(e *Event) verdict { return is(!e.lacks(f)) }
	}
	prefix, i, ok := parseValueName(name)
	if !ok || prefix != hasPrefix || i >= len(values) {
		return nil
	}
	v := values[i]
	return func(e *Event) verdict { got := v.of(e); return is(got.Kind != format.AttrMissing) }
}

// compileLeaf makes a clause of one comparison, of a field or a value with literals.
func compileLeaf(e ast.Expr, values []value) clause {
	if v, ok := valueOf(e, values); ok {
		return truth(v)
	}
	left, right, function, ok := sides(e)
	if !ok {
		return nil
	}
	constants, ok := literals(right, function == operators.In)
	if !ok {
		return nil
	}
	if v, ok := valueOf(left, values); ok {
		return compileValue(v, function, constants)
	}
	if left.Kind() != ast.IdentKind || !strings.HasPrefix(left.AsIdent(), eventPrefix) {
		return nil
	}
	f, ok := fieldNamed(left.AsIdent()[len(eventPrefix):])
	if !ok {
		return nil
	}
	switch fieldKinds[f] {
	case kindText:
		return compileText(f, function, constants)
	case kindWhole, kindDecimal:
		return compileNumber(f, function, constants)
	}
	return nil
}

// sides takes a call with two operands apart. A literal before an operator changes places with what is behind it; ok is false where it
// cannot.
func sides(e ast.Expr) (left, right ast.Expr, function string, ok bool) {
	if e.Kind() != ast.CallKind {
		return nil, nil, "", false
	}
	call := e.AsCall()
	function, operands := call.FunctionName(), call.Args()
	if call.IsMemberFunction() {
		operands = append([]ast.Expr{call.Target()}, operands...)
	}
	if len(operands) != 2 {
		return nil, nil, "", false
	}
	left, right = operands[0], operands[1]
	if left.Kind() == ast.LiteralKind {
		function = mirrored(function)
		left, right = right, left
	}
	return left, right, function, function != ""
}

// mirrored is the operator for exchanged operands; empty where there is none.
func mirrored(operator string) string {
	return map[string]string{
		operators.Equals: operators.Equals, operators.NotEquals: operators.NotEquals, operators.Less: operators.Greater, operators.Greater: operators.Less,
		operators.LessEquals: operators.GreaterEquals, operators.GreaterEquals: operators.LessEquals,
	}[operator]
}

func valueOf(e ast.Expr, values []value) (value, bool) {
	if e.Kind() != ast.IdentKind {
		return value{}, false
	}
	prefix, i, ok := parseValueName(e.AsIdent())
	if !ok || prefix != valuePrefix || i >= len(values) {
		return value{}, false
	}
	return values[i], true
}

// literals are the constants of a comparison: one, or with in those of a list.
func literals(e ast.Expr, list bool) ([]format.AttrValue, bool) {
	elements := []ast.Expr{e}
	if list {
		if e.Kind() != ast.ListKind || len(e.AsList().OptionalIndices()) > 0 {
			return nil, false
		}
		elements = e.AsList().Elements()
	}
	out := make([]format.AttrValue, len(elements))
	for i, element := range elements {
		if element.Kind() != ast.LiteralKind {
			return nil, false
		}
		switch c := element.AsLiteral().(type) {
		case types.String:
			out[i] = format.AttrValue{Kind: format.AttrText, Text: string(c)}
		case types.Int:
			out[i] = format.AttrValue{Kind: format.AttrWhole, Whole: int64(c)}
		case types.Double:
			out[i] = format.AttrValue{Kind: format.AttrDecimal, Decimal: float64(c)}
		case types.Bool:
			out[i] = format.AttrValue{Kind: format.AttrFalse}
			if c {
				out[i].Kind = format.AttrTrue
			}
		case types.Null:
			out[i] = format.AttrValue{Kind: format.AttrNull}
		default:
			return nil, false
		}
	}
	return out, true
}

// compileText compares a text field.
func compileText(f field, function string, constants []format.AttrValue) clause {
	texts := make([]string, len(constants))
	for i, c := range constants {
		if texts[i] = c.Text; c.Kind != format.AttrText {
			return nil
		}
	}
	if function == operators.In {
		return func(e *Event) verdict {
			text := e.text(f)
			for i := range texts {
				if texts[i] == text {
					return yes
				}
			}
			return no
		}
	}
	text := texts[0]
	switch function {
	case operators.Equals:
		return func(e *Event) verdict { return is(e.text(f) == text) }
	case operators.NotEquals:
		return func(e *Event) verdict { return is(e.text(f) != text) }
	case "startsWith":
		return func(e *Event) verdict { return is(strings.HasPrefix(e.text(f), text)) }
	case "endsWith":
		return func(e *Event) verdict { return is(strings.HasSuffix(e.text(f), text)) }
	case "contains":
		return func(e *Event) verdict { return is(strings.Contains(e.text(f), text)) }
	}
	return nil
}

// compileNumber compares a field that is a number.
func compileNumber(f field, function string, constants []format.AttrValue) clause {
	for i := range constants {
		if constants[i].Kind != format.AttrWhole && constants[i].Kind != format.AttrDecimal {
			return nil
		}
	}
	decimal := fieldKinds[f] == kindDecimal
	read := func(e *Event) format.AttrValue {
		if decimal {
			return format.AttrValue{Kind: format.AttrDecimal, Decimal: e.latency()}
		}
		return format.AttrValue{Kind: format.AttrWhole, Whole: e.whole(f)}
	}
	if function == operators.In {
		if !lists(constants) {
			return nil
		}
		return func(e *Event) verdict { n := read(e); return is(among(&n, constants)) }
	}
	c, accept := constants[0], accepted(function)
	switch {
	case accept == [3]bool{}:
		return nil
	case !decimal && c.Kind == format.AttrWhole:
		return func(e *Event) verdict { return is(accept[compareWhole(e.whole(f), c.Whole)+1]) }
	}
	return func(e *Event) verdict { n := read(e); return is(accept[compareNumbers(&n, &c)+1]) }
}

// accepted says which of less, equal and greater an operator takes; none of them for another operator.
func accepted(operator string) [3]bool {
	return map[string][3]bool{
		operators.Equals: {1: true}, operators.NotEquals: {0: true, 2: true}, operators.Less: {0: true}, operators.LessEquals: {0: true, 1: true},
		operators.Greater: {2: true}, operators.GreaterEquals: {1: true, 2: true},
	}[operator]
}
