package condition

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// Settled reports each comparison of a field with a text or a number that comes out the same for every event, since conditions see
// the field in one form only: no method has lower-case letters, no host a port. Lines and columns are those of the text or number,
// from 1. It is sure of what it reports, and knows no more than single comparisons; of what is no condition it reports nothing.
func (l *Language) Settled(expr string, report func(line, column int, got, allowed, hint string)) {
	if len(expr) > MaxBytes || checkExtent(expr) != nil {
		return
	}
	parsed, re, err := l.parse(expr, patterns{}, false)
	if err != nil {
		return
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		left, right, function, ok := sides(e)
		if !ok || left.Kind() != ast.IdentKind || !strings.HasPrefix(left.AsIdent(), eventPrefix) {
			return
		}
		f, ok := fieldNamed(left.AsIdent()[len(eventPrefix):])
		if !ok {
			return
		}
		with := []ast.Expr{right}
		if function == operators.In && right.Kind() == ast.ListKind {
			with = right.AsList().Elements()
		}
		for _, one := range with {
			if one.Kind() != ast.LiteralKind {
				continue
			}
			c := fieldComparison{field: f, function: function}
			if !c.settled(one, re.patterns) {
				continue
			}
			at := re.info.GetStartLocation(one.ID())
			report(at.Line(), at.Column()+1, c.words(), c.allowed, c.hint)
		}
	}))
}

// fieldComparison is one of a field with a literal.
type fieldComparison struct {
	field    field
	function string
	literal  string // as messages show it
	allowed  string // what the field may be
	hint     string
}

// settled reports whether the comparison comes out the same for every event, and fills c in.
func (c *fieldComparison) settled(literal ast.Expr, known patterns) bool {
	switch v := literal.AsLiteral().(type) {
	case types.String:
		form, ok := textForms()[c.field]
		if !ok || form.fits(c.function, string(v), known) {
			return false
		}
		c.literal, c.allowed, c.hint = traffic.Quote(string(v)), form.allowed, form.remedy(c.function, string(v))
		return true
	case types.Int:
		return c.settledNumber(float64(v), strconv.FormatInt(int64(v), 10))
	case types.Uint:
		return c.settledNumber(float64(v), strconv.FormatUint(uint64(v), 10)+"u")
	case types.Double:
		return c.settledNumber(float64(v), strconv.FormatFloat(float64(v), 'g', -1, 64))
	}
	return false
}

func (c *fieldComparison) settledNumber(n float64, shown string) bool {
	form, ok := numberForms()[c.field]
	if !ok || form.fits(c.function, n) {
		return false
	}
	c.literal, c.allowed = shown, form.allowed
	if n < 0 {
		c.hint = "0 is what an event has that does not tell it"
	}
	return true
}

// words are the comparison, and what it comes out as.
func (c *fieldComparison) words() string {
	name := eventPrefix + fieldNames[c.field]
	operator, _ := operators.FindReverse(c.function)
	switch {
	case c.function == operators.In:
		return c.literal + " in the list for " + name + ", which it never is"
	case c.function == operators.NotEquals:
		return name + " != " + c.literal + ", which always holds"
	case operator != "":
		return name + " " + operator + " " + c.literal + ", which never holds"
	}
	return name + "." + c.function + "(" + c.literal + "), which never holds"
}

// textForm is what a field's texts have in common, whatever gateways and clients write. The empty text, for what the event does not
// have, is of every form.
type textForm struct {
	allowed string                             // in words
	has     func(c rune) bool                  // whether a text may have a character; those beyond ASCII are alike
	is      func(text string) bool             // whether a field may be a text whose characters it may have; nil: any
	meant   func(text string) string           // the text of the form that was probably meant by another
	advice  func(function, text string) string // where none was; may be nil
}

// textForms are those of the fields that have one: Event.text brings method, host and address into it, and decoders cut the query off
// paths.
func textForms() map[field]textForm {
	return map[field]textForm{
		fieldMethod: {
			allowed: "a method in upper case, as conditions see each",
			has:     func(c rune) bool { return c < 'a' || c > 'z' },
			meant:   upper, advice: adviseOnCase,
		},
		fieldHost: {
			allowed: "a host in lower case and without port, as conditions see each",
			has:     func(c rune) bool { return c < 'A' || c > 'Z' },
			is:      isPlainHost, meant: reading.PlainHost, advice: adviseOnCase,
		},
		fieldIP: {
			allowed: "an address in its canonical form, such as 203.0.113.9 or 2001:db8::1",
			has:     func(c rune) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c == '.' || c == ':' },
			is:      isPlainAddress, meant: plainAddress, advice: adviseOnAddress,
		},
		fieldPath: {
			allowed: "a path without its query, as events have it",
			has:     func(c rune) bool { return c != '?' },
			meant:   reading.CutQuery,
			advice:  func(string, string) string { return "the query is no part of event.path" },
		},
	}
}

