package condition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Parts is a condition taken apart at &&, || and !, each part a condition of its own. It costs as many compilations as there are
// parts, and is for who asks why a condition holds or does not. It may be used by any number of goroutines, each with an Event of
// its own.
type Parts struct {
	condition *Condition
	join      Join
	of        []*Parts
}

// Join says how a condition is made of its parts.
type Join string

// The joins. A comparison has no parts, and so has what ?: chooses.
const (
	JoinNone Join = ""
	JoinAnd  Join = "and" // all must hold
	JoinOr   Join = "or"  // one must
	JoinNot  Join = "not" // its one part must not
)

// Parts takes a condition apart. The error is that of Compile.
func (l *Language) Parts(expr string) (*Parts, error) { return l.takeApart(expr, mode{}) }

// StrictParts takes a condition of CompileStrict apart.
func (l *Language) StrictParts(expr string) (*Parts, error) {
	return l.takeApart(expr, mode{strict: true})
}

func (l *Language) takeApart(expr string, how mode) (*Parts, error) {
	text := outline(expr)
	from, to := bare(text, 0, len(text))
	return outlined{l, how, expr, text}.parts(from, to)
}

// outlined is an expression with its outline.
type outlined struct {
	language *Language
	how      mode
	expr     string
	text     []byte
}

// parts takes expr[from:to] apart, which neither space nor a pair of parentheses surrounds.
func (o outlined) parts(from, to int) (*Parts, error) {
	p, text := &Parts{}, o.text
	var err error
	if p.condition, err = o.language.compile(o.expr[from:to], o.how); err != nil {
		return nil, fmt.Errorf("part %s: %w", traffic.Quote(o.expr[from:to]), err)
	}
	if placesOf(text[from:to], '?', 1) != nil {
		return p, nil
	}
	for _, try := range []struct {
		operator byte
		join     Join
	}{{'|', JoinOr}, {'&', JoinAnd}} {
		at := placesOf(text[from:to], try.operator, 2)
		if at == nil {
			continue
		}
		p.join = try.join
		begin := from
		for _, end := range append(at, to-from) {
			if err := p.add(o, begin, from+end); err != nil {
				return nil, err
			}
			begin = from + end + 2
		}
		return p, nil
	}
	return p, p.negation(o, from, to)
}

// add adds the expression from one place to another as a part; of one with the same join its parts.
func (p *Parts) add(o outlined, from, to int) error {
	from, to = bare(o.text, from, to)
	part, err := o.parts(from, to)
	switch {
	case err != nil:
		return err
	case part.join == p.join:
		p.of = append(p.of, part.of...)
	default:
		p.of = append(p.of, part)
	}
	return nil
}

// negation takes !(…) apart. Of a single comparison the ! is a part: !has(event.attrs.ok).
func (p *Parts) negation(o outlined, from, to int) error {
	text := o.text
	if text[from] != '!' {
		return nil
	}
	inner := from
	for inner < to && (text[inner] == '!' || text[inner] == ' ') {
		inner++
	}
	if inner == to || text[inner] != '(' || closing(text, inner) != to-1 {
		return nil
	}
	begin, end := bare(text, from+1, to)
	part, err := o.parts(begin, end)
	if err != nil || part.join == JoinNone {
		return err
	}
	p.join, p.of = JoinNot, []*Parts{part}
	return nil
}

// Judged is what an event makes of a condition, or of a part of it.
type Judged struct {
	Condition string   `json:"condition"` // as it was written
	Join      Join     `json:"join,omitempty"`
	Holds     bool     `json:"holds"`
	Fault     string   `json:"fault,omitempty"` // why it cannot be judged, so that it does not hold
	Reads     []Read   `json:"reads,omitempty"` // of a condition without parts
	Parts     []Judged `json:"parts,omitempty"`
}

// Read is what an event has for a field that a condition reads.
type Read struct {
	Field   string `json:"field"`             // as Condition.Reads has it
	Value   string `json:"value,omitempty"`   // a number, true, false, null, JSON, or a text in quotes with its bytes escaped
	Cut     bool   `json:"cut,omitempty"`     // the value is longer, and Value its beginning
	Missing bool   `json:"missing,omitempty"` // the event does not have it
}

// Judge judges an event by the condition and each of its parts.
func (p *Parts) Judge(e *Event) Judged {
	holds, fault := p.condition.Holds(e)
	out := Judged{Condition: p.condition.source, Join: p.join, Holds: holds}
	if fault != Fine {
		out.Fault = fault.String()
	}
	for _, part := range p.of {
		out.Parts = append(out.Parts, part.Judge(e))
	}
	if len(p.of) == 0 {
		for _, name := range p.condition.reads {
			out.Reads = append(out.Reads, p.condition.readOf(e, name))
		}
	}
	return out
}

