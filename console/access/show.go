package access

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// Show is an answer as mask shows it: a copy, since stores and pages share what they have read. Subjects are masked
// wherever they are; a string says by a tag of its field what it is:
//
//	mask:"-"            it names nobody: an id, a number, a word of weir's
//	mask:"name"         a name of what is configured, or of who works here: it stays, in texts, too
//	mask:"text"         what people wrote; mask:"text,By": who wrote it stands in the member By
//	mask:"line"         what weir wrote, an error say; mask:"detail": with the hash of a dossier in it
//	mask:"object"       what weir wrote about sources that it has found
//	mask:"value,Field"  a value of the field that the member Field names
//	mask:"sample"       the JSON of a traffic.Sample
//	mask:"hash"         a hash of what names sources
//	mask:"cursor"       a place in a list
//	mask:"lines,what"   lines that name sources: how many there are is told, and what they are about
//
// A string without a tag is taken for a text, and bytes without one are left out: what a new answer forgets to say
// hides too much. A test has every answer of the API say it.
func Show[T any](mask *Mask, answer T) T {
	if !mask.Any() {
		return answer
	}
	of := reflect.ValueOf(&answer).Elem()
	learner{mask}.learn(of, tag{})
	shower{mask}.show(of, tag{})
	return answer
}

// Know has the mask remember the values of the subjects that an answer has, before texts of it are shown.
func (m *Mask) Know(answers ...any) {
	if !m.Any() {
		return
	}
	for _, answer := range answers {
		if answer != nil {
			learner{m}.learn(reflect.ValueOf(answer), tag{})
		}
	}
}

// tag is what a field says of its strings.
type tag struct {
	kind string
	of   string // of text: who wrote it; of value: the field; of lines: what they are about
}

// Kinds of strings.
const (
	tagNone   = "-"
	tagName   = "name"
	tagText   = "text"
	tagLine   = "line"
	tagDetail = "detail"
	tagObject = "object"
	tagValue  = "value"
	tagSample = "sample"
	tagHash   = "hash"
	tagCursor = "cursor"
	tagLines  = "lines"
)

// tagOf reads the tag of a field of a struct.
func tagOf(in reflect.Value, field *reflect.StructField) tag {
	kind, of, _ := strings.Cut(field.Tag.Get("mask"), ",")
	if of == "" || kind == tagLines {
		return tag{kind, of}
	}
	beside := in.FieldByName(of)
	if !beside.IsValid() {
		return tag{kind: tagText} // a tag that names nobody: a test finds it
	}
	if keyed, ok := beside.Interface().(interface{ Field() (traffic.Field, bool) }); ok {
		field, _ := keyed.Field()
		return tag{kind, field.String()}
	}
	return tag{kind, beside.String()}
}

// learner goes through an answer for what it names, shower through a copy to mask it.
type (
	learner struct{ *Mask }
	shower  struct{ *Mask }
)

// learn remembers what an answer names.
func (m learner) learn(v reflect.Value, is tag) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			m.learn(v.Elem(), is)
		}
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() || f.Anonymous {
				m.learn(v.Field(i), tagOf(v, &f))
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			m.learn(v.Index(i), is)
		}
	case reflect.Map:
		for at := v.MapRange(); at.Next(); {
			m.learn(at.Key(), is)
			m.learn(at.Value(), is)
		}
	case reflect.String:
		m.learnText(v, is)
	}
}

func (m learner) learnText(v reflect.Value, is tag) {
	text := v.String()
	switch {
	case text == "":
	case v.Type() == reflect.TypeFor[traffic.Subject]():
		m.meetSubject(traffic.Subject(text))
	case is.kind == tagValue:
		m.meet(is.of, text)
	case is.kind == tagSample:
		m.meetSample(text)
	case is.kind == tagName:
		m.known.name(text)
	case is.kind == tagObject:
		m.Object(text)
	}
}

// show masks what v holds, in place: v is a copy, and what it points to is copied.
func (m shower) show(v reflect.Value, is tag) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			m.show(c.Elem(), is)
			v.Set(c)
		}
	case reflect.Interface:
		if !v.IsNil() {
			c := reflect.New(v.Elem().Type()).Elem()
			c.Set(v.Elem())
			m.show(c, is)
			v.Set(c)
		}
	case reflect.Struct:
		m.showStruct(v)
	case reflect.Slice:
		m.showSlice(v, is)
	case reflect.Array:
		for i := range v.Len() {
			m.show(v.Index(i), is)
		}
	case reflect.Map:
		m.showMap(v, is)
	case reflect.String:
		m.showText(v, is)
	}
}

func (m shower) showStruct(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix](): // which no pseudonym fits into
		if m.Masks(traffic.FieldIP.String()) {
			v.SetZero()
		}
		return
	}
	t := v.Type()
	was := reflect.New(t).Elem() // tags name members as they are
	was.Set(v)
	for i := range t.NumField() {
		if f := t.Field(i); v.Field(i).CanSet() || f.Anonymous && f.Type.Kind() == reflect.Struct {
			m.show(v.Field(i), tagOf(was, &f))
		}
	}
}

func (m shower) showSlice(v reflect.Value, is tag) {
	switch {
	case v.IsNil():
		return
	case v.Type().Elem().Kind() == reflect.Uint8:
		if is.kind != tagNone {
			v.SetZero() // of any shape
		}
		return
	case is.kind == tagLines:
		if n := v.Len(); n > 0 {
			text := fmt.Sprintf("%d lines about %s, not shown to %s", n, is.of, m.actor)
			if n == 1 {
				text = fmt.Sprintf("1 line about %s, not shown to %s", is.of, m.actor)
			}
			c := reflect.MakeSlice(v.Type(), 1, 1)
			c.Index(0).SetString(text)
			v.Set(c)
		}
		return
	}
	c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(c, v)
	for i := range c.Len() {
		m.show(c.Index(i), is)
	}
	v.Set(c)
}

func (m shower) showMap(v reflect.Value, is tag) {
	if v.IsNil() {
		return
	}
	t := v.Type()
	c := reflect.MakeMapWithSize(t, v.Len())
	for at := v.MapRange(); at.Next(); {
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		key.Set(at.Key())
		value.Set(at.Value())
		m.show(key, is)
		m.show(value, is)
		c.SetMapIndex(key, value)
	}
	v.Set(c)
}

// showText masks one string. Those of other types than string and traffic.Subject are words of weir's, of which there
// are few.
func (m shower) showText(v reflect.Value, is tag) {
	text := v.String()
	if v.Type() == reflect.TypeFor[traffic.Subject]() {
		v.SetString(string(m.Subject(traffic.Subject(text))))
		return
	}
	if v.Type() != reflect.TypeFor[string]() {
		return
	}
	switch is.kind {
	case tagNone, tagName:
		return
	case tagLine:
		text = m.Line(text)
	case tagDetail:
		text = m.Detail(text)
	case tagObject:
		text = m.Object(text)
	case tagValue:
		text = m.Value(is.of, text)
	case tagSample:
		text = m.Sample(text)
	case tagHash:
		text = m.Hash(text)
	case tagCursor:
		text = m.Cursor(text)
	default:
		text = m.TextBy(text, is.of)
	}
	v.SetString(text)
}
