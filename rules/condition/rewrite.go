package condition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// rewriter turns a parsed expression into one over variables: the event's fields, and the values of attrs and headers that
// the expression names. What no event has it reports.
type rewriter struct {
	info     *ast.SourceInfo
	make     ast.ExprFactory
	next     int64 // the greatest id in use
	values   []value
	reads    map[string]bool
	patterns patterns
	strict   bool // see Language.CompileStrict
	matches  int  // how often a pattern is asked for so far
	literals int  // the lists and maps around what is rewritten
	problems []Problem
}

// report reports e, which becomes a value of any type: so the type checker finds what is wrong with the rest, and only that.
func (r *rewriter) report(e ast.Expr, got, allowed, hint string) {
	at := r.info.GetStartLocation(e.ID())
	r.problems = append(r.problems, Problem{Line: at.Line(), Column: at.Column() + 1, Got: got, Allowed: allowed, Hint: hint})
	e.SetKindCase(r.anything(e))
}

// anything is a value of any type in the place of e.
func (r *rewriter) anything(e ast.Expr) ast.Expr {
	return r.make.NewIdent(e.ID(), valueName(valuePrefix, 0))
}

// rewrite goes through e. Its depth is bounded by the parser's, and by its own: chains of operators nest to the left.
func (r *rewriter) rewrite(e ast.Expr, depth int) {
	if depth > 4*maxNesting {
		if len(r.problems) == 0 {
			r.report(e, "an expression that nests too deep", fmt.Sprintf("at most %d levels", 4*maxNesting), "")
		}
		return
	}
	if root, names, ok := pathOf(e); ok && root.AsIdent() == eventName {
		r.place(e, root, names, valuePrefix)
		return
	}
	switch e.Kind() {
	case ast.CallKind:
		r.call(e, depth)
	case ast.SelectKind:
		r.rewrite(e.AsSelect().Operand(), depth+1)
	case ast.ListKind, ast.MapKind:
		r.literal(e, depth)
	case ast.StructKind:
		r.report(e, traffic.Quote(e.AsStruct().TypeName())+", a message of a type of its own", "texts, numbers, lists and maps", "")
	}
}

// literal goes through a list or a map that is written out. The type of one that is deep takes CEL long to find.
func (r *rewriter) literal(e ast.Expr, depth int) {
	if r.literals++; r.literals > MaxLiteral {
		if len(r.problems) == 0 {
			r.report(e, "one more list or map within others", fmt.Sprintf("at most %d levels", MaxLiteral), "")
		}
	} else if e.Kind() == ast.ListKind {
		for _, element := range e.AsList().Elements() {
			r.rewrite(element, depth+1)
		}
	} else {
		for _, entry := range e.AsMap().Entries() {
			r.rewrite(entry.AsMapEntry().Key(), depth+1)
			r.rewrite(entry.AsMapEntry().Value(), depth+1)
		}
	}
	r.literals--
}

func (r *rewriter) call(e ast.Expr, depth int) {
	call := e.AsCall()
	name, args := call.FunctionName(), call.Args()
	switch {
	case name == hasName:
		r.has(e, args[0])
		return
	case name == "matches":
		r.checkPattern(args)
	case timeGetter(name) && len(args) == 1:
		r.checkZone(args[0])
	case r.strict && r.asks(e, name, args):
		return
	case call.IsMemberFunction() && isLoop(name):
		got, allowed, hint := undeclaredName(name)
		r.report(e, got, allowed, hint)
		return
	case call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind && call.Target().AsIdent() == eventName:
		r.report(e, traffic.Quote(short(name))+" as a function of the event", allowedFields(), "the event has fields only: event.FIELD, without ()")
		return
	}
	if call.IsMemberFunction() {
		r.rewrite(call.Target(), depth+1)
	}
	for _, arg := range args {
		r.rewrite(arg, depth+1)
	}
}

// has rewrites has(): whether a field is not empty, or a value is there.
func (r *rewriter) has(e, arg ast.Expr) {
	before := len(r.problems)
	defer func() {
		if len(r.problems) > before {
			e.SetKindCase(r.anything(e))
		}
	}()
	root, names, ok := pathOf(arg)
	if !ok || root.AsIdent() != eventName || len(names) == 0 {
		r.report(arg, "has() of something else than a member of the event", "has(event.FIELD), has(event.attrs.NAME), has(event.headers[\"NAME\"])", "")
		return
	}
	r.place(e, root, names, hasPrefix)
}

