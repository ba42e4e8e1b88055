package traffic

import (
	"iter"
	"slices"
	"strings"
)

// MaxKeyFields bounds the elements of a key, and the fields whose combinations are counted.
const MaxKeyFields = 8

// AttrPrefix begins the name of every value within attrs.
const AttrPrefix = "attrs."

// OfIdentity reports whether k is a field of an identity: what a block can hold.
func (k KeyField) OfIdentity() bool { return k.Field < NumFields }

// IdentityKey reports whether all fields of a key are of an identity.
func IdentityKey(key []KeyField) bool {
	return !slices.ContainsFunc(key, func(k KeyField) bool { return !k.OfIdentity() })
}

// String is the field as rules and subjects name it, without prefix lengths: ip, route, {id}, attrs.tenant, api_key|ip.
func (k KeyField) String() string {
	switch k.Field {
	case FieldParam:
		return "{" + k.Name + "}"
	case FieldAttr:
		return AttrPrefix + k.Name
	case FieldFallback:
		return k.Name
	}
	return k.Field.String()
}

// ParseKeyField reads a field as String writes it. It takes any name between braces and behind "attrs."; what a rule may name
// is the rule's business. An ip has no prefix lengths yet.
func ParseKeyField(text string) (KeyField, bool) {
	if strings.IndexByte(text, '|') < 0 {
		return parseOneField(text)
	}
	for rest, more := text, true; more; {
		var part string
		if part, rest, more = strings.Cut(rest, "|"); !parsesAsField(part) {
			return KeyField{}, false
		}
	}
	return KeyField{Field: FieldFallback, Name: text}, true
}

func parsesAsField(text string) bool {
	_, ok := parseOneField(text)
	return ok
}

func parseOneField(text string) (KeyField, bool) {
	if name, ok := strings.CutPrefix(text, AttrPrefix); ok {
		return KeyField{Field: FieldAttr, Name: name}, name != ""
	}
	if len(text) > 2 && text[0] == '{' && text[len(text)-1] == '}' {
		return KeyField{Field: FieldParam, Name: text[1 : len(text)-1]}, true
	}
	for f := range FieldParam {
		if fieldNames[f] == text {
			return KeyField{Field: f}, true
		}
	}
	return KeyField{}, false
}

// KeyFieldNames are the names of all fields that have one of their own, those of an identity first.
func KeyFieldNames() []string { return slices.Clone(fieldNames[:FieldParam]) }

// Alternatives are the fields of which k takes the first that an event has: those of a fallback in their order, an ip with
// k's prefix lengths; else k alone.
func (k KeyField) Alternatives() iter.Seq[KeyField] {
	return func(yield func(KeyField) bool) {
		if k.Field != FieldFallback {
			yield(k)
			return
		}
		for rest, more := k.Name, true; more; {
			var part string
			part, rest, more = strings.Cut(rest, "|")
			alternative, ok := parseOneField(part)
			if alternative.Field == FieldIP {
				alternative.V4, alternative.V6 = k.V4, k.V6
			}
			if ok && !yield(alternative) {
				return
			}
		}
	}
}

// Compare orders fields as subjects write them: those of an identity in the order of the constants, then all others by name.
func (k KeyField) Compare(o KeyField) int {
	if k.OfIdentity() || o.OfIdentity() {
		return int(min(k.Field, NumFields)) - int(min(o.Field, NumFields))
	}
	return strings.Compare(k.String(), o.String())
}

// Extra tells the values that one event has beside its identity.
type Extra interface {
	// ExtraValue is the event's value of a field that is none of an identity and no fallback; false where it is missing.
	ExtraValue(k KeyField) (string, bool)
}

// Choose finds the field whose value stands for k in an event: k itself or, of a fallback, the first alternative that the event
// has. ok is false where there is none. extra may be nil: the event has no such values.
func (id *Identity) Choose(extra Extra, k KeyField) (chosen KeyField, ok bool) {
	if k.Field != FieldFallback {
		return k, id.has(extra, k)
	}
	for one := range k.Alternatives() {
		if id.has(extra, one) {
			return one, true
		}
	}
	return k, false
}

func (id *Identity) has(extra Extra, k KeyField) bool {
	if k.Field == FieldIP {
		return id.IP.IsValid()
	}
	_, ok := id.ValueOf(extra, k)
	return ok
}

// ValueOf is Value for every field but fallbacks.
func (id *Identity) ValueOf(extra Extra, k KeyField) (string, bool) {
	switch {
	case k.OfIdentity():
		return id.Value(k)
	case extra == nil || k.Field == FieldFallback:
		return "", false
	}
	return extra.ExtraValue(k)
}

// AppendSubjectOf is AppendSubject for a key of any fields. A fallback stands under the name of the alternative that the event
// has, so that no value of one field is taken for that of another; where it has none of them, under its own.
func AppendSubjectOf(dst []byte, id *Identity, extra Extra, key []KeyField) (out []byte, missing int) {
	if IdentityKey(key) {
		return appendIdentitySubject(dst, id, key)
	}
	type part struct {
		field   KeyField
		present bool
	}
	var room [MaxKeyFields]part
	parts := room[:0]
	for _, k := range key {
		chosen, ok := id.Choose(extra, k)
		parts = append(parts, part{chosen, ok})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.field.Compare(b.field) })
	for i, p := range parts {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = appendPercent(dst, p.field.String())
		switch {
		case !p.present:
			missing++
		case p.field.OfIdentity():
			dst, _ = id.appendValue(dst, p.field)
		default:
			value, _ := extra.ExtraValue(p.field)
			dst = appendPercent(append(dst, '='), value)
		}
	}
	return dst, missing
}

// MakeSubjectOf is AppendSubjectOf as a Subject of its own.
func MakeSubjectOf(id *Identity, extra Extra, key []KeyField) (s Subject, missing int) {
	b, missing := AppendSubjectOf(nil, id, extra, key)
	return Subject(b), missing
}

// BoundedValue is a client's text as keys hold it: readable, and above 256 bytes its beginning and a digest, as in an Identity.
func BoundedValue(text string) string {
	text = readable(text)
	if len(text) > maxIdentityValue {
		text = digested(text)
	}
	return text
}
