package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// Mask is what one request shows to its actor. All that is answered to somebody who is shown pseudonyms goes through
// one: Show takes whole answers, the other methods what pages make of them. It remembers which values the request has
// met in subjects, or resolved from pseudonyms: a text has pseudonyms for these alone. What else looks like a value
// in it is hidden, since whoever has written it would learn the pseudonym of what he likes.
//
// All methods may be called on nil, which masks nothing, and by several goroutines.
type Mask struct {
	masker *Masker
	actor  Actor
	on     bool

	known known
}

// For is the Mask of a request of actor. It may be called on nil.
func (m *Masker) For(actor Actor) *Mask {
	return &Mask{masker: m, actor: actor, on: m.MasksAny(actor)}
}

type maskKey struct{}

// WithMask returns a context whose request is shown what mask shows.
func WithMask(ctx context.Context, mask *Mask) context.Context {
	return context.WithValue(ctx, maskKey{}, mask)
}

// MaskOf is the Mask of a request; nil where WithMask has given it none.
func MaskOf(ctx context.Context) *Mask {
	mask, _ := ctx.Value(maskKey{}).(*Mask)
	return mask
}

// Any reports whether anything is masked.
func (m *Mask) Any() bool { return m != nil && m.on }

// Masks reports whether values of field are masked.
func (m *Mask) Masks(field string) bool { return m.Any() && m.masker.Masks(m.actor, field) }

// Value is a value that weir has found, as it is shown.
func (m *Mask) Value(field, value string) string {
	if !m.Any() {
		return value
	}
	m.meet(field, value)
	return m.masker.Value(m.actor, field, value)
}

// Subject is a subject that weir has found, as it is shown.
func (m *Mask) Subject(s traffic.Subject) traffic.Subject {
	if !m.Any() || s == "" {
		return s
	}
	m.meetSubject(s)
	return m.masker.Subject(m.actor, s)
}

// Order is by what a list of subjects is sorted: by what is shown. Unlike Subject it remembers nothing.
func (m *Mask) Order(s traffic.Subject) string {
	if !m.Any() || s == "" {
		return string(s)
	}
	return string(m.masker.Subject(m.actor, s))
}

// Sample is the JSON of a traffic.Sample as it is shown.
func (m *Mask) Sample(sample string) string {
	if !m.Any() {
		return sample
	}
	m.meetSample(sample)
	return m.masker.Sample(m.actor, sample)
}

// Hash is the SHA-256 of something that names sources, in hex digits, as it is shown: under the key of pseudonyms,
// since by the plain one values could be tried until one is found. The same hash is always shown alike.
func (m *Mask) Hash(plain string) string {
	if !m.Any() || plain == "" {
		return plain
	}
	h := hmac.New(sha256.New, derived(m.masker.cipher.hashKey, "weir pseudonym: hashes"))
	h.Write([]byte(plain))
	return hex.EncodeToString(h.Sum(nil))
}

// Cursor is the place where a page ends, as the actor is given it.
func (m *Mask) Cursor(place string) string {
	if !m.Any() {
		return place
	}
	return m.masker.Cursor(m.actor, place)
}

// Place is what Cursor was given.
func (m *Mask) Place(cursor string) (string, error) {
	if !m.Any() {
		return cursor, nil
	}
	return m.masker.Place(m.actor, cursor)
}

// Resolve is the value that the actor means by text in a filter of field, see Masker.Resolve.
func (m *Mask) Resolve(field, text string) (string, error) {
	if m == nil {
		return text, nil
	}
	value, err := m.masker.Resolve(m.actor, field, text)
	if err == nil {
		m.meet(field, value)
	}
	return value, err
}

// ResolveSubject is Resolve for each value of a subject.
func (m *Mask) ResolveSubject(s traffic.Subject) (traffic.Subject, error) {
	if m == nil {
		return s, nil
	}
	resolved, err := m.masker.ResolveSubject(m.actor, s)
	if err == nil {
		m.meetSubject(resolved)
	}
	return resolved, err
}

// ResolveSource is the source that the actor means by text, see Masker.ResolveSource.
func (m *Mask) ResolveSource(text string) (string, error) {
	if m == nil {
		return text, nil
	}
	plain, err := m.masker.ResolveSource(m.actor, text)
	if err == nil && text != "" {
		if subject, field, value := traffic.CutSource(plain); subject != "" {
			m.meetSubject(subject)
		} else if field != "" {
			m.meet(field, value)
		}
	}
	return plain, err
}

// ResolveObject is the object of an entry of the audit trail that the actor means: `block RULE SUBJECT` has a subject
// in it, which somebody who is shown pseudonyms names by them.
func (m *Mask) ResolveObject(text string) (string, error) {
	if !m.Any() {
		return text, nil
	}
	words := strings.Split(text, " ")
	for i, word := range words {
		if !strings.Contains(word, "=") {
			if m.masker.word(m.actor, word, func(string, string) string { return hidden }) != word {
				return "", fmt.Errorf("allowed: a subject with pseudonyms (ip=~…), "+
					"since the role %s is not shown addresses",
					m.actor.Role)
			}
			continue
		}
		s, err := m.ResolveSubject(traffic.Subject(word))
		if err != nil {
			return "", err
		}
		words[i] = string(s)
	}
	return strings.Join(words, " "), nil
}
