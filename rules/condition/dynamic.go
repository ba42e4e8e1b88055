package condition

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"cel.dev/cel-go/common/operators"

	"github.com/weirhq/weir/traffic/format"
)

// Values of attrs have the type that the event gives them. Comparisons of such a value are those of CEL: values of different
// types are unequal, numbers are compared as numbers, and an order between others than two texts or two numbers is a fault.

// truth is a value that stands for itself: it must be true or false.
func truth(v value) clause {
	return func(e *Event) verdict {
		switch got := v.of(e); got.Kind {
		case format.AttrTrue:
			return yes
		case format.AttrFalse, format.AttrMissing:
			return no
		case format.AttrComposite:
			return compositeFault(got)
		}
		return failed(FaultType)
	}
}

// compositeFault is the fault of an object or a list where none can be.
func compositeFault(v *format.AttrValue) verdict {
	if len(v.JSON) > MaxComposite {
		return failed(FaultSize)
	}
	return failed(FaultType)
}

// compileValue compares a value with constants; nil for an operator that only a program has.
func compileValue(v value, function string, constants []format.AttrValue) clause {
	if function == operators.In {
		if !lists(constants) {
			return nil
		}
		return func(e *Event) verdict {
			got := v.of(e)
			if answer, done := absent(got); done {
				return answer
			}
			return is(among(got, constants))
		}
	}
	c := constants[0]
	switch function {
	case operators.Equals, operators.NotEquals:
		wanted := function == operators.Equals
		return func(e *Event) verdict {
			got := v.of(e)
			if answer, done := absent(got); done {
				return answer
			}
			return is(equal(got, &c) == wanted)
		}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return compileOrder(v, c, accepted(function))
	case "startsWith", "endsWith", "contains":
		if c.Kind != format.AttrText {
			return nil
		}
		test := map[string]func(s, part string) bool{"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains}[function]
		return func(e *Event) verdict {
			got := v.of(e)
			switch got.Kind {
			case format.AttrMissing:
				return no
			case format.AttrText:
				return is(test(got.Text, c.Text))
			case format.AttrComposite:
				return compositeFault(got)
			}
			return failed(FaultType)
		}
	}
	return nil
}

func compileOrder(v value, c format.AttrValue, accept [3]bool) clause {
	if c.Kind != format.AttrText && !number(&c) {
		return nil
	}
	return func(e *Event) verdict {
		got := v.of(e)
		switch {
		case got.Kind == format.AttrMissing:
			return no
		case got.Kind == format.AttrText && c.Kind == format.AttrText:
			return is(accept[strings.Compare(got.Text, c.Text)+1])
		case number(got) && number(&c):
			return is(accept[compareNumbers(got, &c)+1])
		case got.Kind == format.AttrComposite:
			return compositeFault(got)
		}
		return failed(FaultType)
	}
}

// absent is the answer about a value that is missing, or too big to be asked.
func absent(v *format.AttrValue) (answer verdict, done bool) {
	switch {
	case v.Kind == format.AttrMissing:
		return no, true
	case v.Kind == format.AttrComposite && len(v.JSON) > MaxComposite:
		return failed(FaultSize), true
	}
	return no, false
}

// exactDecimals is where a decimal has no room for every whole number any more.
const exactDecimals = 1 << 53

// lists reports whether `in` with these constants is as == with one after the other. CEL takes a list of constants for a set, in
// which a whole number is compared with a great decimal digit by digit, where == rounds it to a decimal first; and with null it
// does not. So what is beyond is left to CEL.
func lists(constants []format.AttrValue) bool {
	return !slices.ContainsFunc(constants, func(c format.AttrValue) bool {
		return c.Kind == format.AttrDecimal && math.Abs(c.Decimal) >= exactDecimals
	})
}

func among(v *format.AttrValue, constants []format.AttrValue) bool {
	for i := range constants {
		if equal(v, &constants[i]) {
			return true
		}
	}
	return false
}

// equal compares with a constant, which is no object and no list.
func equal(v, c *format.AttrValue) bool {
	if number(v) && number(c) {
		return compareNumbers(v, c) == 0
	}
	return v.Kind == c.Kind && v.Text == c.Text && v.Kind != format.AttrComposite
}

func number(v *format.AttrValue) bool {
	return v.Kind == format.AttrWhole || v.Kind == format.AttrDecimal
}

// compareNumbers compares as CEL does: a whole number with one that is not, as numbers with decimals.
func compareNumbers(a, b *format.AttrValue) int {
	switch {
	case a.Kind == format.AttrWhole && b.Kind == format.AttrWhole:
		return compareWhole(a.Whole, b.Whole)
	case a.Kind == format.AttrWhole:
		return -compareMixed(b.Decimal, a.Whole)
	case b.Kind == format.AttrWhole:
		return compareMixed(a.Decimal, b.Whole)
	}
	return cmp.Compare(a.Decimal, b.Decimal)
}

func compareWhole(a, b int64) int { return cmp.Compare(a, b) }

func compareMixed(d float64, i int64) int {
	switch {
	case d < math.MinInt64:
		return -1
	case d > math.MaxInt64:
		return 1
	}
	return cmp.Compare(d, float64(i))
}
