package traffic

// identityField is the field of the identity that member m tells.
func (m member) identityField() (f Field, ok bool) {
	switch m {
	case memberDevice:
		return FieldDevice, true
	case memberUser:
		return FieldUser, true
	case memberAPIKey:
		return FieldAPIKey, true
	case memberSession:
		return FieldSession, true
	}
	return 0, false
}

// claimMember says of the member of the identity that r has just been given that it is what the client claims.
func (r *Request) claimMember(m member) {
	if f, ok := m.identityField(); ok && r.own(f) != "" {
		r.Claimed = r.Claimed.With(f)
	}
}

// readClaimed reads the list of the event's own members that are no more than what the client claims. The member is younger
// than the format: what it is elsewhere, and a name that it does not know, is ignored and counted, as any unknown member is.
func (s *eventReader) readClaimed(r *Request) error {
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
			r.claim(name)
		}
		if err != nil {
			return err
		}
		more, err = s.nextElement()
	}
	return err
}

// claim adds a field to r.Claimed, by its name.
func (r *Request) claim(name string) {
	f, ok := ParseField(name)
	if !ok || f == FieldIP {
		r.UnknownFields++
		return
	}
	r.Claimed = r.Claimed.With(f)
}

// appendClaimed appends the list that readClaimed reads.
func appendClaimed(dst []byte, claimed FieldSet) []byte {
	open := false
	for f := FieldDevice; f < NumFields; f++ {
		switch {
		case !claimed.Has(f):
			continue
		case open:
			dst = append(dst, ',')
		default:
			dst, open = append(dst, `,"claimed":[`...), true
		}
		dst = appendJSONString(dst, fieldNames[f])
	}
	if open {
		dst = append(dst, ']')
	}
	return dst
}
