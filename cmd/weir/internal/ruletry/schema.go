package ruletry

import (
	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/rules"
)

// Schema is the JSON Schema of rules with their tests, and of allow lists.
func Schema() rules.Schema {
	s := rules.DocumentSchema()
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	defs, _ := s["$defs"].(rules.Schema) // as DocumentSchema says
	defs["test"] = story.TestSchema()
	return s
}
