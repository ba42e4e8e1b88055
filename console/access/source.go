package access

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// ResolveSource is the source that actor means by text, in the spellings that history reads: FIELD=VALUE, a canonical subject, a value of
// any field; and a pseudonym alone, which says by itself of which field it is. Who is shown pseudonyms names values by them only, and so
// cannot ask for a plain value of any field: he could try addresses until one is found.
func (m *Masker) ResolveSource(actor Actor, text string) (string, error) {
	if m == nil || text == "" {
		return text, nil
	}
	subject, name, value := traffic.CutSource(text)
	switch {
	case subject != "":
		s, err := m.ResolveSubject(actor, subject)
		return string(s), err
	case name != "":
		value, err := m.Resolve(actor, name, value)
		return traffic.SourceText(name, value), err
	}
	for _, field := range m.fields {
		if value, ok := m.cipher.open(field, text); ok {
			return traffic.SourceText(field, value), nil
		}
	}
	if m.MasksAny(actor) {
		return "", fmt.Errorf("the role %s names values by their field, as FIELD=VALUE, and those that it is not shown by their pseudonyms", actor.Role)
	}
	return text, nil
}

const (
	kindCursor  = 3 // in a sealed cursor: no kind of value, so that none can be taken for a pseudonym
	cursorField = "cursor"
	cursorPad   = 64 // so that the length of a cursor tells little of what it names
)

// Cursor is the place where a page ends as actor is given it. A place may name a source: who is shown any pseudonyms gets it sealed.
func (m *Masker) Cursor(actor Actor, place string) string {
	if place == "" || !m.MasksAny(actor) {
		return place
	}
	plain := append([]byte{kindCursor}, place...)
	plain = append(plain, 1) // where the place ends
	plain = append(plain, make([]byte, (cursorPad-len(plain)%cursorPad)%cursorPad)...)
	tag := m.cipher.tag(cursorField, plain)
	out := append(tag, plain...)
	m.cipher.crypt(tag, out[tagBytes:])
	return pseudonymMark + alphabet().EncodeToString(out)
}

// Place is what Cursor was given. Who is shown pseudonyms brings only places that he was given: by one of his own making he could find out
// what comes before it, and so what it names.
func (m *Masker) Place(actor Actor, cursor string) (string, error) {
	if cursor == "" || !m.MasksAny(actor) {
		return cursor, nil
	}
	plain, ok := m.cipher.unseal(cursorField, cursor)
	if !ok || plain[0] != kindCursor {
		return "", fmt.Errorf("got a cursor that this installation has not given to the role %s", actor.Role)
	}
	body := strings.TrimRight(string(plain[1:]), "\x00")
	return body[:max(0, len(body)-1)], nil
}
