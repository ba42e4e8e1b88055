package condition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Language compiles conditions. It may be used by any number of goroutines.
type Language struct{ env *cel.Env }

// clauseName is the function around each clause: a missing value makes it false.
const clauseName, hasName = "@clause", "@has"

// New makes a Language.
func New() (*Language, error) {
	options := []cel.EnvOption{
		cel.ClearMacros(),
		cel.Macros(cel.GlobalMacro("has", 1, expandHas)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserRecursionLimit(maxNesting),
		cel.ParserErrorRecoveryLimit(1),
		cel.ParserExpressionSizeLimit(MaxBytes),
		cel.Function(clauseName, cel.Overload(clauseName, []*cel.Type{cel.BoolType}, cel.BoolType,
			cel.OverloadIsNonStrict(), cel.UnaryBinding(clauseOf))),
	}
	for f, name := range fieldNames {
		options = append(options, cel.Variable(eventPrefix+name, fieldKinds[f].cel()), cel.Variable(fieldAskedPrefix+name, cel.BoolType))
	}
	for i := range MaxValues {
		options = append(options, cel.Variable(valueName(valuePrefix, i), cel.DynType), cel.Variable(valueName(hasPrefix, i), cel.BoolType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("conditions: %w", err)
	}
	return &Language{env: env}, nil
}

// expandHas keeps has() for the rewriter, which knows what an event has.
func expandHas(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	return f.NewCall(hasName, args[0]), nil
}

// clauseOf is a clause's answer: false where it needs what is missing.
func clauseOf(v ref.Val) ref.Val {
	switch v := v.(type) {
	case types.Bool:
		return v
	case *types.Err:
		if missing(v) {
			return types.False
		}
		return v
	}
	return types.NoSuchOverloadErr()
}

// Compile compiles a condition. The error is an *Error with all that is wrong.
func (l *Language) Compile(expr string) (*Condition, error) { return l.compile(expr, mode{}) }

// CompileStrict compiles a condition under which a clause that needs what the event does not have, a field that is empty included, cannot
// be judged: it is a fault, unless the rest decides. has(), and == or != with an empty text or 0, ask and are judged. So what holds holds,
// and what does not hold does not, for sure.
func (l *Language) CompileStrict(expr string) (*Condition, error) {
	return l.compile(expr, mode{strict: true})
}

// mode is how a condition is compiled.
type mode struct {
	program bool // in any case
	strict  bool
}

func (l *Language) compile(expr string, how mode) (*Condition, error) {
	if len(expr) > MaxBytes {
		return nil, problem(0, 0, fmt.Sprintf("an expression of %d bytes", len(expr)), fmt.Sprintf("at most %d bytes", MaxBytes), "")
	}
	if err := checkText(expr); err != nil {
		return nil, err
	}
	if err := checkExtent(expr); err != nil {
		return nil, err
	}
	plain, re, err := l.parse(expr, patterns{}, how.strict)
	if err != nil {
		return nil, err
	}
	checked, issues := l.env.Check(plain)
	if issues.Err() != nil {
		return nil, checkError(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, problem(1, 1, "an expression that gives "+typeWords(t.String()), allowedCondition, "compare it with something")
	}
	if err := l.checkCost(checked); err != nil {
		return nil, err
	}
	unwrapped := checked
	wrapped, _, err := l.parse(expr, re.patterns, how.strict) // Check may have changed the first one
	if err != nil {
		return nil, err
	}
	re.wrap(wrapped.NativeRep().Expr())
	if checked, issues = l.env.Check(wrapped); issues.Err() != nil {
		return nil, checkError(issues)
	}
	c := &Condition{source: expr, values: re.values, strict: how.strict, reads: slices.Sorted(maps.Keys(re.reads))}
	if !how.program {
		c.clause = compiler{c.values, how.strict}.clause(checked.NativeRep().Expr())
	}
	c.weight = weigh(checked.NativeRep().Expr(), c.values, c.clause == nil)
	if c.clause != nil {
		return c, nil
	}
	if how.strict {
		checked = unwrapped // an error of a clause is one of the whole, unless the rest decides
	}
	c.program, err = l.env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(MaxCost), re.patterns.option())
	if err != nil {
		return nil, problem(1, 1, "an expression that cannot be planned ("+short(err.Error())+")", allowedCondition, "")
	}
	return c, nil
}

// checkText refuses what no editor shows.
func checkText(expr string) error {
	if strings.TrimSpace(expr) == "" {
		return problem(0, 0, "nothing", allowedCondition, "")
	}
	if !utf8.ValidString(expr) || strings.ContainsFunc(expr, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
		return problem(0, 0, "an expression with bytes that cannot be seen", "printable text; escapes such as \\n in quotes", "")
	}
	return nil
}

// parse reads an expression, with the event's fields and values as variables.
// Patterns that are not among known are made, and put there.
func (l *Language) parse(expr string, known patterns, strict bool) (*cel.Ast, *rewriter, error) {
	parsed, issues := l.env.Parse(expr)
	if issues.Err() != nil {
		return nil, nil, syntaxError(issues)
	}
	tree := parsed.NativeRep()
	re := &rewriter{info: tree.SourceInfo(), make: ast.NewExprFactory(), reads: map[string]bool{}, patterns: known, strict: strict, next: ast.MaxID(tree)}
	re.rewrite(tree.Expr(), 0)
	if len(re.problems) > 0 {
		return nil, nil, l.withTypes(parsed, re.problems)
	}
	return parsed, re, nil
}

// withTypes is the error of problems and what the type checker finds besides.
func (l *Language) withTypes(parsed *cel.Ast, problems []Problem) error {
	if _, issues := l.env.Check(parsed); issues.Err() != nil {
		problems = append(problems, checkError(issues).Problems...)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return &Error{problems[:min(len(problems), maxProblems)]}
}

// sizes tells CEL's estimate of cost how long an event's texts and lists may be.
type sizes struct{}

func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	path := n.Path()
	if len(path) == 0 {
		return nil
	}
	if _, _, ok := parseValueName(path[0]); ok {
		return &cost.SizeEstimate{Min: 0, Max: MaxComposite}
	}
	return &cost.SizeEstimate{Min: 0, Max: MaxText}
}

func (l *Language) checkCost(checked *cel.Ast) error {
	estimate, err := l.env.EstimateCost(checked, sizes{})
	if err != nil {
		return problem(1, 1, "an expression whose cost cannot be told ("+short(err.Error())+")", allowedCondition, "")
	}
	if estimate.Max > MaxCost {
		return problem(1, 1, fmt.Sprintf("an expression that may cost %d steps for one event", estimate.Max), fmt.Sprintf("at most %d", MaxCost),
			"compare fewer texts with each other, or split the rule")
	}
	return nil
}