// asks makes a comparison of a field with what it is where the event does not have it, "" or 0, the question whether the event has it.
func (r *rewriter) asks(e ast.Expr, operator string, args []ast.Expr) bool {
	if operator != operators.Equals && operator != operators.NotEquals {
		return false
	}
	left, right := args[0], args[1]
	if left.Kind() == ast.LiteralKind {
		left, right = right, left
	}
	root, names, ok := pathOf(left)
	if !ok || root.AsIdent() != eventName || len(names) != 1 || right.Kind() != ast.LiteralKind {
		return false
	}
	f, known := fieldNamed(names[0])
	if zero := zeroOf(f); !known || zero == nil || right.AsLiteral() != zero {
		return false
	}
	r.reads[names[0]] = true
	there := r.make.NewIdent(r.id(e), fieldAskedPrefix+names[0])
	if operator == operators.NotEquals {
		e.SetKindCase(there)
	} else {
		e.SetKindCase(r.make.NewCall(e.ID(), operators.LogicalNot, there))
	}
	return true
}

// zeroOf is what a field is where the event does not have it; nil for one that every event has.
func zeroOf(f field) ref.Val {
	switch fieldKinds[f] {
	case kindTime:
		return nil
	case kindWhole:
		return types.Int(0)
	case kindDecimal:
		return types.Double(0)
	}
	return types.String("")
}

// pathOf takes a chain of members apart: event.attrs.a["b"]. ok is false for any other expression.
func pathOf(e ast.Expr) (root ast.Expr, names []string, ok bool) {
	for {
		switch e.Kind() {
		case ast.IdentKind:
			slices.Reverse(names)
			return e, names, true
		case ast.SelectKind:
			names, e = append(names, e.AsSelect().FieldName()), e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || call.Args()[1].Kind() != ast.LiteralKind {
				return nil, nil, false
			}
			name, isText := call.Args()[1].AsLiteral().(types.String)
			if !isText {
				return nil, nil, false
			}
			names, e = append(names, string(name)), call.Args()[0]
		default:
			return nil, nil, false
		}
	}
}

// place makes e the variable that names stand for, or the question whether the event has it.
func (r *rewriter) place(e, root ast.Expr, names []string, prefix string) {
	if len(names) == 0 {
		r.report(root, "event as a whole", allowedFields(), "")
		return
	}
	f, known := fieldNamed(names[0])
	switch {
	case names[0] == attrsName:
		r.value(e, root, value{name: strings.Join(names, "."), id: strings.Join(names, "\x00"), attrs: format.AttrPathOf(names[1:]...)}, prefix)
	case names[0] == headersName && len(names) == 2 && names[1] != "":
		name := lower(names[1])
		r.value(e, root, value{name: headersName + "." + name, id: headersName + "\x00" + name, header: name}, prefix)
	case names[0] == headersName:
		r.report(root, "event."+headersName+" without the name of one header", `event.headers["x-app-version"]`, "")
	case !known:
		hint := ""
		if meant := nearest.Name(names[0], Fields()); meant != "" {
			hint = "did you mean event." + meant + "?"
		} else {
			hint = "members of your own are in event." + attrsName
		}
		r.report(root, traffic.Quote(eventPrefix+short(names[0]))+", which no event has", allowedFields(), hint)
	case len(names) > 1:
		r.report(root, traffic.Quote(short(eventPrefix+strings.Join(names, "."))), "event."+names[0]+", which has no members", "")
	default:
		r.reads[names[0]] = true
		r.field(e, f, prefix)
	}
}

func (r *rewriter) field(e ast.Expr, f field, prefix string) {
	name := r.make.NewIdent(e.ID(), eventPrefix+fieldNames[f])
	if prefix == valuePrefix {
		e.SetKindCase(name)
		return
	}
	zero := zeroOf(f)
	switch {
	case zero == nil:
		e.SetKindCase(r.make.NewLiteral(e.ID(), types.True))
		return
	case r.strict:
		e.SetKindCase(r.make.NewIdent(e.ID(), fieldAskedPrefix+fieldNames[f]))
		return
	}
	e.SetKindCase(r.make.NewCall(e.ID(), operators.NotEquals, r.make.NewIdent(r.id(e), eventPrefix+fieldNames[f]), r.make.NewLiteral(r.id(e), zero)))
}

