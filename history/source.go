package history

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// decodedSubject has the values of a subject, one column each; nil where the rule's key, or the event, lacks the field.
type decodedSubject struct {
	ip                            *netip.Prefix
	device, user, apiKey, session *string
}

// decodeSubject leaves out values that no subject made by weir holds; the row keeps the whole subject in any case.
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

// Source selects rows by a value of their subject, or by the whole of it.
type Source struct {
	field traffic.Field
	any   bool // no field was named: text may be in any field
	text  string
	// forms are the spellings of text in rows: as it is and, since blocks keep long values as digests, its digest.
	forms []string
	// addresses are the prefixes, from /0 to the whole address, that a rule may have cut the address to. inside is set
	// instead where a prefix was asked for: it selects everything within it.
	addresses []netip.Prefix
	inside    netip.Prefix
	// subjects are set instead of all else where a canonical subject was asked for: the spellings of it in rows.
	subjects []traffic.Subject
	// parts is set instead of all else where a value beside the identity was asked for: how a subject may write it. No column has
	// it, so every row of the span of time is read.
	parts []string
}

// SourceOf selects the rows of exactly a subject.
func SourceOf(s traffic.Subject) Source { return Source{subjects: []traffic.Subject{s}} }

// ParseSource reads what `--source` takes: FIELD=VALUE, a VALUE to be found in any field of an identity, or a canonical
// subject (ip=192.0.2.1%2F32&device=tv-7), see traffic.CutSource. An address finds the subjects whose prefix holds it,
// a prefix (192.0.2.0/24) those within it. Values are found as ROUTE reads them (rules.TypedSource), and as they are
// typed, which is how records of format 3 have them. A text that looks like one of these forms and is not is an error:
// no row has it, and an empty answer would look like "nothing happened".
func ParseSource(text string) (Source, error) {
	if text == "" {
		return Source{}, fmt.Errorf("source is empty: allowed are FIELD=VALUE and VALUE")
	}
	asTyped, _, typed := traffic.CutSource(text)
	subject, name, value := rules.TypedSource(text)
	if subject != "" {
		return Source{subjects: slices.Compact([]traffic.Subject{subject, asTyped})}, nil
	}
	src := Source{any: true, text: value}
	if strings.Contains(text, "=") {
		field, known := traffic.ParseKeyField(name)
		if !known || field.Field == traffic.FieldFallback {
			return Source{}, fmt.Errorf("source %q: %q is no field of a subject; allowed: %s, {param}, attrs.NAME; a value with = in it needs its field before it, like session=%s",
				text, name, strings.Join(traffic.KeyFieldNames(), ", "), text)
		}
		if !field.OfIdentity() && value != "" {
			return Source{parts: append(extraParts(field, value), extraParts(field, typed)...)}, nil
		}
		src.any, src.field, src.text = false, field.Field, value
	}
	if src.any || src.field == traffic.FieldIP {
		src.readAddress()
	}
	isAddress := src.addresses != nil || src.inside.IsValid()
	switch {
	case !src.any && src.text == "":
		return Source{}, fmt.Errorf("source %q: no value; allowed are FIELD=VALUE and VALUE", text)
	case !src.any && src.field == traffic.FieldIP && !isAddress:
		return Source{}, fmt.Errorf("source ip=%s: allowed are an address (192.0.2.1) and a prefix (2001:db8::/64)", src.text)
	case src.any && !isAddress && likeAddress(text):
		return Source{}, fmt.Errorf("source %q is no address; allowed are an address (192.0.2.1) and a prefix (2001:db8::/64); "+
			"another value that looks like one needs its field before it, like device=%s", text, text)
	}
	for _, form := range slices.Compact([]string{src.text, typed}) {
		src.forms = append(src.forms, traffic.Printable(form))
		if traffic.StoredAsDigest(form) {
			src.forms = append(src.forms, string(traffic.AppendStoredValue(nil, form)))
		}
	}
	return src, nil
}

// extraParts is how a subject may write a value beside the identity: as it is, and a long one as its digest.
func extraParts(field traffic.KeyField, value string) []string {
	written, _ := traffic.MakeSubjectOf(&traffic.Identity{}, oneValue(value), []traffic.KeyField{field})
	parts := []string{string(written)}
	if stored := written.Stored(); stored != written {
		parts = append(parts, string(stored))
	}
	return append(parts, string(written.WithDigests()))
}

// oneValue is the value of every field.
type oneValue string

// ExtraValue is the value.
func (v oneValue) ExtraValue(traffic.KeyField) (string, bool) { return string(v), true }

