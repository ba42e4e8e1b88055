package traffic

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// fieldNames are the names in rules, events and subjects; from FieldParam on, of kinds of fields.
var fieldNames = [...]string{"ip", "device", "user", "api_key", "session",
	"host", "method", "route", "plan", "user_agent", "path", "param", "attrs", "fallback"}

// String is the field's name in rules, events and subjects.
func (f Field) String() string {
	if int(f) < len(fieldNames) {
		return fieldNames[f]
	}
	return fmt.Sprintf("field(%d)", uint8(f))
}

// MarshalText writes the field's name.
func (f Field) MarshalText() ([]byte, error) {
	if int(f) >= len(fieldNames) {
		return nil, fmt.Errorf("no field has number %d", uint8(f))
	}
	return []byte(fieldNames[f]), nil
}

// UnmarshalText reads a field's name.
func (f *Field) UnmarshalText(b []byte) error {
	at := slices.Index(fieldNames[:], string(b))
	if at < 0 {
		return fmt.Errorf("%q is no field; allowed: %s", b, strings.Join(fieldNames[:], ", "))
	}
	*f = Field(at)
	return nil
}

// FieldNames are the names of the fields of an identity, in their order.
func FieldNames() []string { return slices.Clone(fieldNames[:NumFields]) }

// ParseField finds a field of an identity by its name.
func ParseField(name string) (Field, bool) {
	for i, n := range fieldNames[:NumFields] {
		if n == name {
			return Field(i), true
		}
	}
	return 0, false
}

// Subject is the canonical text of a key's values: `field=value` joined by `&` in the order of the Field constants,
// every byte outside RFC 3986's unreserved set percent-encoded, addresses with their prefix
// (`ip=192.0.2.1%2F32&device=tv-7`). Fields beside the identity stand behind those, in the order of their names, which are
// percent-encoded like values (`attrs.tenant=acme&%7Bid%7D=7`). A field that is missing is written without `=`. The encoding is
// injective: two different lists of values never have the same text, and the text is ASCII, so that every store takes it.
// The subject of the empty key is the empty string.
type Subject string

// Value returns id's value of the field k, an address cut to k's prefix, and false where it is missing.
func (id *Identity) Value(k KeyField) (string, bool) {
	switch k.Field {
	case FieldIP:
		return prefixText(id.IP, k)
	case FieldDevice:
		return id.Device, id.Device != ""
	case FieldUser:
		return id.User, id.User != ""
	case FieldAPIKey:
		return id.APIKey, id.APIKey != ""
	case FieldSession:
		return id.Session, id.Session != ""
	}
	return "", false
}

// AppendValue appends what Value gives, without a string in between; nothing where it is missing.
func (id *Identity) AppendValue(dst []byte, k KeyField) ([]byte, bool) {
	if k.Field == FieldIP {
		p, ok := cutAddress(id.IP, k)
		if !ok {
			return dst, false
		}
		return p.AppendTo(dst), true
	}
	value, ok := id.Value(k)
	return append(dst, value...), ok
}

func prefixText(a netip.Addr, k KeyField) (string, bool) {
	p, ok := cutAddress(a, k)
	if !ok {
		return "", false
	}
	return p.String(), true
}

func cutAddress(a netip.Addr, k KeyField) (netip.Prefix, bool) {
	if !a.IsValid() {
		return netip.Prefix{}, false
	}
	bits := int(k.V4)
	if a.Is6() {
		bits = int(k.V6)
	}
	p, err := a.Prefix(bits)
	return p, err == nil
}

// AppendSubject appends the subject of key's values in id to dst. The fields are written in canonical order whatever
// the order of key. missing counts the fields of key that id does not have, those beside an identity among them.
func AppendSubject(dst []byte, id *Identity, key []KeyField) (out []byte, missing int) {
	return AppendSubjectOf(dst, id, nil, key)
}

func appendIdentitySubject(dst []byte, id *Identity, key []KeyField) (out []byte, missing int) {
	first := true
	for f := Field(0); f < NumFields; f++ {
		for _, k := range key {
			if k.Field != f {
				continue
			}
			if !first {
				dst = append(dst, '&')
			}
			first = false
			dst = append(dst, fieldNames[f]...)
			var ok bool
			if dst, ok = id.appendValue(dst, k); !ok {
				missing++
			}
		}
	}
	return dst, missing
}

// appendValue appends `=value`, or nothing where the field is missing. It is Value without a string in between.
func (id *Identity) appendValue(dst []byte, k KeyField) ([]byte, bool) {
	if k.Field != FieldIP {
		value, ok := id.Value(k)
		if !ok {
			return dst, false
		}
		return appendPercent(append(dst, '='), value), true
	}
	p, ok := cutAddress(id.IP, k)
	if !ok {
		return dst, false
	}
	var text [64]byte
	return appendPercent(append(dst, '='), p.AppendTo(text[:0])), true
}

// MakeSubject is AppendSubject as a Subject of its own.
func MakeSubject(id *Identity, key []KeyField) (s Subject, missing int) {
	b, missing := AppendSubject(nil, id, key)
	return Subject(b), missing
}

