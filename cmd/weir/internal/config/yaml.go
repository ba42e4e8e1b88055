package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

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

// readYAML sets in c what the document sets. Each error names file, line, field, what it got and what is allowed.
func readYAML(c *Config, file string, text []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return yamlSyntaxError(file, err)
	}
	if doc.Kind == 0 {
		return nil // an empty file sets nothing
	}
	r := &yamlReader{file: file, origins: c.Origins}
	r.section(reflect.ValueOf(c).Elem(), doc.Content[0], "")
	return errors.Join(r.errs...)
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

func yamlSyntaxError(file string, err error) error {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s:%s: not YAML: %s", file, m[1], m[2])
	}
	return fmt.Errorf("%s: not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
}

func (r *yamlReader) fail(n *yaml.Node, path, format string, args ...any) {
	where := fmt.Sprintf("%s:%d: ", r.file, n.Line)
	if path != "" {
		where += path + ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s%s", where, fmt.Sprintf(format, args...)))
}

// section reads a mapping into the struct v.
func (r *yamlReader) section(v reflect.Value, n *yaml.Node, path string) {
	n = resolve(n)
	if isNull(n) {
		return // `kafka:` with nothing below it sets nothing
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, "got %s; allowed: a mapping with %s", describe(n), strings.Join(sectionNames(v), ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		sub := joinPath(path, key.Value)
		f, ok := sectionField(v, key.Value)
		if !ok {
			r.fail(key, sub, "unknown field; allowed: %s", strings.Join(sectionNames(v), ", "))
			continue
		}
		if line, twice := seen[key.Value]; twice {
			r.fail(key, sub, "given twice; first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		if isSection(f) {
			r.section(f, value, sub)
			continue
		}
		r.leaf(f, resolve(value), sub)
	}
}

func (r *yamlReader) leaf(v reflect.Value, n *yaml.Node, path string) {
	r.origins[path] = Origin{File: r.file, Line: n.Line}
	if isNull(n) {
		v.SetZero() // `never_block:` means: none
		return
	}
	var err error
	list, takesList := v.Addr().Interface().(listSetter)
	switch {
	case takesList && n.Kind == yaml.SequenceNode:
		err = partsFromNode(n, list.SetList)
	case v.Kind() == reflect.Slice:
		err = listFromNode(v, n)
	case v.Kind() == reflect.Map:
		err = mapFromNode(v, n)
	default:
		err = scalarFromNode(v, n)
	}
	if err != nil {
		r.fail(n, path, "%s", err)
	}
}

func scalarFromNode(v reflect.Value, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("got %s; allowed: %s", describe(n), wanted(v))
	}
	if v.Kind() == reflect.String && n.Tag != "!!str" {
		if n.Tag == "!!bool" || n.Tag == "!!null" {
			return fmt.Errorf("got %s; allowed: a text (put it in quotes)", describe(n))
		}
	}
	return setText(v, n.Value)
}

func listFromNode(v reflect.Value, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("got %s; allowed: a list", describe(n))
	}
	return partsFromNode(n, func(parts []string) error { return setList(v, parts) })
}

// partsFromNode hands the elements of a list to set.
func partsFromNode(n *yaml.Node, set func([]string) error) error {
	parts := make([]string, len(n.Content))
	for i, item := range n.Content {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || isNull(item) {
			return fmt.Errorf("element %d: got %s; allowed: a text", i+1, describe(item))
		}
		parts[i] = item.Value
	}
	return set(parts)
}

func mapFromNode(v reflect.Value, n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("got %s; allowed: a mapping of names to names", describe(n))
	}
	m := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := resolve(n.Content[i+1])
		if value.Kind != yaml.ScalarNode || isNull(value) {
			return fmt.Errorf("member %s: got %s; allowed: a text", n.Content[i].Value, describe(value))
		}
		m[n.Content[i].Value] = value.Value
	}
	v.Set(reflect.ValueOf(m))
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe names what stands in the document, without the value of a text: it might be a secret in the wrong place.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag == "!!str":
		return "a text"
	}
	return n.Value
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
