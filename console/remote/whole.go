package remote

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// whole refuses JSON that is no answer of the type that is asked for: {} or null, which would be read as an answer
// without anything in it, and values without any member of theirs. What a server of another build leaves out, or has
// beside, is none of that.
func whole(text []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return wholeAt("", text, t)
}

func wholeAt(at string, text []byte, t reflect.Type) error {
	null := bytes.Equal(bytes.TrimSpace(text), []byte("null"))
	if pointer := reflect.PointerTo(t); pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil // it reads itself
	}
	switch t.Kind() {
	case reflect.Pointer:
		if null {
			return nil
		}
		return wholeAt(at, text, t.Elem())
	case reflect.Slice:
		return wholeItems(at, text, t.Elem())
	case reflect.Struct:
		return wholeObject(at, text, t)
	}
	return nil
}

func wholeItems(at string, text []byte, of reflect.Type) error {
	var items []json.RawMessage
	if of.Kind() == reflect.Uint8 || json.Unmarshal(text, &items) != nil { // the latter was told before
		return nil
	}
	for i, item := range items {
		if err := wholeAt(fmt.Sprintf("%s[%d]", at, i), item, of); err != nil {
			return err
		}
	}
	return nil
}

func wholeObject(at string, text []byte, t reflect.Type) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return errors.New(place(at) + "is no object")
	}
	types := map[string]reflect.Type{}
	memberTypes(t, types)
	found := len(types) == 0
	for _, name := range slices.Sorted(maps.Keys(types)) {
		member, there := members[name]
		if !there {
			continue
		}
		found = true
		if err := wholeAt(strings.TrimPrefix(at+"."+name, "."), member, types[name]); err != nil {
			return err
		}
	}
	if !found {
		return errors.New(place(at) + "has none of the members that it should")
	}
	return nil
}

func place(at string) string {
	if at == "" {
		return "it "
	}
	return at + " "
}

// memberTypes are the types of the members of a struct, those of embedded structs among them.
func memberTypes(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if f.Anonymous && name == "" {
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if of.Kind() == reflect.Struct {
				memberTypes(of, into)
				continue
			}
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, outer := into[name]; !outer {
			into[name] = f.Type
		}
	}
}