const upperHex = "0123456789ABCDEF"

func appendPercent[T string | []byte](dst []byte, s T) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if unreserved(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// unreserved is RFC 3986, section 2.3.
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// SubjectValue is one decoded part of a Subject.
type SubjectValue struct {
	Field   string
	Value   string
	Missing bool
	Digest  bool // Value is the digest that stands for it in a stored subject: `sha256:` and hex digits
}

// Values decodes s. A text that neither MakeSubject nor Stored can have written is an error.
func (s Subject) Values() ([]SubjectValue, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(string(s), "&")
	out := make([]SubjectValue, 0, len(parts))
	for _, part := range parts {
		encoded, enc, has := strings.Cut(part, "=")
		if encoded == "" {
			return nil, fmt.Errorf("subject %q: a part without a field name", s)
		}
		name, err := unescapePercent(encoded)
		if err != nil {
			return nil, fmt.Errorf("subject %q: field name: %w", s, err)
		}
		if isDigest(enc) {
			out = append(out, SubjectValue{Field: name, Value: enc, Digest: true})
			continue
		}
		value, err := unescapePercent(enc)
		if err != nil {
			return nil, fmt.Errorf("subject %q: %w", s, err)
		}
		out = append(out, SubjectValue{Field: name, Value: value, Missing: !has})
	}
	return out, nil
}

func unescapePercent(s string) (string, error) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) {
				return "", fmt.Errorf("percent sign at byte %d without two hex digits", i)
			}
			hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
			if hi < 0 || lo < 0 || unreserved(byte(hi<<4|lo)) {
				return "", fmt.Errorf("percent sign at byte %d is not canonical", i)
			}
			out = append(out, byte(hi<<4|lo))
			i += 2
			continue
		}
		if !unreserved(c) {
			return "", fmt.Errorf("byte %d (%q) is not percent-encoded", i, c)
		}
		out = append(out, c)
	}
	return string(out), nil
}

// The form that a value above maxPlainValue bytes takes in a stored subject: digestMark and its SHA-256 in lower-case hex.
//
// No plain value reads like it: the mark's colon stands as it is, and in a plain value it would be percent-encoded. So a
// client that claims a device named `sha256:…` is never taken for the device with that digest.
const (
	maxPlainValue = 64
	digestMark    = "sha256:"
	digestBytes   = len(digestMark) + 2*sha256.Size
)

// Stored is s as stores keep it that pay for its length: each value above 64 bytes is replaced by its digest, written
// `device=sha256:<64 hex digits>`. Clients choose such values, and their length with them. What is stored already, and what
// is no subject, comes back as it is.
func (s Subject) Stored() Subject {
	if len(s) <= maxPlainValue {
		return s // nothing in it can be longer
	}
	var out []byte
	copied := 0 // how much of s is in out
	for at := 0; at < len(s); {
		end := len(s)
		if i := strings.IndexByte(string(s[at:]), '&'); i >= 0 {
			end = at + i
		}
		if i := strings.IndexByte(string(s[at:end]), '='); i >= 0 {
			from := at + i + 1
			if text := string(s[from:end]); len(text) > maxPlainValue && !isDigest(text) {
				value, err := unescapePercent(text)
				if err != nil {
					return s
				}
				if len(value) > maxPlainValue {
					out = AppendStoredValue(append(out, s[copied:from]...), value)
					copied = end
				}
			}
		}
		at = end + 1
	}
	if copied == 0 {
		return s
	}
	return Subject(append(out, s[copied:]...))
}

// AppendStoredValue appends value as a stored subject has it: percent-encoded, or its digest. It allocates nothing for
// values of an Identity where dst has room.
func AppendStoredValue(dst []byte, value string) []byte {
	if len(value) <= maxPlainValue {
		return appendPercent(dst, value)
	}
	var room [keptIdentityValue + len(identityDigest) + 2*sha256.Size]byte
	sum := sha256.Sum256(append(room[:0], value...))
	dst = append(dst, digestMark...)
	for _, c := range sum {
		dst = append(dst, lowerHex[c>>4], lowerHex[c&15])
	}
	return dst
}

// StoredAsDigest reports whether value stands as its digest in a stored subject.
func StoredAsDigest(value string) bool { return len(value) > maxPlainValue }

// isDigest reports whether the text of a value is a digest.
func isDigest(text string) bool {
	if len(text) != digestBytes || text[:len(digestMark)] != digestMark {
		return false
	}
	for i := len(digestMark); i < len(text); i++ {
		if c := text[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// WithDigests takes each value of s that reads as a digest (`sha256:` and 64 hex digits) for one. It is for what a person
// copies from a listing, never for what a client sends: a client may send such a text as its value.
func (s Subject) WithDigests() Subject {
	const encoded = "=sha256%3A"
	parts := strings.Split(string(s), "&")
	for i, part := range parts {
		at := strings.Index(part, encoded)
		if at < 0 {
			continue
		}
		if text := digestMark + part[at+len(encoded):]; isDigest(text) {
			parts[i] = part[:at+1] + text
		}
	}
	return Subject(strings.Join(parts, "&"))
}
