package traffic

// readHeaders reads the object of reported request headers.
func (s *eventReader) readHeaders(r *Request) error {
	r.Headers = r.Headers[:0]
	if s.peek() == 'n' {
		return s.literal("null")
	}
	if s.peek() != '{' {
		return s.wrongType(memberHeaders, "an object of strings")
	}
	more, err := s.openObject()
	for more && err == nil {
		var h Header
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
func (s *eventReader) readVerdict(r *Request) error {
	r.Verdict = Verdict{}
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
func (s *eventReader) wrongType(m member, allowed string) error {
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
