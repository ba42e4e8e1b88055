// Package subject writes and reads subjects on the command line. A printed subject can be pasted into a shell, which finds
// nothing in it, and is read back as the same subject: clients choose devices, users and the like, and may choose them for the
// operator who releases them.
package subject

import (
	"net/netip"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/traffic"
)

// Text writes a subject as words that name it: ip=192.0.2.1/32 device=tv-7. Where a value has more than letters, digits and
// -._:/@, it is the canonical form in single quotes: a space would look like another field, and shells know the rest.
func Text(s traffic.Subject) string {
	values, err := canonical(s)
	if err != nil {
		return Quoted(strings.Map(subjectByte, string(s)))
	}
	if len(values) == 0 {
		return "(all)"
	}
	if s.WithDigests() != s {
		return Quoted(string(s)) // a value that reads like a digest, and is none
	}
	parts := make([]string, len(values))
	for i, v := range values {
		switch {
		case !plain(v.Value), !plain(v.Field):
			return Quoted(string(s)) // braces, for one, are no plain text to a shell
		case v.Missing:
			parts[i] = v.Field + " missing"
		default:
			parts[i] = v.Field + "=" + v.Value
		}
	}
	return strings.Join(parts, " ")
}

// subjectByte keeps what a subject can hold: it says something of a text that is none, and a shell finds nothing in it.
func subjectByte(r rune) rune {
	if plainByte(r) || strings.ContainsRune("%&=~", r) {
		return r
	}
	return '·'
}

// plain reports whether a value means the same to a shell, to people and to parseSubject.
func plain(value string) bool {
	return strings.IndexFunc(value, func(r rune) bool { return !plainByte(r) }) < 0
}

// plainByte leaves out the tilde, which bash expands behind a = or a colon.
func plainByte(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._:/@", r)
}

// Quoted is text as one word of a shell's.
func Quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Read reads a subject as Text writes it, or as people type it. v4 and v6 are the prefix lengths of addresses that
// come without.
func Read(words []string, v4, v6 uint8) (traffic.Subject, error) {
	if len(words) != 1 || !strings.ContainsAny(words[0], "%&") {
		return parseSubject(words, v4, v6)
	}
	s := traffic.Subject(words[0])
	_, err := canonical(s)
	switch {
	case err == nil:
		return s, nil
	case strings.Contains(words[0], "%"):
		return "", usage.Errorf("SOURCE: %w; allowed with a %% in it: the form that weir blocks list --output json shows, with %%25 for a %% itself", err)
	}
	return parseSubject(words, v4, v6) // an & within a value
}

// canonical takes apart what is the subject of some key, and says why another text is not.
func canonical(s traffic.Subject) ([]traffic.SubjectValue, error) {
	values, err := s.Values()
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		if _, known := traffic.ParseKeyField(v.Field); !known {
			return nil, unknownField(v.Field)
		}
	}
	return values, nil
}

// unknownField is the mistake of a name that is no field's.
func unknownField(name string) error {
	return usage.Unknown("field", name, append(traffic.KeyFieldNames(), "{param}", "attrs.NAME"), "")
}

// parseSubject reads FIELD=VALUE words. v4 and v6 are the prefix lengths of addresses that come without.
func parseSubject(words []string, v4, v6 uint8) (traffic.Subject, error) {
	var id traffic.Identity
	var key []traffic.KeyField
	extra := typed{}
	seen := map[traffic.KeyField]bool{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		k, known := traffic.ParseKeyField(name)
		if ok && (!known || k.Field == traffic.FieldFallback) {
			return "", usage.Errorf("SOURCE: %w", unknownField(name))
		}
		if !ok || value == "" || seen[k] {
			return "", usage.Errorf("SOURCE: got %q; allowed: FIELD=VALUE, each of %s, {param} and attrs.NAME once at most", w, strings.Join(traffic.KeyFieldNames(), ", "))
		}
		seen[k] = true
		switch k.Field {
		case traffic.FieldIP:
			addr, bits, err := parseAddress(value)
			if err != nil {
				return "", err
			}
			k.V4, k.V6 = v4, v6
			if bits >= 0 {
				k.V4, k.V6 = uint8(bits), uint8(bits)
			}
			id.IP = addr
		case traffic.FieldDevice:
			id.Device = value
		case traffic.FieldUser:
			id.User = value
		case traffic.FieldAPIKey:
			id.APIKey = value
		case traffic.FieldSession:
			id.Session = value
		default:
			extra[k] = value
		}
		key = append(key, k)
	}
	who, _ := traffic.MakeSubjectOf(&id, extra, key)
	return who.WithDigests(), nil
}

// typed are the values of a source beside its identity.
type typed map[traffic.KeyField]string

// ExtraValue is the value of a field that was typed.
func (t typed) ExtraValue(k traffic.KeyField) (string, bool) {
	value, ok := t[k]
	return value, ok
}

// parseAddress reads an address or a range; bits is -1 for an address alone.
func parseAddress(text string) (addr netip.Addr, bits int, err error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), p.Bits(), nil
	}
	addr, err = netip.ParseAddr(text)
	if err != nil {
		return addr, 0, usage.Errorf("SOURCE: got ip=%s; allowed: an address or a range, like 192.0.2.1 or 2001:db8::/64", text)
	}
	return addr.Unmap().WithZone(""), -1, nil
}
