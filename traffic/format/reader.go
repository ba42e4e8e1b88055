package format

import (
	"math"

	"github.com/weirhq/weir/traffic"
)

// memberReader reads the values of an event's members into a Request. A null is as good as no member at all, and resets what
// an earlier member of the same name has set: the last one wins.
type memberReader struct {
	scanner
	// lax is for logs that were not written for weir: numbers pass as text, text that is a number passes as one, and
	// "" and "-" mean that there is nothing.
	lax bool
}

// read reads the value at hand as member m.
func (s *memberReader) read(m member, r *traffic.Request) error {
	switch m {
	case memberTime:
		return s.readTime(r)
	case memberStatus:
		status, err := s.readWhole(m, maxStatus)
		r.Status = int(status)
		return err
	case memberLatency:
		return s.readSpan(r, 3, "a number of milliseconds")
	case memberBytes:
		n, err := s.readWhole(m, math.MaxInt64)
		r.Bytes = n
		return err
	case memberPath:
		path, err := s.readText(m)
		r.Path = cutQuery(path)
		return err
	case memberAttrs:
		start := s.i
		err := s.skip()
		r.Attrs = s.b[start:s.i:s.i]
		return err
	case memberHeaders:
		return s.readHeaders(r)
	case memberVerdict:
		return s.readVerdict(r)
	case memberClaimed:
		return s.readClaimed(r)
	}
	v, err := s.readText(m)
	if p := textMember(m, r); p != nil {
		*p = v
	}
	return err
}

// readText reads a string.
func (s *memberReader) readText(m member) (string, error) {
	switch c := s.peek(); {
	case c == '"':
		v, err := s.text()
		if s.lax && v == "-" {
			v = ""
		}
		return v, err
	case c == 'n':
		return "", s.literal("null")
	case s.lax && (c == '-' || c >= '0' && c <= '9'):
		return s.number()
	}
	if s.lax {
		return "", s.wrongType(m, "a string or a number")
	}
	return "", s.wrongType(m, "a string")
}

// maxStatus is the greatest status. Values outside of HTTP's 100 to 599 occur in logs: 0 for a client that went away.
const maxStatus = 999

// readWhole reads a whole number from 0 to limit, in any JSON spelling (2e2 is 200).
func (s *memberReader) readWhole(m member, limit int64) (int64, error) {
	at := s.i
	text, err := s.readNumber(m, "a whole number")
	if err != nil || text == "" {
		return 0, err
	}
	d, ok := parseDecimal(text)
	v, exact, fits := d.scaled(0)
	if !ok || !exact || !fits || v < 0 || v > limit {
		return 0, failure(ReasonBadValue, at, "%s: got %s, allowed: a whole number from 0 to %d", memberNames[m], traffic.Quote(text), limit)
	}
	return v, nil
}

// readSpan reads the latency in a unit of 10^shift microseconds, with decimals; what is finer than a microsecond is
// dropped.
func (s *memberReader) readSpan(r *traffic.Request, shift int, allowed string) error {
	r.LatencyUS = 0
	at := s.i
	text, err := s.readNumber(memberLatency, allowed)
	if err != nil || text == "" {
		return err
	}
	d, ok := parseDecimal(text)
	v, _, fits := d.scaled(shift)
	if !ok || !fits || v < 0 {
		return failure(ReasonBadValue, at, "latency_ms: got %s, allowed: %s from 0", traffic.Quote(text), allowed)
	}
	r.LatencyUS = v
	return nil
}

// readNumber reads a number's text. It is empty where there is none: null, and in lax reading "" and "-".
func (s *memberReader) readNumber(m member, allowed string) (string, error) {
	switch c := s.peek(); {
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 'n':
		return "", s.literal("null")
	case s.lax && c == '"':
		return s.readText(m)
	}
	return "", s.wrongType(m, allowed)
}

// readHeaders reads the object of reported request headers.
func (s *memberReader) readHeaders(r *traffic.Request) error {
	r.Headers = r.Headers[:0]
	if s.peek() == 'n' {
		return s.literal("null")
	}
	if s.peek() != '{' {
		return s.wrongType(memberHeaders, "an object of strings")
	}
	more, err := s.openObject()
	for more && err == nil {
		var h traffic.Header
		if h.Name, err = s.name(); err != nil {
			return err
		}
		if h.Value, err = s.readText(memberHeaders); err != nil {
			return err
		}
		r.Headers = append(r.Headers, h)
		more, err = s.nextMember()
	}
	return err
}

