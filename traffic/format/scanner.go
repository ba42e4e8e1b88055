package format

import (
	"encoding/binary"
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// maxDepth is how deep the value of one member may nest. The scanner keeps one bit per level, no stack frame.
const maxDepth = 512

// scanner reads RFC 8259 JSON from b, from left to right, without building a tree. What it accepts is what the RFC
// defines with two exceptions: bytes above 0x7f inside strings are taken as they are, valid UTF-8 or not (a client must
// not be able to get rid of an event by one bad byte), and nesting is bounded by maxDepth.
type scanner struct {
	b []byte
	i int // the next byte
}

// peek is the next byte, or 0 at the end. A NUL in the input is wrong everywhere outside strings too, so that both can
// be treated alike until it comes to the error message.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// space skips white space.
func (s *scanner) space() {
	for s.i < len(s.b) {
		if c := s.b[s.i]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return
		}
		s.i++
	}
}

// unexpected reports the next byte as wrong.
func (s *scanner) unexpected(allowed string) error {
	if s.i >= len(s.b) {
		return failure(ReasonMalformed, s.i, "got the end of the message, allowed: %s", allowed)
	}
	return failure(ReasonMalformed, s.i, "got %s, allowed: %s", traffic.Quote(s.b[s.i:min(s.i+8, len(s.b))]), allowed)
}

// end makes sure that nothing follows but white space.
func (s *scanner) end() error {
	s.space()
	if s.i < len(s.b) {
		return s.unexpected("nothing after the event")
	}
	return nil
}

// openObject passes `{`. more is false if the object has no member; then `}` has been passed too.
func (s *scanner) openObject() (more bool, err error) {
	if s.peek() != '{' {
		return false, s.unexpected("an object, {")
	}
	s.i++
	s.space()
	if s.peek() == '}' {
		s.i++
		return false, nil
	}
	return true, nil
}

// name reads a member's name and its colon, and stops at the value. A name of up to seven bytes, its colon and its value without
// a space between them, which is how most writers write most members, is read from one word.
func (s *scanner) name() (string, error) {
	if start := s.i + 1; start+10 <= len(s.b) && s.b[s.i] == '"' {
		end := start + bits.TrailingZeros64(notPlain(binary.LittleEndian.Uint64(s.b[start:]))|1<<63)>>3
		if s.b[end] == '"' && s.b[end+1] == ':' && s.b[end+2] > ' ' {
			s.i = end + 2
			return alias(s.b[start:end]), nil
		}
	}
	if s.peek() != '"' {
		return "", s.unexpected("a member name in double quotes")
	}
	name, err := s.text()
	if err != nil {
		return "", err
	}
	return name, s.colon()
}

// colon passes the colon after a name, and the white space around it.
func (s *scanner) colon() error {
	if s.peek() != ':' { // most writers put no space here
		s.space()
		if s.peek() != ':' {
			return s.unexpected("a colon")
		}
	}
	s.i++
	s.space()
	return nil
}

// nextMember goes from the end of a value to the next member; more is false after the object's end.
func (s *scanner) nextMember() (more bool, err error) {
	s.space()
	switch s.peek() {
	case ',':
		s.i++
		s.space()
		return true, nil
	case '}':
		s.i++
		return false, nil
	}
	return false, s.unexpected("a comma or }")
}

// openList passes `[`. more is false if the list is empty; then `]` has been passed too.
func (s *scanner) openList() (more bool, err error) {
	if s.peek() != '[' {
		return false, s.unexpected("a list, [")
	}
	s.i++
	s.space()
	if s.peek() == ']' {
		s.i++
		return false, nil
	}
	return true, nil
}

// nextElement goes from the end of a value to the next element; more is false after the list's end.
func (s *scanner) nextElement() (more bool, err error) {
	s.space()
	switch s.peek() {
	case ',':
		s.i++
		s.space()
		return true, nil
	case ']':
		s.i++
		return false, nil
	}
	return false, s.unexpected("a comma or ]")
}

// skip passes one value of any type and checks its syntax.
func (s *scanner) skip() error {
	switch s.peek() {
	case '{', '[':
		return s.skipContainer()
	}
	return s.skipScalar()
}

func (s *scanner) skipScalar() error {
	switch c := s.peek(); {
	case c == '"':
		return s.skipText()
	case c == '-' || c >= '0' && c <= '9':
		_, err := s.number()
		return err
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.unexpected("a value")
}

func (s *scanner) literal(word string) error {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.unexpected(word)
	}
	s.i += len(word)
	return nil
}

// nesting remembers for each open level whether it is an object.
type nesting struct {
	objects [maxDepth / 64]uint64
	depth   int
}

func (n *nesting) push(object bool) {
	word, bit := n.depth/64, uint64(1)<<(n.depth%64)
	n.objects[word] &^= bit
	if object {
		n.objects[word] |= bit
	}
	n.depth++
}

func (n *nesting) inObject() bool {
	top := n.depth - 1
	return n.objects[top/64]>>(top%64)&1 == 1
}

// skipContainer passes an object or array. It loops instead of recursing: an attacker decides how deep it goes.
func (s *scanner) skipContainer() error {
	var open nesting
	for {
		// A value begins here.
		if c := s.peek(); c == '{' || c == '[' {
			if open.depth == maxDepth {
				return failure(ReasonMalformed, s.i, "nested too deep, allowed: %d levels", maxDepth)
			}
			open.push(c == '{')
			s.i++
			s.space()
			if s.peek() != c+2 { // in ASCII, } is { plus 2 and ] is [ plus 2
				if err := s.element(&open); err != nil {
					return err
				}
				continue
			}
			s.i++
			open.depth--
		} else if err := s.skipScalar(); err != nil {
			return err
		}
		// A value has ended here.
		more, err := s.closeLevels(&open)
		if err != nil || !more {
			return err
		}
	}
}

// element goes to the value of the next element: past the name in an object.
func (s *scanner) element(open *nesting) error {
	if !open.inObject() {
		return nil
	}
	if s.peek() != '"' {
		return s.unexpected("a member name in double quotes")
	}
	if err := s.skipText(); err != nil {
		return err
	}
	return s.colon()
}

// closeLevels goes from the end of a value past every level that ends there. more is false when the outermost has.
func (s *scanner) closeLevels(open *nesting) (more bool, err error) {
	for open.depth > 0 {
		s.space()
		object := open.inObject()
		switch c := s.peek(); {
		case c == ',':
			s.i++
			s.space()
			return true, s.element(open)
		case c == '}' && object, c == ']' && !object:
			s.i++
			open.depth--
		case object:
			return false, s.unexpected("a comma or }")
		default:
			return false, s.unexpected("a comma or ]")
		}
	}
	return false, nil
}
