package traffic

// readTime reads the time in any of the forms that timeForms lists.
func (s *eventReader) readTime(r *Request) (err error) {
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
		return failure(ReasonBadValue, at, "time: got %s, allowed: %s", quote(text), s.timeForms())
	}
	r.HasTime = true
	return nil
}

func (s *eventReader) timeForms() string {
	if s.lax {
		return `RFC 3339 ("2026-11-21T05:06:07Z", without offset meaning UTC), "21/Nov/2026:05:06:07 +0000", or a number since 1970 in s, ms, us or ns; years 0000 to 9999`
	}
	return `an RFC 3339 string ("2026-11-21T05:06:07Z"), or a number since 1970 in s, ms, us or ns; years 0000 to 9999`
}
