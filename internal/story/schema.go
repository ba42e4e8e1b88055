package story

import (
	"strings"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestSchema is the JSON Schema of one test of a rule document. Its members are those that the reader of tests knows.
func TestSchema() rules.Schema {
	event := eventProperties()
	step := rules.Schema{}
	for name, shape := range event {
		step[name] = shape
	}
	for _, name := range []string{"at", "comes", "every"} {
		step[name] = spanSchema()
	}
	step["times"] = rules.Schema{"type": "integer", "minimum": 1, "maximum": maxTestSteps}
	about := rules.Schema{"rule": rules.Schema{"type": "string"}}
	for _, name := range traffic.FieldNames() {
		about[name] = event[name]
	}
	// A hit says any field of the rule's key. Which ones it has a schema of the test cannot know.
	word := wordSchema()
	keyed := rules.Schema{}
	for _, name := range traffic.KeyFieldNames() {
		if name != traffic.FieldPath.String() {
			keyed[name] = word
		}
	}
	keyed = merged(keyed, about)
	number, truth := rules.Schema{"type": "integer", "minimum": 0}, rules.Schema{"type": "boolean"}
	var reasons []string
	for r := range detectors.NumUncounted {
		reasons = append(reasons, r.String())
	}
	hit := merged(object("", merged(keyed, rules.Schema{
		"count": number, "peak": number, "first": spanSchema(), "last": spanSchema(), "updates": number,
		"phase": rules.Schema{"enum": []string{string(detectors.PhaseClosed), string(detectors.PhaseMerged)}}, "grouped": truth,
	})), rules.Schema{"patternProperties": rules.Schema{rules.NamedFieldPattern: word}})
	kinds := rules.Schema{"enum": []string{string(detectors.KindHit), string(detectors.KindNear), string(detectors.KindCandidate)}}
	return object("A test: which events come, and what must come of them. Run by weir rules test.", rules.Schema{
		"name": rules.Schema{"type": "string", "minLength": 1, "maxLength": maxName, "pattern": `^[^\n\r]*$`, "description": "What the test shows, in one line."},
		"each": object("Fields of every event that does not say otherwise.", event),
		"timeline": list("The events in the order in which they happen; times are since the beginning, a midnight.",
			merged(object("", step, "at"), rules.Schema{"dependentRequired": rules.Schema{"times": []string{"every"}, "every": []string{"times"}}})),
		"expect": object("What must come of the events; what is not listed must not come. Nothing is asked of near, candidate and blocks where there is no such list.", rules.Schema{
			"hits": list("Episodes of sources over the limit; one of another kind is as in the list of that kind.",
				merged(hit, rules.Schema{"properties": merged(hit["properties"].(rules.Schema), rules.Schema{"kind": kinds})})),
			"near":      list("Episodes of sources near the limit, of a rule with near.", hit),
			"candidate": list("Episodes of sources over the candidate's limit, of a rule with candidate.", hit),
			"uncounted": list("What windows left out, summed up.", object("", rules.Schema{
				"rule": about["rule"], "why": rules.Schema{"enum": reasons}, "count": number,
			})),
			"blocks": list("Blocks that ever stood, had the rule blocked from the beginning.", object("", merged(about, rules.Schema{
				"until": spanSchema(), "released": truth,
			}))),
		}, "hits"),
	}, "name", "timeline", "expect")
}

// wordSchema is a text that may look like a number.
func wordSchema() rules.Schema {
	return rules.Schema{"type": []string{"string", "number"}, "minLength": 1}
}

// eventProperties are the fields of an event.
func eventProperties() rules.Schema {
	word := wordSchema()
	out := rules.Schema{
		"ip":         rules.Schema{"type": []string{"string", "number"}, "description": "An IP address."},
		"status":     rules.Schema{"type": "integer", "minimum": 100, "maximum": 599},
		"bytes":      rules.Schema{"type": "integer", "minimum": 0},
		"latency_ms": rules.Schema{"type": "integer", "minimum": 0},
		"attrs":      rules.Schema{"type": "object"},
	}
	for _, name := range strings.Fields("device user api_key session method path host route plan user_agent") {
		out[name] = word
	}
	return out
}

// spanSchema is looser than rules' own: a story knows fractions.
func spanSchema() rules.Schema {
	return rules.Schema{"type": "string", "pattern": `^[0-9][0-9.a-zµμ]*$`}
}

func object(what string, properties rules.Schema, required ...string) rules.Schema {
	out := rules.Schema{"type": "object", "properties": properties, "additionalProperties": false}
	if what != "" {
		out["description"] = what
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func list(what string, items rules.Schema) rules.Schema {
	return rules.Schema{"type": "array", "items": items, "description": what}
}

// merged has the members of both; where they differ, those of more.
func merged(s, more rules.Schema) rules.Schema {
	out := rules.Schema{}
	for name, value := range s {
		out[name] = value
	}
	for name, value := range more {
		out[name] = value
	}
	return out
}
