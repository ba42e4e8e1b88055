package blocklist

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/weirhq/weir/traffic"
)

// shape is what a block is keyed on: which fields, and to which prefix of which family an address is cut. A request is
// looked up once for each shape in use.
type shape struct {
	fields uint8 // bit 1<<Field
	v6     bool
	bits   uint8
}

func (s shape) has(f traffic.Field) bool { return s.fields&(1<<f) != 0 }

// String is the shape as the shapes set lists it: fields joined by '&' in a subject's order, ip with family and prefix,
// as in `ip4/32&device`.
func (s shape) String() string {
	out := ""
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		if !s.has(f) {
			continue
		}
		if out != "" {
			out += "&"
		}
		switch {
		case f != traffic.FieldIP:
			out += f.String()
		case s.v6:
			out += "ip6/" + strconv.Itoa(int(s.bits))
		default:
			out += "ip4/" + strconv.Itoa(int(s.bits))
		}
	}
	return out
}

// who is a block's subject, taken apart.
type who struct {
	fields uint8
	prefix netip.Prefix              // valid when ip is among the fields
	values [traffic.NumFields]string // as they are stored: a long value as its digest
}

// parseWho reads a subject that can be blocked: at least one field, each known, present, once and in order, an address
// as a canonical prefix. All else could not be found by a gate.
func parseWho(subject traffic.Subject) (who, error) {
	values, err := subject.Values()
	if err != nil {
		return who{}, fmt.Errorf("block %w", err)
	}
	if len(values) == 0 {
		return who{}, fmt.Errorf("block subject is empty")
	}
	var w who
	for i := range values {
		v := &values[i]
		f, ok := traffic.ParseField(v.Field)
		if !ok || v.Missing || v.Value == "" {
			return who{}, fmt.Errorf("block subject %q: field %q is unknown or has no value", subject, v.Field)
		}
		if w.fields>>f != 0 {
			return who{}, fmt.Errorf("block subject %q: field %q is not in its place", subject, v.Field)
		}
		w.fields |= 1 << f
		w.values[f] = v.Value
		if !v.Digest && traffic.StoredAsDigest(v.Value) {
			w.values[f] = string(traffic.AppendStoredValue(nil, v.Value))
		}
		if f == traffic.FieldIP {
			if w.prefix, err = canonicalPrefix(v.Value); err != nil {
				return who{}, fmt.Errorf("block subject %q: %w", subject, err)
			}
		}
	}
	return w, nil
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

func (w *who) shape() shape {
	s := shape{fields: w.fields}
	if s.has(traffic.FieldIP) {
		s.v6 = w.prefix.Addr().Is6()
		s.bits = uint8(w.prefix.Bits()) // 0 to 128: the prefix is valid
	}
	return s
}

// hasAny reports whether one of fields is among w's.
func (w *who) hasAny(fields []traffic.Field) bool {
	for _, f := range fields {
		if w.fields&(1<<f) != 0 {
			return true
		}
	}
	return false
}

// contains reports whether w has all of part's fields with the same values, an address in the same prefix or one around or
// inside it.
func (w *who) contains(part *who) bool {
	if w.fields&part.fields != part.fields {
		return false
	}
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		switch {
		case part.fields&(1<<f) == 0:
		case f == traffic.FieldIP:
			if !w.prefix.Overlaps(part.prefix) {
				return false
			}
		case w.values[f] != part.values[f]:
			return false
		}
	}
	return true
}

// bareIP reports whether w is an address and nothing else.
func (w *who) bareIP() bool { return w.fields == 1<<traffic.FieldIP }
