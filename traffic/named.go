package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Named is a source as its Subject names it: the values that an event must have so that a key gives that subject.
type Named struct {
	Identity Identity
	beside   []namedValue
}

type namedValue struct {
	field KeyField
	value string
}

var _ Extra = (*Named)(nil)

// ExtraValue is the source's value of a field beside its identity.
func (n *Named) ExtraValue(k KeyField) (string, bool) {
	for _, v := range n.beside {
		if v.field == k {
			return v.value, true
		}
	}
	return "", false
}

// Named takes s apart into the values that key has in it. It is an error where key never gives s: other fields or prefix
// lengths, another spelling, or a digest, from which the value that is counted cannot be had.
func (s Subject) Named(key []KeyField) (*Named, error) {
	values, err := s.Values()
	if err != nil {
		return nil, err
	}
	n := &Named{}
	for _, v := range values {
		if v.Digest {
			return nil, fmt.Errorf("%s: got the digest %.30q, allowed: the value itself, since counts are not kept by digests", v.Field, v.Value)
		}
		if v.Missing {
			continue
		}
		if err := n.set(v); err != nil {
			return nil, err
		}
	}
	if got, _ := MakeSubjectOf(&n.Identity, n, key); got != s {
		return nil, fmt.Errorf("got %.300q, which is no source of this key: such a one reads %.300q", s, got)
	}
	return n, nil
}

func (n *Named) set(v SubjectValue) error {
	field, ok := ParseKeyField(v.Field)
	switch {
	case !ok || field.Field == FieldFallback:
		return fmt.Errorf("got %.100q, which is no field of a source", v.Field)
	case v.Value == "":
		return fmt.Errorf("%s: got no value, allowed: one, or the field without =", field)
	case field.Field == FieldIP:
		p, err := netip.ParsePrefix(v.Value)
		if err != nil {
			return fmt.Errorf("ip: got %.100q, allowed: an address with its prefix length", v.Value)
		}
		n.Identity.IP = p.Addr()
	case field.Field == FieldDevice:
		n.Identity.Device = v.Value
	case field.Field == FieldUser:
		n.Identity.User = v.Value
	case field.Field == FieldAPIKey:
		n.Identity.APIKey = v.Value
	case field.Field == FieldSession:
		n.Identity.Session = v.Value
	default:
		n.beside = append(n.beside, namedValue{field, v.Value})
	}
	return nil
}

// SubjectOf is the subject that Values has taken apart.
func SubjectOf(values []SubjectValue) Subject {
	var out []byte
	for i, v := range values {
		if i > 0 {
			out = append(out, '&')
		}
		out = appendPercent(out, v.Field)
		switch {
		case v.Missing:
		case v.Digest:
			out = append(append(out, '='), v.Value...)
		default:
			out = appendPercent(append(out, '='), v.Value)
		}
	}
	return Subject(out)
}

// Narrow is the subject of a key of identity fields, made of the values of a wider one; false where one is missing, or
// an address that is cut shorter than the key has it.
func Narrow(values []SubjectValue, key []KeyField) (Subject, bool) {
	var out []SubjectValue
	for _, k := range key {
		at := slices.IndexFunc(values, func(v SubjectValue) bool {
			return k.Field < NumFields &&
				k.Field.String() == v.Field
		})
		if at < 0 || values[at].Missing {
			return "", false
		}
		v := values[at]
		if k.Field == FieldIP {
			p, err := netip.ParsePrefix(v.Value)
			if err != nil {
				return "", false
			}
			bits := int(k.V4)
			if p.Addr().Is6() {
				bits = int(k.V6)
			}
			if bits > p.Bits() {
				return "", false
			}
			v.Value = netip.PrefixFrom(p.Addr(), bits).Masked().String()
		}
		out = append(out, v)
	}
	return SubjectOf(out), true
}

// Shortened reports whether a value has the form that keys hold of one above 256 bytes: its beginning and a digest.
func Shortened(value string) bool {
	return len(value) > maxIdentityValue && len(value) >= keptIdentityValue && strings.HasPrefix(value[keptIdentityValue:], identityDigest) &&
		isDigest(value[keptIdentityValue+1:])
}