// likeAddress reports whether text was probably meant as an address: four numbers with dots, or hexadecimal digits with as many
// colons as an IPv6 address has and a hardware address has not. A prefix length may follow.
func likeAddress(text string) bool {
	address, _, _ := strings.Cut(text, "/")
	if strings.Trim(address, "0123456789.") == "" {
		return strings.Count(address, ".") == 3
	}
	return strings.Trim(address, "0123456789abcdefABCDEF:.") == "" && (strings.Contains(address, "::") || strings.Count(address, ":") >= 7)
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

// column is the column that holds the values of a field.
func column(f traffic.Field) string {
	if f == traffic.FieldUser {
		return "user_id"
	}
	return f.String()
}

// Matches reports whether a subject is of this source, as Condition finds rows.
func (src *Source) Matches(s traffic.Subject) bool {
	if src.subjects != nil {
		return slices.ContainsFunc(src.subjects, func(own traffic.Subject) bool {
			return s == own || s.Stored() == own.Stored()
		})
	}
	if src.parts != nil {
		return slices.ContainsFunc(strings.Split(string(s), "&"), func(part string) bool { return slices.Contains(src.parts, part) })
	}
	values, err := s.Values()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(values, func(v traffic.SubjectValue) bool {
		field, known := traffic.ParseField(v.Field)
		return known && !v.Missing && src.Names(field, v.Value)
	})
}

// Names reports whether the source is that value of that field: an address within the prefix that was asked for, or the value itself.
func (src *Source) Names(field traffic.Field, value string) bool {
	switch {
	case src.parts != nil:
		return false
	case src.subjects != nil:
		return slices.ContainsFunc(src.subjects, func(s traffic.Subject) bool { return hasValue(s, field, value) })
	case !src.any && src.field != field:
		return false
	case field != traffic.FieldIP:
		return slices.Contains(src.forms, traffic.Printable(value))
	}
	p, err := netip.ParsePrefix(value)
	if err != nil {
		a, err := netip.ParseAddr(value)
		if err != nil {
			return false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if src.inside.IsValid() {
		return src.inside.Bits() <= p.Bits() && src.inside.Contains(p.Addr())
	}
	return slices.Contains(src.addresses, p.Masked())
}

// hasValue reports whether a subject has that value of that field, of an address its own.
func hasValue(s traffic.Subject, field traffic.Field, value string) bool {
	values, err := s.Values()
	return err == nil && slices.ContainsFunc(values, func(v traffic.SubjectValue) bool {
		own, known := traffic.ParseField(v.Field)
		return known && own == field && (v.Value == value || field == traffic.FieldIP &&
			strings.TrimSuffix(strings.TrimSuffix(v.Value, "/32"), "/128") == value)
	})
}

// Condition adds to w the condition that a row is of this source. Rows have the columns that subjects are taken apart into.
func (src *Source) Condition(w *postgres.Where) {
	if src.subjects != nil {
		src.subjectCondition(w)
		return
	}
	if src.parts != nil {
		w.Add("string_to_array(subject, '&') && ?::text[]", src.parts)
		return
	}
	var parts []string
	var args []any
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		if !src.any && f != src.field {
			continue
		}
		switch {
		case f != traffic.FieldIP:
			parts, args = append(parts, column(f)+" = ANY (?::text[])"), append(args, src.forms)
		case src.inside.IsValid():
			parts, args = append(parts, "ip <<= ?::cidr"), append(args, src.inside)
		case src.addresses != nil:
			parts, args = append(parts, "ip = ANY (?::cidr[])"), append(args, src.addresses)
		}
	}
	w.Add("("+strings.Join(parts, " OR ")+")", args...)
}

// subjectCondition adds to w the condition that the row's subject is one of src's, with long values as they are or as
// their digests. The conditions on single values are for their indexes: the column subject has none.
func (src *Source) subjectCondition(w *postgres.Where) {
	var written []string
	var ip *netip.Prefix
	var values [traffic.NumFields][]string
	for _, s := range src.subjects {
		for _, form := range []traffic.Subject{s, s.Stored()} {
			written = append(written, string(form))
			d := decodeSubject(form)
			ip = d.ip // the same in all
			for f, value := range map[traffic.Field]*string{
				traffic.FieldDevice: d.device, traffic.FieldUser: d.user, traffic.FieldAPIKey: d.apiKey,
				traffic.FieldSession: d.session,
			} {
				if value != nil {
					values[f] = append(values[f], *value)
				}
			}
		}
	}
	if ip != nil {
		w.Add("ip = ?::cidr", *ip)
	}
	for f, forms := range values {
		if len(forms) == len(written) { // in each of them
			w.Add(column(traffic.Field(f))+" = ANY (?::text[])", forms)
		}
	}
	w.Add("subject = ANY (?::text[])", written)
}
