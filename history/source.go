package history

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// decodedSubject is a subject's values, one column each; nil where the key lacks the field, or the event did.
type decodedSubject struct {
	ip                            *netip.Prefix
	device, user, apiKey, session *string
}

// decodeSubject leaves out what a subject of weir's cannot hold; the row keeps the subject itself in any case.
func decodeSubject(s traffic.Subject) decodedSubject {
	var d decodedSubject
	values, err := s.Values()
	if err != nil {
		return d
	}
	for _, v := range values {
		field, known := traffic.ParseField(v.Field)
		if v.Missing || !known {
			continue
		}
		text := traffic.Printable(v.Value)
		switch field {
		case traffic.FieldIP:
			if p, err := netip.ParsePrefix(v.Value); err == nil {
				p = p.Masked() // cidr refuses host bits
				d.ip = &p
			}
		case traffic.FieldDevice:
			d.device = &text
		case traffic.FieldUser:
			d.user = &text
		case traffic.FieldAPIKey:
			d.apiKey = &text
		case traffic.FieldSession:
			d.session = &text
		}
	}
	return d
}

// Source selects rows by a value of their subject.
type Source struct {
	field traffic.Field
	any   bool // no field was named: value may be in any of them
	text  string
	// addresses are the prefixes, from /0 to the whole address, that a rule may have cut an address to. inside is set
	// where a prefix was asked for: everything in it is meant.
	addresses []netip.Prefix
	inside    netip.Prefix
}

// ParseSource reads what `--source` takes: FIELD=VALUE, or a VALUE to be found in any field. An address finds the
// subjects whose prefix holds it, a prefix (192.0.2.0/24) those within it.
func ParseSource(text string) (Source, error) {
	if text == "" {
		return Source{}, fmt.Errorf("source is empty: allowed are FIELD=VALUE and VALUE")
	}
	src := Source{any: true, text: text}
	if name, value, ok := strings.Cut(text, "="); ok {
		if field, known := traffic.ParseField(name); known {
			src = Source{field: field, text: value}
		}
	}
	if src.any || src.field == traffic.FieldIP {
		src.readAddress()
	}
	if !src.any && src.field == traffic.FieldIP && src.addresses == nil && !src.inside.IsValid() {
		return Source{}, fmt.Errorf("source ip=%s: allowed are an address (192.0.2.1) and a prefix (2001:db8::/64)", src.text)
	}
	src.text = traffic.Printable(src.text)
	return src, nil
}

func (src *Source) readAddress() {
	if p, err := netip.ParsePrefix(src.text); err == nil {
		src.inside = p.Masked()
		return
	}
	a, err := netip.ParseAddr(src.text)
	if err != nil {
		return
	}
	a = a.Unmap().WithZone("")
	for bits := 0; bits <= a.BitLen(); bits++ {
		if p, err := a.Prefix(bits); err == nil {
			src.addresses = append(src.addresses, p)
		}
	}
}

// column is where the values of a field are.
func column(f traffic.Field) string {
	if f == traffic.FieldUser {
		return "user_id"
	}
	return f.String()
}

// condition adds to w that the row is of this source.
func (src *Source) condition(w *where) {
	var parts []string
	var args []any
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		if !src.any && f != src.field {
			continue
		}
		switch {
		case f != traffic.FieldIP:
			parts, args = append(parts, column(f)+" = ?"), append(args, src.text)
		case src.inside.IsValid():
			parts, args = append(parts, "ip <<= ?::cidr"), append(args, src.inside)
		case src.addresses != nil:
			parts, args = append(parts, "ip = ANY (?::cidr[])"), append(args, src.addresses)
		}
	}
	w.add("("+strings.Join(parts, " OR ")+")", args...)
}
