package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// Masking is what is shown to whom as pseudonyms.
type Masking struct {
	// Key is the deployment's secret, at least MaskKeyBytes long: who has it can turn each pseudonym back. All consoles of an
	// installation have the same.
	Key []byte
	// Below is the role from which on values are shown as they are. Viewer masks nothing for anybody.
	Below Role
	// Fields are the names of the fields that are masked: of MaskableFields.
	Fields []string
}

// MaskKeyBytes is the least length of Masking.Key.
const MaskKeyBytes = 32

// MaskableFields are the names of the fields that can be masked, DefaultMaskedFields those of an identity.
func MaskableFields() []string {
	return append(DefaultMaskedFields(), "user_agent", "path", "attrs")
}

// DefaultMaskedFields are the fields of an identity.
func DefaultMaskedFields() []string { return traffic.FieldNames() }

// Masker shows values as pseudonyms, and knows what a pseudonym stands for. All its methods may be called on nil, which masks
// nothing, and by any number of goroutines.
//
// A pseudonym is `~` and small letters and digits. It depends on the key, the field and the value and on nothing else: the same
// source has the same one on every page, in every export and after a restart, so that one can group, filter and pivot by it. An
// address and the /32 or /128 of it are one value, as are a value above 64 bytes and the digest that stands for it in stored subjects.
type Masker struct {
	cipher *cipherPair
	below  Role
	fields []string
}

// NewMasker makes a Masker; nil where m masks nothing.
func NewMasker(m Masking) (*Masker, error) {
	for _, field := range m.Fields {
		if !slices.Contains(MaskableFields(), field) {
			return nil, fmt.Errorf("masked fields: got %q; allowed: %s", field, strings.Join(MaskableFields(), ", "))
		}
	}
	if m.Below <= Viewer || len(m.Fields) == 0 {
		return nil, nil
	}
	if len(m.Key) < MaskKeyBytes {
		return nil, fmt.Errorf("key of pseudonyms: got %d bytes; allowed: %d or more", len(m.Key), MaskKeyBytes)
	}
	pair, err := newCipherPair(m.Key)
	if err != nil {
		return nil, err
	}
	return &Masker{cipher: pair, below: m.Below, fields: slices.Clone(m.Fields)}, nil
}

// Masks reports whether actor is shown pseudonyms for field, a name as subjects have it: attrs.tenant is of the field attrs.
func (m *Masker) Masks(actor Actor, field string) bool {
	if m == nil || actor.Role >= m.below {
		return false
	}
	family, _, _ := strings.Cut(field, ".")
	return slices.Contains(m.fields, family)
}

// MasksAny reports whether anything is masked for actor.
func (m *Masker) MasksAny(actor Actor) bool { return m != nil && actor.Role < m.below }

// Value is value as actor is shown it. An empty one stays empty.
func (m *Masker) Value(actor Actor, field, value string) string {
	if value == "" || !m.Masks(actor, field) {
		return value
	}
	return m.cipher.seal(field, value)
}

// Subject is s as actor is shown it: still a subject, with pseudonyms for values. What is no subject is hidden whole from an
// actor who is shown any pseudonyms.
func (m *Masker) Subject(actor Actor, s traffic.Subject) traffic.Subject {
	if !m.MasksAny(actor) {
		return s
	}
	values, err := s.Values()
	if err != nil {
		return traffic.Subject(hidden)
	}
	for i, v := range values {
		if !v.Missing && m.Masks(actor, v.Field) {
			values[i] = traffic.SubjectValue{Field: v.Field, Value: m.Value(actor, v.Field, v.Value)}
		}
	}
	return traffic.SubjectOf(values)
}

// hidden stands for what nobody could make a pseudonym of.
const hidden = "~"

// Sample is the JSON of a traffic.Sample as actor is shown it. Of an API key samples have only the end, which is left out. A text
// that is no sample is hidden whole.
func (m *Masker) Sample(actor Actor, sample string) string {
	if !m.MasksAny(actor) {
		return sample
	}
	var s traffic.Sample
	if err := json.Unmarshal([]byte(sample), &s); err != nil {
		return `{}`
	}
	for _, member := range []struct {
		field string
		value *string
	}{
		{"ip", &s.IP}, {"device", &s.Device}, {"user", &s.User}, {"session", &s.Session},
		{"user_agent", &s.UserAgent}, {"path", &s.Path}, {"attrs", &s.Attrs},
	} {
		*member.value = m.Value(actor, member.field, *member.value)
	}
	if m.Masks(actor, "api_key") {
		s.APIKey = ""
	}
	if m.Masks(actor, "path") {
		s.Route = m.Value(actor, "path", s.Route)
	}
	out, err := json.Marshal(s)
	if err != nil {
		return `{}`
	}
	return string(out)
}

// Resolve is the value that actor means by text in a filter of field: what a pseudonym stands for, for whoever may use it, else text
// itself. An actor who is shown pseudonyms can name values by them only: else he could try addresses until one is found.
func (m *Masker) Resolve(actor Actor, field, text string) (string, error) {
	if m == nil || text == "" {
		return text, nil
	}
	if value, ok := m.cipher.open(field, text); ok {
		return value, nil
	}
	if m.Masks(actor, field) {
		return "", fmt.Errorf("%s: got a value that is no pseudonym of this installation; allowed: a pseudonym (~…), since the role %s is not shown values of %s",
			field, actor.Role, field)
	}
	return text, nil
}

// ResolveSubject is Resolve for each value of a subject. Digests of long values stay digests.
func (m *Masker) ResolveSubject(actor Actor, s traffic.Subject) (traffic.Subject, error) {
	if m == nil {
		return s, nil
	}
	values, err := s.Values()
	if err != nil {
		return "", err
	}
	for i, v := range values {
		if v.Missing || v.Digest && !m.Masks(actor, v.Field) {
			continue
		}
		value, err := m.Resolve(actor, v.Field, v.Value)
		if err != nil {
			return "", err
		}
		if v.Field == "ip" && value != v.Value {
			value = withPrefix(value)
		}
		values[i] = traffic.SubjectValue{Field: v.Field, Value: value}
	}
	return traffic.SubjectOf(values).WithDigests(), nil
}

// Original is what a pseudonym of field stands for: for the act Reveal, after it has been permitted and audited. false for a text
// that is none.
func (m *Masker) Original(field, pseudonym string) (string, bool) {
	if m == nil {
		return "", false
	}
	return m.cipher.open(field, pseudonym)
}
