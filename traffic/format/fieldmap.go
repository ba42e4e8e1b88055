package format

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// ParseFieldMap reads a field map as a flag has it: `time=ts,user_agent=ua`, event field = member. Dots descend into
// nested objects: `user=claims.sub` is {"claims":{"sub":…}}, and also a member that has the dot in its own name.
// Event fields that the map does not name are looked for under their own names. "" is the empty map.
func ParseFieldMap(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	out := make(map[string]string)
	for entry := range strings.SplitSeq(s, ",") {
		field, path, ok := strings.Cut(entry, "=")
		field, path = strings.TrimSpace(field), strings.TrimSpace(path)
		if !ok {
			return nil, fmt.Errorf("map: got %q, allowed: event field=member, joined by commas", entry)
		}
		if _, twice := out[field]; twice {
			return nil, fmt.Errorf("map: event field %q is mapped twice", field)
		}
		out[field] = path
	}
	if _, err := compileFieldMap(out); err != nil {
		return nil, err
	}
	return out, nil
}

// mappableFields lists the event fields that a field map may name.
func mappableFields() []string { return slices.Clone(memberNames[memberTime:]) }

// fieldNode is what to do with the members of one name in one object.
type fieldNode struct {
	targets  []target // event fields that take the value
	children map[string]*fieldNode
	headers  *headerNames // which members of the object, beside its children, are request headers; nil: none
}

// target is one event field that takes a member's value.
type target struct {
	field   member
	as      notation // how the value is written
	rank    uint8    // its place among the members that may fill the field; 0 is wanted most
	claimed bool     // the value is no more than what the client claims (see Request.Claimed)
}

func (n *fieldNode) child(name string) *fieldNode {
	c := n.children[name]
	if c == nil {
		if n.children == nil {
			n.children = make(map[string]*fieldNode)
		}
		c = new(fieldNode)
		n.children[name] = c
	}
	return c
}

// at is where a path leads: into nested objects at its dots, and to the one member that has the dots in its name.
func (n *fieldNode) at(path string) []*fieldNode {
	node := n
	for name := range strings.SplitSeq(path, ".") {
		node = node.child(name)
	}
	if !strings.Contains(path, ".") {
		return []*fieldNode{node}
	}
	return []*fieldNode{node, n.child(path)}
}

// compileFieldMap makes the tree by which mappedDecoder walks.
func compileFieldMap(fieldMap map[string]string) (*fieldNode, error) {
	root := new(fieldNode)
	for _, field := range slices.Sorted(maps.Keys(fieldMap)) {
		m := memberTime + member(max(slices.Index(memberNames[memberTime:], field), 0))
		if memberNames[m] != field {
			return nil, fmt.Errorf("map: got event field %q, allowed: %s", field, strings.Join(mappableFields(), ", "))
		}
		path := fieldMap[field]
		if slices.Contains(strings.Split(path, "."), "") {
			return nil, fmt.Errorf("map: event field %s: got member %q, allowed: a name, or names joined by dots", field, path)
		}
		for _, node := range root.at(path) {
			node.targets = append(node.targets, target{field: m})
		}
	}
	for m := memberTime; m < memberVerdictRule; m++ {
		_, mapped := fieldMap[memberNames[m]]
		if m == memberVerdict && !mapped {
			// A verdict taken from elsewhere is not to be overwritten by a member that happens to have this name.
			mapped = fieldMap[memberNames[memberVerdictRule]] != "" || fieldMap[memberNames[memberVerdictBlock]] != ""
		}
		if !mapped {
			own := root.child(memberNames[m])
			// Somebody else's log has an identity of that name by chance, and may well have it from Basic authentication.
			_, identity := m.identityField()
			own.targets = append(own.targets, target{field: m, claimed: identity})
		}
	}
	return root, nil
}

// mappedDecoder reads JSON objects that somebody else designed, by a field map.
type mappedDecoder struct {
	max  int
	root *fieldNode
}

var _ Decoder = (*mappedDecoder)(nil)

// Decode reads one object.
func (d *mappedDecoder) Decode(b []byte, r *traffic.Request) error {
	*r = traffic.Request{Headers: r.Headers[:0]}
	if err := checkSize(b, d.max); err != nil {
		return err
	}
	s := objectReader{memberReader: memberReader{scanner: scanner{b: b}, lax: true}, counted: d.root}
	s.space()
	if err := s.readObject(d.root, r); err != nil {
		return err
	}
	return s.end()
}
