package format

import (
	"slices"
	"strconv"
	"strings"
)

// AttrKind is the JSON type of a value within attrs.
type AttrKind uint8

// The kinds.
const (
	AttrMissing   AttrKind = iota // no attrs, or no such member
	AttrNull                      // null, which is a value
	AttrFalse                     // false
	AttrTrue                      // true
	AttrWhole                     // a whole number within 64 bits, in any spelling
	AttrDecimal                   // any other number
	AttrText                      // a string
	AttrComposite                 // an object or a list
)

// AttrValue is one value within attrs.
type AttrValue struct {
	Kind    AttrKind
	Whole   int64   // with AttrWhole
	Decimal float64 // with AttrDecimal; one beyond its range is infinite
	Text    string  // with AttrText; it may alias attrs
	JSON    []byte  // with AttrComposite; it aliases attrs
}

// AttrPathOf is the path of these names, which may be any texts, dots included. Without names it is attrs itself.
func AttrPathOf(names ...string) AttrPath { return AttrPath{names: slices.Clone(names)} }

// String writes p as rules do; a name with a dot in it is not told apart.
func (p AttrPath) String() string { return AttrPrefix + strings.Join(p.names, ".") }

// Value reads the value that p names in attrs, the JSON of Request.Attrs. Where a name repeats, the last one counts. It
// allocates for a text with escapes, and for nothing else.
func (p AttrPath) Value(attrs []byte) AttrValue {
	s, ok := p.find(attrs)
	if !ok {
		return AttrValue{}
	}
	return s.attrValue()
}

// attrValue reads the value at hand.
func (s *scanner) attrValue() AttrValue {
	switch c := s.peek(); c {
	case 0:
		return AttrValue{}
	case 'n':
		return AttrValue{Kind: AttrNull}
	case 't':
		return AttrValue{Kind: AttrTrue}
	case 'f':
		return AttrValue{Kind: AttrFalse}
	case '"':
		text, err := s.text()
		if err != nil {
			return AttrValue{}
		}
		return AttrValue{Kind: AttrText, Text: text}
	case '{', '[':
		start := s.i
		if s.skip() != nil {
			return AttrValue{}
		}
		return AttrValue{Kind: AttrComposite, JSON: s.b[start:s.i]}
	}
	text, err := s.number()
	if err != nil {
		return AttrValue{}
	}
	if n := digitRun(text); n == len(text) && n <= shortDigits { // most are such
		whole := int64(0)
		for i := 0; i < n; i++ {
			whole = whole*10 + int64(text[i]-'0')
		}
		return AttrValue{Kind: AttrWhole, Whole: whole}
	}
	return numberValue(text)
}

func numberValue(text string) AttrValue {
	d, ok := parseDecimal(text)
	if !ok {
		return AttrValue{}
	}
	if v, exact, fits := d.scaled(0); exact && fits {
		return AttrValue{Kind: AttrWhole, Whole: v}
	}
	f, _ := strconv.ParseFloat(text, 64) // beyond the range: infinite, with an error that says so
	return AttrValue{Kind: AttrDecimal, Decimal: f}
}

// Equal reports whether both name the same.
func (p AttrPath) Equal(other AttrPath) bool { return slices.Equal(p.names, other.names) }
