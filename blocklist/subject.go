package blocklist

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weirhq/weir/traffic"
)

// Shape is what a block is keyed on: which fields, and to which prefix of which family an address is cut. A request is
// looked up once for each shape in use.
type Shape struct {
	Fields uint8 // bit 1<<Field
	V6     bool
	Bits   uint8
}

// Has reports whether f is among the fields.
func (s Shape) Has(f traffic.Field) bool { return s.Fields&(1<<f) != 0 }

// String is the shape as the shapes set lists it: fields joined by '&' in a subject's order, ip with family and prefix,
// as in `ip4/32&device`.
func (s Shape) String() string {
	out := ""
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		if !s.Has(f) {
			continue
		}
		if out != "" {
			out += "&"
		}
		switch {
		case f != traffic.FieldIP:
			out += f.String()
		case s.V6:
			out += "ip6/" + strconv.Itoa(int(s.Bits))
		default:
			out += "ip4/" + strconv.Itoa(int(s.Bits))
		}
	}
	return out
}

// ParsedSubject is a block's subject by its fields.
type ParsedSubject struct {
	Fields uint8                     // bit 1<<Field
	Prefix netip.Prefix              // valid when ip is among the fields
	Values [traffic.NumFields]string // as they are stored: a long value as its digest
}

// ParseSubject reads a subject that can be blocked: at least one field, each known, present, once and in order, an address
// as a canonical prefix. All else could not be found by a gate.
func ParseSubject(subject traffic.Subject) (ParsedSubject, error) {
	values, err := subject.Values()
	if err != nil {
		return ParsedSubject{}, fmt.Errorf("block %w", err)
	}
	if len(values) == 0 {
		return ParsedSubject{}, fmt.Errorf("block subject is empty")
	}
	var p ParsedSubject
	for i := range values {
		v := &values[i]
		f, ok := traffic.ParseField(v.Field)
		if !ok || v.Missing || v.Value == "" {
			return ParsedSubject{}, fmt.Errorf("block subject %q: field %q is unknown or has no value", subject, v.Field)
		}
		if p.Fields>>f != 0 {
			return ParsedSubject{}, fmt.Errorf("block subject %q: field %q is not in its place", subject, v.Field)
		}
		p.Fields |= 1 << f
		p.Values[f] = v.Value
		if !v.Digest && traffic.StoredAsDigest(v.Value) {
			p.Values[f] = string(traffic.AppendStoredValue(nil, v.Value))
		}
		if f == traffic.FieldIP {
			if p.Prefix, err = canonicalPrefix(v.Value); err != nil {
				return ParsedSubject{}, fmt.Errorf("block subject %q: %w", subject, err)
			}
		}
	}
	return p, nil
}

func canonicalPrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.String() != text || p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not canonical, allowed: %q", text, p.Masked())
	}
	return p, nil
}

// Shape is what the subject is keyed on.
func (p *ParsedSubject) Shape() Shape {
	s := Shape{Fields: p.Fields}
	if s.Has(traffic.FieldIP) {
		s.V6 = p.Prefix.Addr().Is6()
		s.Bits = uint8(p.Prefix.Bits()) // 0 to 128: the prefix is valid
	}
	return s
}

// hasAny reports whether one of fields is among p's.
func (p *ParsedSubject) hasAny(fields []traffic.Field) bool {
	for _, f := range fields {
		if p.Fields&(1<<f) != 0 {
			return true
		}
	}
	return false
}

// contains reports whether p has all of part's fields with the same values, an address in the same prefix or one around or
// inside it.
func (p *ParsedSubject) contains(part *ParsedSubject) bool {
	if p.Fields&part.Fields != part.Fields {
		return false
	}
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		switch {
		case part.Fields&(1<<f) == 0:
		case f == traffic.FieldIP:
			if !p.Prefix.Overlaps(part.Prefix) {
				return false
			}
		case p.Values[f] != part.Values[f]:
			return false
		}
	}
	return true
}

// bareIP reports whether p is an address and nothing else.
func (p *ParsedSubject) bareIP() bool { return p.Fields == 1<<traffic.FieldIP }
