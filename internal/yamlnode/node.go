// Package yamlnode reads YAML as a tree of values that know their place and say, in the words of an error message, what they
// are. Rule documents, stories and the configuration are read through it; what a value may be is for them to say.
package yamlnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"go.yaml.in/yaml/v3"
)

// Documents reads the documents of src, which `---` separates, one by one. An empty document is a Null; src without any
// has none. The error is a *SyntaxError and comes last: where the next document begins is unknown from there on.
func Documents(src []byte) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		decoder := yaml.NewDecoder(bytes.NewReader(src))
		text := &source{text: src}
		for {
			var document yaml.Node
			err := decoder.Decode(&document)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Node{}, syntaxError(src, err))
				return
			case len(document.Content) == 0:
				continue
			}
			if !yield(Node{document.Content[0], text}, nil) {
				return
			}
		}
	}
}

// readError is the error at which reading src stops; nil for YAML.
func readError(src []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Kind is what a node is.
type Kind uint8

// The kinds. A scalar's is that of its tag, written or, as YAML 1.2's core schema has it, found by its looks.
const (
	Mapping Kind = iota + 1
	List
	Null // null, ~, or nothing at all
	Text
	Integer
	Float
	Boolean
	Timestamp
	Tagged // a scalar with a tag that is none of these
	Alias  // see Node.Resolved
)

// Node is one value of a document.
type Node struct {
	yaml *yaml.Node
	text *source // that it was read from
}

// Kind is what n is.
func (n Node) Kind() Kind {
	switch n.yaml.Kind {
	case yaml.MappingNode:
		return Mapping
	case yaml.SequenceNode:
		return List
	case yaml.ScalarNode:
	default:
		return Alias
	}
	switch n.yaml.ShortTag() {
	case "!!null":
		return Null
	case "!!str":
		return Text
	case "!!int":
		return Integer
	case "!!float":
		return Float
	case "!!bool":
		return Boolean
	case "!!timestamp":
		return Timestamp
	}
	return Tagged
}

// IsScalar reports whether n is one value with a text: no mapping, list or alias. Null is a scalar.
func (n Node) IsScalar() bool { return n.yaml.Kind == yaml.ScalarNode }

// Place is where n begins: at its quotes, or at the | or > of a text in lines of its own.
func (n Node) Place() Place { return Place{n.yaml.Line, n.yaml.Column} }

// Line is the line of n's Place.
func (n Node) Line() int { return n.yaml.Line }

// Column is the column of n's Place.
func (n Node) Column() int { return n.yaml.Column }

// Flow reports whether n is a mapping or list in the flow style, {…} or […], which needs no lines of its own.
func (n Node) Flow() bool { return n.yaml.Style&yaml.FlowStyle != 0 }

// Decode stores what n holds in to, as the YAML library does: for values of which no rule is known but YAML's.
func (n Node) Decode(to any) error { return n.yaml.Decode(to) }

// Value is the text of a scalar as written, without quotes and escapes; the anchor's name for an alias; else empty.
func (n Node) Value() string { return n.yaml.Value }

// Anchor is the name that n is given for aliases, empty for none.
func (n Node) Anchor() string { return n.yaml.Anchor }

// Tag is the tag that the document writes before n, empty for none.
func (n Node) Tag() string {
	if n.yaml.Style&yaml.TaggedStyle == 0 {
		return ""
	}
	return n.yaml.Tag
}

// Resolved is n, or the node that the alias n stands for.
func (n Node) Resolved() Node {
	for n.yaml.Kind == yaml.AliasNode {
		n.yaml = n.yaml.Alias
	}
	return n
}

// Children are the elements of a list, or the names and values of a mapping by turns. A scalar and an alias have none.
func (n Node) Children() []Node {
	children := make([]Node, len(n.yaml.Content))
	for i, c := range n.yaml.Content {
		children[i] = Node{c, n.text}
	}
	return children
}

// Member is one name and value of a mapping.
type Member struct {
	Name, Value Node // the name may be of any kind
	First       int  // the line of the first member with this name, if this is not it; else 0
}

// Reference is an alias, an anchor or a tag: what lets a document mean something else than it shows, and unfold into more than
// its own size.
type Reference struct {
	Place
	Got, Allowed string // for messages
}

// References are those anywhere in n, n included, in the order of the document; show writes their names.
func (n Node) References(show func(text string) string) []Reference {
	const allowed = "values written out"
	var found []Reference
	switch {
	case n.Kind() == Alias:
		return []Reference{{n.Place(), "the YAML alias " + show("*"+n.Value()), allowed}}
	case n.Anchor() != "":
		found = append(found, Reference{n.Place(), "the YAML anchor " + show("&"+n.Anchor()), allowed})
	case n.Tag() != "":
		found = append(found, Reference{n.Place(), "the YAML tag " + show(n.Tag()), "values without a tag"})
	}
	for _, c := range n.Children() {
		found = append(found, c.References(show)...)
	}
	return found
}

// Members are the members of a mapping in the order of the document; none of anything else. A name that occurs twice, which
// YAML forbids, is a member each time.
func (n Node) Members() []Member {
	if n.yaml.Kind != yaml.MappingNode {
		return nil
	}
	members := make([]Member, 0, len(n.yaml.Content)/2)
	first := map[string]int{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		m := Member{Name: Node{n.yaml.Content[i], n.text}, Value: Node{n.yaml.Content[i+1], n.text}}
		if m.Name.IsScalar() {
			if m.First = first[m.Name.Value()]; m.First == 0 {
				first[m.Name.Value()] = m.Name.Line()
			}
		}
		members = append(members, m)
	}
	return members
}

// Describe says what n is, for messages: a mapping, a list, nothing, the number 5, the truth value true, the date 2026-11-21.
// Any other scalar is as show writes its text, which may quote it or, where it may be a secret, name it only.
func (n Node) Describe(show func(text string) string) string {
	switch n.Kind() {
	case Mapping:
		return "a mapping"
	case List:
		return "a list"
	case Null:
		return "nothing"
	case Alias:
		return "a YAML reference"
	case Integer, Float:
		return "the number " + shortNumber(n.Value())
	case Boolean:
		return "the truth value " + n.Value()
	case Timestamp:
		return "the date " + n.Value()
	}
	return show(n.Value())
}

// shortNumber is a number with at most 40 of its digits.
func shortNumber(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%s… (%d digits)", s[:most], len(s))
	}
	return s
}
