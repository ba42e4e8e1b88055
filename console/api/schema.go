package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// schema is a JSON Schema (2020-12), as OpenAPI 3.1 has them.
type schema map[string]any

// schemas makes schemas of Go types as encoding/json writes them, each named struct once.
type schemas struct {
	components map[string]schema
	names      map[reflect.Type]string
}

// written are the schemas of types that write themselves.
func written(t reflect.Type) (schema, bool) {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[traffic.Time](), reflect.TypeFor[acts.End]():
		return schema{"type": "string", "format": "date-time"}, true
	case reflect.TypeFor[traffic.Subject]():
		return schema{"type": "string", "description": "a canonical subject, as docs/blocks.md defines it"}, true
	case reflect.TypeFor[time.Duration]():
		return schema{"type": "integer", "description": "nanoseconds"}, true
	case reflect.TypeFor[rules.Mode]():
		return schema{"type": "string"}, true
	case reflect.TypeFor[access.Role]():
		return schema{"type": "string", "enum": access.RoleNames()}, true
	case reflect.TypeFor[history.Figure]():
		return schema{"type": []string{"integer", "null"}, "description": "null: not known"}, true
	case reflect.TypeFor[json.RawMessage]():
		return schema{}, true
	case reflect.TypeFor[rulestore.StoredVersion]():
		return schema{"type": "object", "description": "a version of a rule: document (docs/rules.md), source, hash, created, author, reason, ended",
			"required": []string{"document", "hash", "created", "author"}}, true
	}
	pointer := reflect.PointerTo(t)
	if pointer.Implements(reflect.TypeFor[json.Marshaler]()) {
		return schema{}, true
	}
	if pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return schema{"type": "string"}, true
	}
	return nil, false
}

// of is the schema of a type; of a named struct a reference to it.
func (s *schemas) of(t reflect.Type) schema {
	if found, ok := written(t); ok {
		return found
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(s.of(t.Elem()))
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			return schema{"type": []string{"string", "null"}, "contentEncoding": "base64"}
		}
		return schema{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Map:
		return schema{"type": []string{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return schema{"$ref": "#/components/schemas/" + s.component(t)}
	case reflect.Interface:
		return schema{}
	}
	return schema{"type": "integer"}
}

// nullable is a schema, or null.
func nullable(of schema) schema {
	if kind, ok := of["type"].(string); ok && len(of) == 1 {
		return schema{"type": []string{kind, "null"}}
	}
	if len(of) == 0 {
		return of
	}
	return schema{"oneOf": []schema{of, {"type": "null"}}}
}

// component makes the schema of a struct known, and gives its name.
func (s *schemas) component(t reflect.Type) string {
	if name, ok := s.names[t]; ok {
		return name
	}
	name := componentName(t)
	for n := name; ; n += "_" {
		if _, taken := s.components[n]; !taken {
			name = n
			break
		}
	}
	s.names[t] = name
	s.components[name] = schema{} // types may contain themselves
	properties, required := schema{}, []string{}
	s.members(t, properties, &required)
	object := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		object["required"] = required
	}
	s.components[name] = object
	return name
}

// componentName is the type's own name; of a generic one with the names of its arguments: PageRule.
func componentName(t reflect.Type) string {
	base, arguments, generic := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "[")
	if !generic {
		return base
	}
	for argument := range strings.SplitSeq(arguments, ",") {
		base += argument[strings.LastIndexByte(argument, '.')+1:]
	}
	return base
}

// members adds the members of a struct as encoding/json writes them: those of embedded structs among its own, which go before them.
func (s *schemas) members(t reflect.Type, properties schema, required *[]string) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		of := f.Type
		if f.Anonymous && name == "" {
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if _, self := written(of); of.Kind() == reflect.Struct && !self {
				embedded = append(embedded, of)
				continue
			}
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, own := properties[name]; own {
			continue // an outer one has taken the name
		}
		properties[name] = s.of(f.Type)
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
	for _, e := range embedded {
		optional := []string{}
		if isPointer(t, e) { // it may be nil, and write nothing
			s.members(e, properties, &optional)
			continue
		}
		s.members(e, properties, required)
	}
}

func isPointer(t, embedded reflect.Type) bool {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Pointer && f.Type.Elem() == embedded {
			return true
		}
	}
	return false
}
