package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// listSetter is a leaf that is written as a text or as a list.
type listSetter interface{ SetList(parts []string) error }

var _ listSetter = (*traffic.TrustedProxies)(nil)

// yamlReader fills a configuration from one YAML document. It goes on after an error, so that one run shows them all.
type yamlReader struct {
	file    string
	origins Origins
	errs    []error
}

// readYAML sets in c what the first document of text sets. Each error names file, line, column, field, what it got and what is allowed.
func readYAML(c *Config, file string, text []byte) error {
	r := &yamlReader{file: file, origins: c.Origins}
	for doc, err := range yamlnode.Documents(text) {
		if err != nil {
			return notYAML(file, err)
		}
		r.section(reflect.ValueOf(c).Elem(), doc, "")
		break
	}
	return errors.Join(r.errs...)
}

func notYAML(file string, err error) error {
	var wrong *yamlnode.SyntaxError
	if !errors.As(err, &wrong) || wrong.Line == 0 {
		return fmt.Errorf("%s: not YAML: %w", file, err)
	}
	reason := wrong.Reason
	if wrong.Hint != "" {
		reason += "; " + wrong.Hint
	}
	return fmt.Errorf("%s: not YAML: %s", Origin{File: file, Place: wrong.Place}, reason)
}

func (r *yamlReader) fail(n yamlnode.Node, path, format string, args ...any) {
	where := Origin{File: r.file, Place: n.Place()}.String() + ": "
	if path != "" {
		where += path + ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s%s", where, fmt.Sprintf(format, args...)))
}

// section reads a mapping into the struct v.
func (r *yamlReader) section(v reflect.Value, n yamlnode.Node, path string) {
	n = n.Resolved()
	if n.Kind() == yamlnode.Null {
		return // `kafka:` with nothing below it sets nothing
	}
	if n.Kind() != yamlnode.Mapping {
		r.fail(n, path, "got %s; allowed: a mapping with %s", describe(n), strings.Join(sectionNames(v), ", "))
		return
	}
	for _, m := range n.Members() {
		name := m.Name.Value()
		sub := joinPath(path, name)
		f, ok := sectionField(v, name)
		switch {
		case !ok:
			hint := ""
			if meant := rules.Nearest(name, sectionNames(v)); meant != "" {
				hint = "; did you mean " + meant + "?"
			}
			r.fail(m.Name, sub, "unknown field; allowed: %s%s", strings.Join(sectionNames(v), ", "), hint)
		case m.First > 0:
			r.fail(m.Name, sub, "given twice; first in line %d", m.First)
		case isSection(f):
			r.section(f, m.Value, sub)
		default:
			r.leaf(f, m.Value.Resolved(), sub)
		}
	}
}

func (r *yamlReader) leaf(v reflect.Value, n yamlnode.Node, path string) {
	r.origins[path] = Origin{File: r.file, Place: n.Place()}
	if n.Kind() == yamlnode.Null {
		v.SetZero() // `never_block:` means: none
		return
	}
	if n.Kind() == yamlnode.List && v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && len(sectionNames(reflect.Zero(v.Type().Elem()))) > 0 {
		r.sections(v, n, path)
		return
	}
	var err error
	list, takesList := v.Addr().Interface().(listSetter)
	switch {
	case takesList && n.Kind() == yamlnode.List:
		err = partsFromNode(n, list.SetList)
	case v.Kind() == reflect.Slice:
		err = listFromNode(v, n)
	case v.Kind() == reflect.Map:
		err = mapFromNode(v, n)
	default:
		err = scalarFromNode(v, n)
	}
	if bad := (*condition.Error)(nil); errors.As(err, &bad) {
		r.failExpression(n, path, bad)
	} else if err != nil {
		r.fail(n, path, "%s", err)
	}
}

// sections reads a list of mappings into the slice of structs v. An element that is a text is read as variables and flags have it.
func (r *yamlReader) sections(v reflect.Value, n yamlnode.Node, path string) {
	children := n.Children()
	list := reflect.MakeSlice(v.Type(), len(children), len(children))
	for i, child := range children {
		at := fmt.Sprintf("%s[%d]", path, i+1)
		child = child.Resolved()
		if !isText(child) {
			r.section(list.Index(i), child, at)
			continue
		}
		if err := setText(list.Index(i), child.Value()); err != nil {
			r.fail(child, at, "%s", err)
		}
	}
	v.Set(list)
}

func scalarFromNode(v reflect.Value, n yamlnode.Node) error {
	if !n.IsScalar() {
		return fmt.Errorf("got %s; allowed: %s", describe(n), wanted(v))
	}
	if v.Kind() == reflect.String && n.Kind() == yamlnode.Boolean {
		return fmt.Errorf("got %s; allowed: a text (put it in quotes)", describe(n))
	}
	return setText(v, n.Value())
}

func listFromNode(v reflect.Value, n yamlnode.Node) error {
	if n.Kind() != yamlnode.List {
		return fmt.Errorf("got %s; allowed: a list", describe(n))
	}
	return partsFromNode(n, func(parts []string) error { return setList(v, parts) })
}

// partsFromNode hands the elements of a list to set.
func partsFromNode(n yamlnode.Node, set func([]string) error) error {
	var parts []string
	for i, item := range n.Children() {
		item = item.Resolved()
		if !isText(item) {
			return fmt.Errorf("element %d: got %s; allowed: a text", i+1, describe(item))
		}
		parts = append(parts, item.Value())
	}
	return set(parts)
}

func mapFromNode(v reflect.Value, n yamlnode.Node) error {
	if n.Kind() != yamlnode.Mapping {
		return fmt.Errorf("got %s; allowed: a mapping of names to names", describe(n))
	}
	m := map[string]string{}
	for _, member := range n.Members() {
		value := member.Value.Resolved()
		if !isText(value) {
			return fmt.Errorf("member %s: got %s; allowed: a text", member.Name.Value(), describe(value))
		}
		m[member.Name.Value()] = value.Value()
	}
	v.Set(reflect.ValueOf(m))
	return nil
}

// isText reports whether n is one value with a text of some kind, rather than none, a list or a mapping.
func isText(n yamlnode.Node) bool { return n.IsScalar() && n.Kind() != yamlnode.Null }

// describe names what stands in the document, without the value of a text: it might be a secret in the wrong place.
func describe(n yamlnode.Node) string {
	switch n.Kind() {
	case yamlnode.Integer, yamlnode.Float, yamlnode.Boolean, yamlnode.Timestamp, yamlnode.Tagged:
		return n.Value()
	}
	return n.Describe(func(string) string { return "a text" })
}

func wanted(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true, false"
	case reflect.Int, reflect.Uint8:
		return "a whole number"
	}
	return "a text"
}

func sectionField(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if n := yamlName(v.Type().Field(i)); n != "" && n == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func sectionNames(v reflect.Value) []string {
	names := make([]string, 0, v.NumField())
	for i := range v.NumField() {
		if name := yamlName(v.Type().Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
