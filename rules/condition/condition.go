// Package condition compiles and judges the conditions of rules: CEL on one event, as match.when and tiers have it. What is
// common compiles to Go closures, the rest to a CEL program; both mean the same.
//
// A condition has no loops and no I/O, and its size, its cost and its patterns are bounded, so that judging an event takes
// bounded time: less than a millisecond for the longest texts. It is a function of the event alone: who judges the event again comes to the same.
//
// Between &&, || and ! stand clauses. A clause that needs a value which the event does not have is false; one that cannot
// be judged, for one of the Faults, makes the whole a fault unless the rest decides it.
package condition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// Bounds of a condition, and of what it reads.
const (
	MaxBytes  = 2048    // of the expression
	MaxValues = 16      // distinct members of attrs and headers that one expression names
	MaxCost   = 100_000 // in the units of CEL, where a step costs one and ten bytes of text cost one
	// MaxPattern bounds the patterns of an expression together, in instructions of Go's regexp.
	MaxPattern = 500
	// MaxPatterns bounds how many patterns one expression has: each reads its text once.
	MaxPatterns = 4
	// MaxPatternTable bounds the tables of an expression's patterns together, in cells: one for each state of what was read and each
	// class of the next character.
	MaxPatternTable = 1 << 15
	// MaxText is how much of a text is judged: what is behind it does not count.
	MaxText = 8192
	// MaxComposite bounds the JSON of an object or a list of attrs that a condition reads as a whole.
	MaxComposite = 16 << 10

	// MaxOperators bounds the operators of an expression, those of one kind in a row included.
	MaxOperators = 256
	// MaxLiteral is how deep lists and maps that are written out stand in each other.
	MaxLiteral = 8

	maxNesting = 64
)

// Fault says why a condition could not be judged.
type Fault uint8

// The faults. Each is a reason that can label a counter.
const (
	Fine        Fault = iota // there is none
	FaultType                // a value within attrs has a type that the operator does not take
	FaultValue               // division by zero, overflow, a text that is no number
	FaultSize                // an object or a list of attrs beyond MaxComposite
	FaultCost                // more steps than MaxCost
	FaultBudget              // beyond what all conditions together may cost for one event, MaxEventCost
	NumFaults
)

// String is the fault as a counter's label.
func (f Fault) String() string {
	names := [NumFaults]string{"fine", "type", "value", "size", "cost", "budget"}
	if f < NumFaults {
		return names[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// verdict is a clause's answer: no, yes, or fault + the Fault.
type verdict uint8

const (
	no verdict = iota
	yes
	fault
)

func failed(f Fault) verdict { return fault + verdict(f) }

func is(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// Condition is one compiled condition. It may be used by any number of goroutines, each with an Event of its own.
type Condition struct {
	source  string
	values  []value
	reads   []string
	strict  bool // see Language.CompileStrict
	weight  weight
	clause  clause      // nil: the program
	program cel.Program // nil: the clause
}

// Source is the condition as it was written.
func (c *Condition) Source() string { return c.source }

// Reads lists the fields of the event that the condition reads, ascending: plan, attrs.cost, headers.x-app.
func (c *Condition) Reads() []string { return slices.Clone(c.reads) }

// Holds judges an event. With any fault but Fine it does not hold.
func (c *Condition) Holds(e *Event) (bool, Fault) {
	var v verdict
	if c.clause != nil {
		v = c.clause(e)
	} else {
		v = c.run(e)
	}
	if v >= fault {
		return false, Fault(v - fault)
	}
	return v == yes, Fine
}

// run judges by the CEL program.
func (c *Condition) run(e *Event) verdict {
	e.values, e.strict = c.values, c.strict
	out, _, err := c.program.Eval(e)
	if err != nil {
		return failed(faultOf(err))
	}
	b, ok := out.(types.Bool)
	if !ok {
		return failed(FaultType)
	}
	return is(bool(b))
}

// errMissing and errComposite stand for a value that a program asks for and does not get.
var (
	errMissing   = errors.New("the event does not have the value")
	errComposite = fmt.Errorf("an object or a list of more than %d bytes", MaxComposite)
)

func faultOf(err error) Fault {
	var cancelled interpreter.EvalCancelledError
	switch {
	case errors.As(err, &cancelled):
		return FaultCost
	case errors.Is(err, errComposite):
		return FaultSize
	case strings.Contains(err.Error(), "no such overload"):
		return FaultType
	}
	return FaultValue
}

// missing reports whether err says that a value is not there: a member of attrs, of an object within, or of a list.
func missing(err error) bool {
	if errors.Is(err, errMissing) {
		return true
	}
	text := err.Error()
	return strings.HasPrefix(text, "no such key") || strings.HasPrefix(text, "index out of bounds") ||
		strings.HasPrefix(text, "index '") && strings.Contains(text, "out of range")
}
