package traffic

import "strings"

// CutSource takes apart how people name a source. A canonical subject of several fields, or of an address with its
// prefix, gives subject alone; FIELD=VALUE gives field and value; any other text is a value of any field, and gives
// value alone. Where the value behind a field is percent-encoded as in a subject, it is decoded: SourceText writes so
// what would be read otherwise. Whether the field is known is for the caller to say.
func CutSource(text string) (subject Subject, field, value string) {
	field, value, named := strings.Cut(text, "=")
	if !named {
		return "", "", text
	}
	if !strings.ContainsAny(text, "%&") {
		return "", field, value
	}
	values, err := Subject(text).Values()
	if err != nil || !inOrder(values) {
		return "", field, value
	}
	if v := values[0]; len(values) == 1 && v.Field != FieldIP.String() {
		return "", v.Field, v.Value
	}
	return Subject(text), "", ""
}

// SourceText writes a value of a field as FIELD=VALUE, so that CutSource gives both again, whatever the value is.
func SourceText(field, value string) string {
	text := field + "=" + value
	if s, f, v := CutSource(text); s == "" && f == field && v == value {
		return text
	}
	return string(SubjectOf([]SubjectValue{{Field: field, Value: value}}))
}

// inOrder reports whether values are of fields that a subject may have, each once and in a subject's order.
func inOrder(values []SubjectValue) bool {
	for i, v := range values {
		own, known := ParseKeyField(v.Field)
		if !known {
			return false
		}
		if i == 0 {
			continue
		}
		before, _ := ParseKeyField(values[i-1].Field)
		switch {
		case own.OfIdentity() && (!before.OfIdentity() || before.Field >= own.Field):
			return false
		case !own.OfIdentity() && !before.OfIdentity() && values[i-1].Field >= v.Field:
			return false
		}
	}
	return true
}