// fits reports whether the comparison may come out either way. known are the patterns of matches.
func (t *textForm) fits(function, text string, known patterns) bool {
	switch function {
	case "startsWith", "endsWith", "contains":
		return t.spells(text)
	case "matches":
		p := known[text]
		return p == nil || p.findable(t.has)
	case operators.Equals, operators.NotEquals, operators.In:
		return text == "" || t.spells(text) && (t.is == nil || t.is(text))
	}
	return true
}

// spells reports whether texts of the form may have all characters of text.
func (t *textForm) spells(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !t.has(c) })
}

// remedy says what to write in the place of a text that does not fit.
func (t *textForm) remedy(function, text string) string {
	if function == operators.Equals || function == operators.NotEquals || function == operators.In {
		if meant := t.meant(text); meant != "" && t.fits(function, meant, nil) {
			return "write " + traffic.Quote(meant)
		}
	} else if function != "matches" {
		for _, cased := range []string{upper(text), lower(text)} {
			if cased != text && t.spells(cased) {
				return "write " + traffic.Quote(cased)
			}
		}
	}
	if t.advice == nil {
		return ""
	}
	return t.advice(function, text)
}

func adviseOnCase(function, _ string) string {
	if function == "matches" {
		return "(?i) at the beginning of a pattern takes letters of either case"
	}
	return ""
}

// isPlainHost reports whether a host comes out so, of whatever a client has sent: of all hosts that do, either one with a dot behind
// it or with an empty port behind that does. An odd host may have two dots at its end, or colons.
func isPlainHost(text string) bool {
	return reading.PlainHost(text+".") == text || reading.PlainHost(text+".:") == text
}

// plainAddress is the address that a text with an address in it names, in the form that an event has; empty for none.
func plainAddress(text string) string {
	addr, ok := traffic.ParseClient(text)
	if !ok || addr.IsUnspecified() { // which an event has as no address
		return ""
	}
	return addr.String()
}

func isPlainAddress(text string) bool { return plainAddress(text) == text }

func adviseOnAddress(function, text string) string {
	if addr, ok := traffic.ParseClient(text); ok && addr.IsUnspecified() {
		return `"" is what an event has that does not tell its address`
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil || function == "matches" {
		return ""
	}
	if prefix.IsSingleIP() {
		return "write " + traffic.Quote(plainAddress(prefix.Addr().String()))
	}
	octets := prefix.Bits() / 8
	if !prefix.Addr().Is4() || prefix.Bits()%8 != 0 || octets == 0 {
		return "conditions compare texts, and know no prefixes of addresses"
	}
	parts := strings.SplitAfter(prefix.Masked().Addr().String(), ".")
	return fmt.Sprintf("conditions compare texts: event.ip.startsWith(%q) asks for %s", strings.Join(parts[:octets], ""), prefix.Masked())
}

// numberForm is within which bounds a field's numbers lie.
type numberForm struct {
	allowed     string
	least, most float64
}

// numberForms are those of the fields that are numbers. No decoder takes others: a status beyond HTTP's 100 to 599 is one that some
// gateways write.
func numberForms() map[field]numberForm {
	const unbounded = "0 and more, 0 where the event does not tell it"
	return map[field]numberForm{
		fieldStatus:  {"0 to 999, 0 where the event does not tell it", 0, 999},
		fieldBytes:   {unbounded, 0, math.Inf(1)},
		fieldLatency: {unbounded, 0, math.Inf(1)},
	}
}

// fits reports whether the comparison may come out either way, or is an order that always holds: such a bound does no harm.
func (t *numberForm) fits(function string, n float64) bool {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In:
		return n >= t.least && n <= t.most
	case operators.Less:
		return n > t.least
	case operators.LessEquals:
		return n >= t.least
	case operators.Greater:
		return n < t.most
	case operators.GreaterEquals:
		return n <= t.most
	}
	return true
}