// maxShown is how many bytes of a value are shown.
const maxShown = 60

// readOf is what the event has for a field that the condition reads.
func (c *Condition) readOf(e *Event, name string) Read {
	r := Read{Field: name}
	if i := slices.IndexFunc(c.values, func(v value) bool { return v.name == name }); i >= 0 {
		got := c.values[i].of(e)
		r.show(got)
		return r
	}
	f, _ := fieldNamed(name)
	if r.Missing = c.strict && e.lacks(f); r.Missing {
		return r
	}
	switch fieldKinds[f] {
	case kindTime:
		r.Value = e.request.Time.Std().UTC().Format(time.RFC3339Nano)
	case kindWhole:
		r.Value = strconv.FormatInt(e.whole(f), 10)
	case kindDecimal:
		r.Value = strconv.FormatFloat(e.latency(), 'g', -1, 64)
	default:
		r.text(e.text(f))
	}
	return r
}

func (r *Read) show(v *format.AttrValue) {
	switch v.Kind {
	case format.AttrMissing:
		r.Missing = true
	case format.AttrNull:
		r.Value = "null"
	case format.AttrFalse, format.AttrTrue:
		r.Value = strconv.FormatBool(v.Kind == format.AttrTrue)
	case format.AttrWhole:
		r.Value = strconv.FormatInt(v.Whole, 10)
	case format.AttrDecimal:
		r.Value = strconv.FormatFloat(v.Decimal, 'g', -1, 64)
	case format.AttrText:
		r.text(v.Text)
	case format.AttrComposite:
		text := string(v.JSON)
		if r.Cut = len(text) > maxShown; r.Cut {
			text = text[:maxShown]
		}
		r.Value = traffic.Printable(text)
	}
}

// text shows a text as CEL writes one, since clients choose what stands in it.
func (r *Read) text(s string) {
	if r.Cut = len(s) > maxShown; r.Cut {
		s = s[:maxShown]
	}
	r.Value = strconv.QuoteToASCII(s)
}

// outline is an expression that compiles with its texts and comments blanked out, so that what is left of quotes, parentheses and
// operators means something. It is as long as the expression.
func outline(expr string) []byte {
	out := []byte(expr)
	for i := 0; i < len(out); {
		end := i + 1
		switch c := out[i]; {
		case c == '/' && strings.HasPrefix(expr[i:], "//"):
			end = i + strings.IndexByte(expr[i:]+"\n", '\n')
			blank(out[i:end], ' ')
		case c == '"' || c == '\'':
			end = endOfText(expr, i)
			blank(out[i:end], '_')
		case c == '`': // a name that is no identifier
			end = i + 2 + strings.IndexByte(expr[i+1:]+"`", '`')
			end = min(end, len(expr))
			blank(out[i:end], '_')
		case c == '\n' || c == '\t':
			out[i] = ' '
		}
		i = end
	}
	return out
}

func blank(s []byte, with byte) {
	for i := range s {
		s[i] = with
	}
}

// endOfText is behind the closing quote of the text that begins at i: "…" or """…""", with escapes unless an r stands before it.
func endOfText(expr string, i int) int {
	quote := expr[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(expr[i:], triple) {
		quote = triple
	}
	raw := i > 0 && (expr[i-1] == 'r' || expr[i-1] == 'R')
	for at := i + len(quote); at < len(expr); at++ {
		switch {
		case strings.HasPrefix(expr[at:], quote):
			return at + len(quote)
		case expr[at] == '\\' && !raw:
			at++
		}
	}
	return len(expr)
}

// bare is the part of text[from:to] within spaces and parentheses around all of it.
func bare(text []byte, from, to int) (int, int) {
	for from < to {
		switch {
		case text[from] == ' ':
			from++
		case text[to-1] == ' ':
			to--
		case text[from] == '(' && closing(text, from) == to-1:
			from, to = from+1, to-1
		default:
			return from, to
		}
	}
	return from, to
}

// closing is where the parenthesis at `at` is closed.
func closing(text []byte, at int) int {
	depth := 0
	for i := at; i < len(text); i++ {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// placesOf are the places in an outline where an operator of so many of these bytes stands outside of all parentheses.
func placesOf(text []byte, operator byte, size int) (at []int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case operator:
			if depth == 0 {
				at = append(at, i)
				i += size - 1
			}
		}
	}
	return at
}
