package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// AttrPrefix begins the text of every AttrPath.
const AttrPrefix = traffic.AttrPrefix

// MaxAttrPathBytes bounds the text of an AttrPath.
const MaxAttrPathBytes = 256

// MaxUnits is the greatest number of units that one event can be: 2,147,483,647. A greater number counts as this one,
// which is above every limit that a rule can have.
const MaxUnits = 1<<31 - 1

// AttrPath names a member of Request.Attrs, such as attrs.cost; further names, joined by dots, lead into nested objects.
// A member whose own name has a dot in it cannot be named.
type AttrPath struct{ names []string }

// ParseAttrPath reads a path as rules write it.
func ParseAttrPath(s string) (AttrPath, error) {
	rest, ok := strings.CutPrefix(s, AttrPrefix)
	names := strings.Split(rest, ".")
	if !ok || len(s) > MaxAttrPathBytes || slices.Contains(names, "") || traffic.Printable(s) != s {
		return AttrPath{}, fmt.Errorf("got %s, allowed: %s and names of members joined by dots, at most %d bytes of printable text",
			traffic.Quote(s), AttrPrefix, MaxAttrPathBytes)
	}
	return AttrPath{names: names}, nil
}

// UnitsFault says why an event has no number of units.
type UnitsFault uint8

// The faults. Each is a reason that can label a counter.
const (
	UnitsFine     UnitsFault = iota // there is none
	UnitsAbsent                     // no attrs, no such member in it, or null
	UnitsNoNumber                   // a text, a truth value, an object or a list
	UnitsNegative                   // below 0
	UnitsFraction                   // no whole number
	NumUnitsFaults
)

var unitsFaultNames = [NumUnitsFaults]string{"fine", "absent", "no_number", "negative", "fraction"}

// String is the fault as a counter's label.
func (f UnitsFault) String() string {
	if f < NumUnitsFaults {
		return unitsFaultNames[f]
	}
	return fmt.Sprintf("units_fault(%d)", uint8(f))
}

// Units reads the whole number, 0 to MaxUnits, that p names in attrs, the JSON of Request.Attrs. Every JSON spelling of
// a whole number is one (7, 7.0, 70e-1); a text that looks like one is none. Where a name repeats, the last one counts, as
// everywhere in an event. With any fault but UnitsFine the number is 0.
func (p AttrPath) Units(attrs []byte) (int64, UnitsFault) {
	s, ok := p.find(attrs)
	if !ok || len(p.names) == 0 {
		return 0, UnitsAbsent
	}
	return s.attrUnits()
}

// attrUnits reads the units at hand.
func (s *scanner) attrUnits() (int64, UnitsFault) {
	switch c := s.peek(); {
	case c == 'n':
		return 0, UnitsAbsent
	case c != '-' && (c < '0' || c > '9'):
		return 0, UnitsNoNumber
	}
	text, err := s.number()
	d, ok := parseDecimal(text)
	if err != nil || !ok {
		return 0, UnitsNoNumber
	}
	return d.units()
}

// find goes to the value that p names; false if there is none.
func (p AttrPath) find(attrs []byte) (scanner, bool) {
	s := scanner{b: attrs}
	s.space()
	return s, s.enterAll(p.names) && s.i < len(s.b)
}

// Text is the text of the scalar that p names in attrs: a text as it is, true and false, and a number in one spelling for all
// JSON spellings of it, exact and without a size of its own: 7, -0.5, and 1e21 or 12e-7 where plain digits would need more than
// 21 of them. An object, a list, null and an empty text have none. Where a name repeats, the last one counts. The text may alias
// attrs.
func (p AttrPath) Text(attrs []byte) (string, bool) {
	s, ok := p.find(attrs)
	if !ok || len(p.names) == 0 {
		return "", false
	}
	return s.attrText()
}

// attrText reads the text of the scalar at hand.
func (s *scanner) attrText() (string, bool) {
	switch c := s.peek(); {
	case c == '"':
		text, err := s.text()
		return text, err == nil && text != ""
	case c == 't':
		return "true", s.literal("true") == nil
	case c == 'f':
		return "false", s.literal("false") == nil
	case c != '-' && (c < '0' || c > '9'):
		return "", false
	}
	text, err := s.number()
	d, ok := parseDecimal(text)
	if err != nil || !ok {
		return "", false
	}
	return d.text(text), true
}

// enterAll goes to the value of a member of a member, and so on.
func (s *scanner) enterAll(names []string) bool {
	for _, name := range names {
		if !s.enter(name) {
			return false
		}
	}
	return true
}

// enter goes to the value of the last member of this name, given that an object begins at hand.
func (s *scanner) enter(name string) bool {
	if s.peek() != '{' {
		return false
	}
	found := -1
	more, err := s.openObject()
	for more && err == nil {
		var got string
		if got, err = s.name(); err != nil {
			return false
		}
		if got == name {
			found = s.i
		}
		if err = s.skip(); err != nil {
			return false
		}
		more, err = s.nextMember()
	}
	if err != nil || found < 0 {
		return false
	}
	s.i = found
	return true
}

// units is d as a number of units.
func (d *decimal) units() (int64, UnitsFault) {
	v, exact, fits := d.scaled(0)
	switch {
	case d.negative && (!fits || !exact || v < 0):
		return 0, UnitsNegative
	case !fits:
		return MaxUnits, UnitsFine
	case !exact:
		return 0, UnitsFraction
	}
	return min(v, MaxUnits), UnitsFine
}
