package format

import "google.golang.org/protobuf/encoding/protowire"

// protoReader reads Protocol Buffers from b, from left to right: protowire with an error that says where, and before it the
// case that nearly every field is, written out: a tag of one or two bytes, a number or a length of one. protowire alone takes
// one and a half times as long for an event (docs/performance.md).
type protoReader struct {
	b []byte
	i int // the next byte
}

// maxGroups is how deep groups of unknown fields may nest. Nobody has written any since 2008.
const maxGroups = 64

// tag reads a field's number and wire type.
func (p *protoReader) tag() (number protowire.Number, wire protowire.Type, err error) {
	at := p.i
	if c := p.b[at]; c < 0x80 && c >= 1<<3 {
		p.i++
		return protowire.Number(c >> 3), protowire.Type(c & 7), nil
	} else if c >= 0x80 && at+1 < len(p.b) && p.b[at+1] < 0x80 && p.b[at+1] > 0 {
		p.i += 2
		return protowire.Number(p.b[at+1])<<4 | protowire.Number(c>>3&0xf), protowire.Type(c & 7), nil
	}
	v, err := p.varint()
	if err == nil && (v>>3 == 0 || v>>3 > uint64(protowire.MaxValidNumber)) {
		err = failure(ReasonMalformed, at, "field number %d, allowed: 1 to %d", v>>3, protowire.MaxValidNumber)
	}
	return protowire.Number(v >> 3), protowire.Type(v & 7), err
}

// varint reads a varint of at most ten bytes and 64 bits.
func (p *protoReader) varint() (uint64, error) {
	if p.i < len(p.b) && p.b[p.i] < 0x80 {
		p.i++
		return uint64(p.b[p.i-1]), nil
	}
	v, n := protowire.ConsumeVarint(p.b[p.i:])
	if n < 0 {
		return 0, failure(ReasonMalformed, p.i, "a varint that does not end, or is above 64 bits")
	}
	p.i += n
	return v, nil
}

func (p *protoReader) fixed64() (uint64, error) {
	v, n := protowire.ConsumeFixed64(p.b[p.i:])
	if n < 0 {
		return 0, p.short(8)
	}
	p.i += n
	return v, nil
}

// length passes a length and as many bytes, and says where they began.
func (p *protoReader) length() (start int, err error) {
	if i := p.i; i < len(p.b) && p.b[i] < 0x80 && int(p.b[i]) < len(p.b)-i {
		p.i += 1 + int(p.b[i])
		return i + 1, nil
	}
	v, n := protowire.ConsumeBytes(p.b[p.i:])
	if n < 0 {
		size, err := p.varint()
		if err == nil {
			err = p.short(size)
		}
		return 0, err
	}
	p.i += n
	return p.i - len(v), nil
}

func (p *protoReader) short(n uint64) error {
	return failure(ReasonMalformed, p.i, "a value of %d bytes, %d are left", n, len(p.b)-p.i)
}

func (p *protoReader) wrongWire(f protoField, wire protowire.Type, at int) error {
	if wire == protowire.EndGroupType || wire > protowire.Fixed32Type {
		return badWire(wire, at)
	}
	return failure(ReasonWrongType, at, "%s: got wire type %d, allowed: %d", memberNames[f.m], wire, f.wire)
}

func badWire(wire protowire.Type, at int) error {
	return failure(ReasonMalformed, at, "wire type %d, allowed: 0 to 3 and 5", wire)
}

// skip passes the value of an unknown field whose tag began at the byte offset at.
func (p *protoReader) skip(number protowire.Number, wire protowire.Type, at int) (err error) {
	switch wire {
	case protowire.VarintType:
		_, err = p.varint()
	case protowire.Fixed64Type:
		_, err = p.fixed64()
	case protowire.BytesType:
		_, err = p.length()
	case protowire.Fixed32Type:
		if len(p.b)-p.i < 4 {
			return p.short(4)
		}
		p.i += 4
	case protowire.StartGroupType:
		return p.skipGroup(number)
	default:
		return badWire(wire, at)
	}
	return err
}

// skipGroup passes what follows the tag that opened a group, to the tag that closes it. It loops instead of recursing, as
// skipContainer does; protowire recurses, to 10,000 levels.
func (p *protoReader) skipGroup(number protowire.Number) error {
	var open [maxGroups]protowire.Number
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
		case wire == protowire.StartGroupType && depth == maxGroups:
			return failure(ReasonMalformed, at, "groups nested too deep, allowed: %d levels", maxGroups)
		case wire == protowire.StartGroupType:
			open[depth] = inner
			depth++
		case wire == protowire.EndGroupType && open[depth-1] != inner:
			return failure(ReasonMalformed, at, "the end of group %d, allowed: that of group %d", inner, open[depth-1])
		case wire == protowire.EndGroupType:
			depth--
		default:
			if err := p.skip(inner, wire, at); err != nil {
				return err
			}
		}
	}
	return nil
}
