package traffic

// EventVersion is the version of the weir event format, its member v.
const EventVersion = 1

// ControlEnd is Request.Control of an end mark.
const ControlEnd = "end"

// EndMark is the value of the record that closes a source partition of a replay: all events have been read. A decoder
// takes it only with AllowControl.
func EndMark() []byte { return []byte(`{"v":1,"control":"end"}`) }

// weirDecoder reads the weir event v1: one JSON object with members of fixed names and types (docs/events.md). It is a
// single pass over the bytes that copies nothing but strings with escapes in them.
type weirDecoder struct {
	max     int
	control bool
}

var _ Decoder = (*weirDecoder)(nil)

// Decode reads one event.
func (d *weirDecoder) Decode(b []byte, r *Request) error {
	*r = Request{Headers: r.Headers[:0]}
	if err := checkSize(b, d.max); err != nil {
		return err
	}
	s := eventReader{scanner: scanner{b: b}}
	s.space()
	more, err := s.openObject()
	members := 0 // beside v and control
	for more && err == nil {
		var name string
		if name, err = s.name(); err != nil {
			return err
		}
		switch m := findMember(name); m {
		case memberUnknown:
			r.UnknownFields++
			members++
			err = s.skip()
		case memberVersion:
			err = s.readVersion()
		case memberControl:
			err = d.readControl(&s, r)
		default:
			members++
			err = s.read(m, r)
		}
		if err != nil {
			return err
		}
		more, err = s.nextMember()
	}
	if err != nil {
		return err
	}
	if r.Control != "" && members > 0 {
		return failure(ReasonMalformed, -1, "an end mark with %d other members, allowed: none but v", members)
	}
	return s.end()
}

// readVersion refuses every version but EventVersion: a later one may mean something else by the same members.
func (s *eventReader) readVersion() error {
	at := s.i
	text, err := s.readNumber(memberVersion, "a number")
	if err != nil || text == "" {
		return err
	}
	d, _ := parseDecimal(text)
	if v, exact, ok := d.scaled(0); !ok || !exact || v != EventVersion {
		return failure(ReasonVersion, at, "v: got %s, allowed: %d", quote(text), EventVersion)
	}
	return nil
}

func (d *weirDecoder) readControl(s *eventReader, r *Request) error {
	at := s.i
	if !d.control {
		return failure(ReasonMalformed, at, "control: a reserved member, allowed only in the end mark of a replay")
	}
	if s.peek() != '"' {
		return failure(ReasonMalformed, at, "control: allowed: %q", ControlEnd)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	if text != ControlEnd {
		return failure(ReasonMalformed, at, "control: got %s, allowed: %q", quote(text), ControlEnd)
	}
	r.Control = ControlEnd
	return nil
}