// readVerdict reads the object in which weir says that it answered the request itself.
func (s *memberReader) readVerdict(r *traffic.Request) error {
	r.Verdict = traffic.Verdict{}
	if s.peek() == 'n' {
		return s.literal("null")
	}
	if s.peek() != '{' {
		return s.wrongType(memberVerdict, "an object with rule and block")
	}
	more, err := s.openObject()
	for more && err == nil {
		var name string
		if name, err = s.name(); err != nil {
			return err
		}
		switch name {
		case "rule":
			err = s.read(memberVerdictRule, r)
		case "block":
			err = s.read(memberVerdictBlock, r)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
		more, err = s.nextMember()
	}
	return err
}

// wrongType reports the value at hand as one of a type that m does not take. It does not show the value, which may be a
// secret. Bytes that begin no value at all are a matter of syntax.
func (s *memberReader) wrongType(m member, allowed string) error {
	kind := ""
	switch c := s.peek(); {
	case c == '"':
		kind = "a string"
	case c == '{':
		kind = "an object"
	case c == '[':
		kind = "an array"
	case c == 't':
		kind = "true"
	case c == 'f':
		kind = "false"
	case c == '-' || c >= '0' && c <= '9':
		kind = "a number"
	default:
		return s.unexpected("a value")
	}
	at := s.i
	if err := s.skip(); err != nil {
		return err // what is no JSON is malformed, whatever its type was meant to be
	}
	return failure(ReasonWrongType, at, "%s: got %s, allowed: %s", memberNames[m], kind, allowed)
}

// claimMember marks member m of r, which has just been read, as the client's own claim. Empty members and those that are no part
// of the identity cannot be claimed.
func claimMember(r *traffic.Request, m member) {
	if f, ok := m.identityField(); ok && r.Field(f) != "" {
		r.Claimed = r.Claimed.With(f)
	}
}

// readClaimed reads the list of identity members that are the client's own claim. Events may have had a member of this name
// before the format did: a value that is no list and a name that is no field's are counted as unknown fields, not refused.
func (s *memberReader) readClaimed(r *traffic.Request) error {
	r.Claimed = 0
	switch s.peek() {
	case 'n':
		return s.literal("null")
	case '[':
	default:
		r.UnknownFields++
		return s.skip()
	}
	more, err := s.openList()
	for more && err == nil {
		if s.peek() != '"' {
			r.UnknownFields++
			err = s.skip()
		} else {
			var name string
			name, err = s.text()
			claim(r, name)
		}
		if err != nil {
			return err
		}
		more, err = s.nextElement()
	}
	return err
}

// claim adds a field to r.Claimed, by its name.
func claim(r *traffic.Request, name string) {
	f, ok := traffic.ParseField(name)
	if !ok || f == traffic.FieldIP {
		r.UnknownFields++
		return
	}
	r.Claimed = r.Claimed.With(f)
}

// readTime reads the time in any of the forms that timeForms lists.
func (s *memberReader) readTime(r *traffic.Request) (err error) {
	r.Time, r.HasTime = 0, false
	at := s.i
	var text string
	var ok bool
	switch c := s.peek(); {
	case c == '"':
		if text, err = s.text(); err != nil {
			return err
		}
		if s.lax {
			if text == "" || text == "-" {
				return nil
			}
			r.Time, ok = parseAnyTime(text)
		} else {
			r.Time, ok = parseRFC3339(text, false)
		}
	case c == '-' || c >= '0' && c <= '9':
		if text, err = s.number(); err != nil {
			return err
		}
		r.Time, ok = parseEpoch(text)
	case c == 'n':
		return s.literal("null")
	default:
		return s.wrongType(memberTime, s.timeForms())
	}
	if !ok {
		return failure(ReasonBadValue, at, "time: got %s, allowed: %s", traffic.Quote(text), s.timeForms())
	}
	r.HasTime = true
	return nil
}

func (s *memberReader) timeForms() string {
	if s.lax {
		return `RFC 3339 ("2026-11-21T05:06:07Z", without offset meaning UTC), "21/Nov/2026:05:06:07 +0000", or a number since 1970 in s, ms, us or ns; years 0000 to 9999`
	}
	return `an RFC 3339 string ("2026-11-21T05:06:07Z"), or a number since 1970 in s, ms, us or ns; years 0000 to 9999`
}
