package format

import "encoding/binary"

// protoReader reads the wire format of Protocol Buffers from b, from left to right.
type protoReader struct {
	b []byte
	i int // the next byte
}

// maxFieldNumber is the greatest field number that there is.
const maxFieldNumber = 1<<29 - 1

// maxGroups is how deep groups of unknown fields may nest. Nobody has written any since 2008.
const maxGroups = 64

// tag reads a field's number and wire type.
func (p *protoReader) tag() (number uint64, wire uint8, err error) {
	at := p.i
	if c := p.b[at]; c < 0x80 && c >= 1<<3 {
		p.i++
		return uint64(c >> 3), c & 7, nil
	} else if c >= 0x80 && at+1 < len(p.b) && p.b[at+1] < 0x80 && p.b[at+1] > 0 {
		p.i += 2
		return uint64(p.b[at+1])<<4 | uint64(c>>3&0xf), c & 7, nil
	}
	v, err := p.varint()
	if err == nil && (v>>3 == 0 || v>>3 > maxFieldNumber) {
		err = failure(ReasonMalformed, at, "field number %d, allowed: 1 to %d", v>>3, maxFieldNumber)
	}
	return v >> 3, uint8(v & 7), err
}

// varint reads a varint of at most ten bytes and 64 bits.
func (p *protoReader) varint() (uint64, error) {
	if p.i < len(p.b) && p.b[p.i] < 0x80 {
		p.i++
		return uint64(p.b[p.i-1]), nil
	}
	v, n := binary.Uvarint(p.b[p.i:])
	if n <= 0 {
		return 0, failure(ReasonMalformed, p.i, "a varint that does not end, or is above 64 bits")
	}
	p.i += n
	return v, nil
}

func (p *protoReader) fixed64() (uint64, error) {
	if len(p.b)-p.i < 8 {
		return 0, p.short(8)
	}
	p.i += 8
	return binary.LittleEndian.Uint64(p.b[p.i-8:]), nil
}

// length passes a length and as many bytes, and says where they began.
func (p *protoReader) length() (start int, err error) {
	if i := p.i; i < len(p.b) && p.b[i] < 0x80 && int(p.b[i]) < len(p.b)-i {
		p.i += 1 + int(p.b[i])
		return i + 1, nil
	}
	n, err := p.varint()
	if err != nil {
		return 0, err
	}
	if n > uint64(len(p.b)-p.i) {
		return 0, p.short(n)
	}
	start = p.i
	p.i += int(n)
	return start, nil
}

func (p *protoReader) short(n uint64) error {
	return failure(ReasonMalformed, p.i, "a value of %d bytes, %d are left", n, len(p.b)-p.i)
}

func (p *protoReader) wrongWire(f protoField, wire uint8, at int) error {
	if wire == wireGroupEnd || wire > wireFixed32 {
		return badWire(wire, at)
	}
	return failure(ReasonWrongType, at, "%s: got wire type %d, allowed: %d", memberNames[f.m], wire, f.wire)
}

func badWire(wire uint8, at int) error {
	return failure(ReasonMalformed, at, "wire type %d, allowed: 0 to 3 and 5", wire)
}

// skip passes the value of an unknown field whose tag began at the byte offset at.
func (p *protoReader) skip(number uint64, wire uint8, at int) (err error) {
	switch wire {
	case wireVarint:
		_, err = p.varint()
	case wireFixed64:
		_, err = p.fixed64()
	case wireBytes:
		_, err = p.length()
	case wireFixed32:
		if len(p.b)-p.i < 4 {
			return p.short(4)
		}
		p.i += 4
	case wireGroup:
		return p.skipGroup(number)
	default:
		return badWire(wire, at)
	}
	return err
}

// skipGroup passes what follows the tag that opened a group, to the tag that closes it. It loops instead of recursing, as
// skipContainer does.
func (p *protoReader) skipGroup(number uint64) error {
	var open [maxGroups]uint64
	open[0] = number
	for depth := 1; depth > 0; {
		at := p.i
		if at == len(p.b) {
			return failure(ReasonMalformed, at, "got the end of the message inside a group, allowed: its end")
		}
		inner, wire, err := p.tag()
		switch {
		case err != nil:
			return err
		case wire == wireGroup && depth == maxGroups:
			return failure(ReasonMalformed, at, "groups nested too deep, allowed: %d levels", maxGroups)
		case wire == wireGroup:
			open[depth] = inner
			depth++
		case wire == wireGroupEnd && open[depth-1] != inner:
			return failure(ReasonMalformed, at, "the end of group %d, allowed: that of group %d", inner, open[depth-1])
		case wire == wireGroupEnd:
			depth--
		default:
			if err := p.skip(inner, wire, at); err != nil {
				return err
			}
		}
	}
	return nil
}
