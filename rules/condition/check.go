package condition

import "errors"

// Check reports what is wrong with a condition: nothing if Compile takes it. Lines and columns are from 1, 0 for the whole.
// It is what rules.Conditions asks for.
func (l *Language) Check(expr string, report func(line, column int, got, allowed, hint string)) {
	_, err := l.Compile(expr)
	if bad := (*Error)(nil); errors.As(err, &bad) {
		for _, p := range bad.Problems {
			report(p.Line, p.Column, p.Got, p.Allowed, p.Hint)
		}
	}
}

// Reads lists the fields of an event that a condition reads, as Condition.Reads; none for one that does not compile.
func (l *Language) Reads(expr string) []string {
	c, err := l.Compile(expr)
	if err != nil {
		return nil
	}
	return c.Reads()
}