func (r *rewriter) value(e, root ast.Expr, v value, prefix string) {
	r.reads[v.name] = true
	at := slices.IndexFunc(r.values, func(o value) bool { return o.name == v.name && o.header == v.header && o.attrs.Equal(v.attrs) })
	if at < 0 {
		if at = len(r.values); at == MaxValues {
			r.report(root, "one more member of attrs or headers", fmt.Sprintf("at most %d in one condition", MaxValues), "")
			return
		}
		r.values = append(r.values, v)
	}
	e.SetKindCase(r.make.NewIdent(e.ID(), valueName(prefix, at)))
}

// id is a new id that stands where e does.
func (r *rewriter) id(e ast.Expr) int64 {
	r.next++
	if at, ok := r.info.GetOffsetRange(e.ID()); ok {
		r.info.SetOffsetRange(r.next, at)
	}
	return r.next
}

// checkPattern holds matches to a literal pattern of bounded size.
func (r *rewriter) checkPattern(args []ast.Expr) {
	if len(args) == 0 {
		return // CEL says so
	}
	last := args[len(args)-1]
	if last.Kind() != ast.LiteralKind {
		r.report(last, "a pattern that is not written out", `a text: event.path.matches("^/v[0-9]+/login$")`, "")
		return
	}
	text, ok := last.AsLiteral().(types.String)
	if !ok {
		return
	}
	if r.matches++; r.matches == MaxPatterns+1 {
		r.report(last, "one more pattern", fmt.Sprintf("at most %d in one condition", MaxPatterns), "one pattern has alternatives: a|b")
	}
	if r.matches > MaxPatterns {
		return
	}
	instructions, err := r.patterns.add(string(text))
	switch {
	case errors.Is(err, errPatternSize):
		r.report(last, fmt.Sprintf("patterns of %d instructions", instructions), fmt.Sprintf("at most %d in one condition", MaxPattern),
			"repetitions like {100} count as often as they repeat")
	case errors.Is(err, errPatternTable):
		r.report(last, "a pattern that has to remember too much of what it has read", fmt.Sprintf("patterns whose tables have at most %d cells together", MaxPatternTable),
			"let it begin with ^, repeat . and classes without a number, and name fewer classes")
	case err != nil:
		r.report(last, "a pattern that is none ("+short(err.Error())+")", "a regular expression of RE2", "")
	}
}

func timeGetter(name string) bool { return strings.HasPrefix(name, "get") }

// checkZone holds the time zone of getHours and its like to what means the same on every machine.
func (r *rewriter) checkZone(arg ast.Expr) {
	const allowed = `"UTC" or an offset such as "+01:00"`
	if arg.Kind() != ast.LiteralKind {
		r.report(arg, "a time zone that is not written out", allowed, "")
		return
	}
	zone, ok := arg.AsLiteral().(types.String)
	if ok && string(zone) != "UTC" && !offset(string(zone)) {
		r.report(arg, traffic.Quote(short(string(zone))), allowed, "what a zone's name means differs between machines")
	}
}

// offset reports whether s is ±hh:mm.
func offset(s string) bool {
	if len(s) != 6 || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return false
	}
	hours, err1 := strconv.ParseUint(s[1:3], 10, 8)
	minutes, err2 := strconv.ParseUint(s[4:], 10, 8)
	return err1 == nil && err2 == nil && hours < 24 && minutes < 60
}

// wrap puts each clause of e into the function that makes one false whose value is missing.
func (r *rewriter) wrap(e ast.Expr) {
	switch e.Kind() {
	case ast.LiteralKind:
		if _, ok := e.AsLiteral().(types.Bool); ok {
			return
		}
	case ast.IdentKind:
		if strings.HasPrefix(e.AsIdent(), hasPrefix) {
			return
		}
	case ast.CallKind:
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
			for _, arg := range e.AsCall().Args() {
				r.wrap(arg)
			}
			return
		}
	}
	inner := r.make.NewUnspecifiedExpr(r.id(e))
	inner.SetKindCase(e)
	e.SetKindCase(r.make.NewCall(e.ID(), clauseName, inner))
}
