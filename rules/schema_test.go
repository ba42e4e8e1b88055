package rules

import (
	"slices"
	"testing"
)

// The schema has every member that the decoder reads, and no other: neither can change without the other.
func TestSchemaHasTheMembersOfTheDecoder(t *testing.T) {
	known := shapes()
	var members []string
	for _, s := range []section{ruleSection(), watchSection(), countSection(), blockSection(), reachSection(), candidateSection(), promoteSection(), canarySection()} {
		for _, name := range s.names() {
			members = append(members, s.prefix+name)
			if known[s.prefix+name] == nil {
				t.Errorf("%s%s is read by the decoder, and has no shape in schema.go", s.prefix, name)
			}
		}
	}
	entry, entries := entryShapes(), entrySection("", &AllowEntry{}).names()
	for _, name := range entries {
		if entry[name] == nil {
			t.Errorf("%s of an allow list's entry is read by the decoder, and has no shape in schema.go", name)
		}
	}
	if len(entry) != len(entries) {
		t.Errorf("%d shapes for the members %v of an entry", len(entry), entries)
	}
	properties, _ := allowSchema()["properties"].(Schema)
	for _, name := range allowSection(&AllowList{}).names() {
		if shape, _ := properties[name].(Schema); shape == nil {
			t.Errorf("%s of an allow list is read by the decoder, and has no shape in schema.go", name)
		}
	}
	for name, shape := range known {
		if !slices.Contains(members, name) && name != "block.match.status" && name != "block.match.when" { // which no request has
			t.Errorf("%s has a shape, and the decoder does not read it", name)
		}
		if shape["description"] == nil {
			t.Errorf("%s has no description, which editors show", name)
		}
	}
}
