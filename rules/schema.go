package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Schema is a part of a JSON Schema (draft 2020-12), as encoding/json writes it.
type Schema = map[string]any

// TestsRef is what Schema says of the tests of a document: whoever publishes it defines $defs/test.
const TestsRef = "#/$defs/test"

// DocumentSchema is the JSON Schema of a document, a rule or an allow list: of the members that the decoder reads, each required
// where the decoder requires it. What depends on the configuration or on another document it cannot say.
func DocumentSchema() Schema {
	rule := ruleSection().schema(shapes())
	rule["description"] = "Which requests to count, for whom, and how many are too many. See docs/rules.md."
	rule["allOf"] = conditions()
	return Schema{
		"title": "weir rules",
		"if":    Schema{"type": "object", "required": []string{"kind"}, "properties": Schema{"kind": Schema{"const": string(kindAllow)}}},
		"then":  Schema{"$ref": "#/$defs/allow"},
		"else":  Schema{"$ref": "#/$defs/rule"},
		"$defs": Schema{"rule": rule, "allow": allowSchema()},
	}
}

// schema is s as an object that has its members and no others.
func (s section) schema(known map[string]Schema) Schema {
	properties, required := Schema{}, []string{}
	for _, m := range s.members {
		properties[m.name] = known[s.prefix+m.name]
		if m.required != "" {
			required = append(required, m.name)
		}
	}
	out := Schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// shapes says of every member of the sections what its value may be. A test holds it to them.
func shapes() map[string]Schema {
	known := map[string]Schema{
		"kind": described(Schema{"enum": []string{string(kindRule), string(kindAllow)}}, "What the document is.",
			allowedDocumentKind),
		"id": text("Names the rule in commands, hits, blocks and metrics.", allowedID,
			Schema{"pattern": idPattern, "not": Schema{"pattern": "^" + ByHand + "(-|$)"}}),
		"owner":      text("The team that answers for the rule.", allowedOwner, line(MaxOwnerBytes)),
		"key":        described(listOfFields(keyElement(false)), "Whose requests are counted together.", allowedKey),
		"limit":      described(whole(0, MaxLimit), "The rule fires when the count goes above it.", allowedLimit),
		"window":     span("Over which time is counted.", allowedWindow),
		"algorithm":  oneOfTexts("How the window counts.", allowedAlgorithm()),
		"burst":      described(whole(1, MaxLimit), "How much a bucket holds; default limit.", allowedBurst),
		"cooldown":   span("At most one update of a running hit in this time; default 1m.", allowedCooldown),
		"on_missing": oneOfTexts("What becomes of a request that lacks a field of the key; default skip.", allowedMissing),
		"lateness":   text("How late a request may come and still be counted; default 1m.", allowedLateness, Schema{"pattern": durationPattern}),
		"max_lag":    span("How old evidence may be for a new block; default 1m.", allowedMaxLag),
		"tests": described(Schema{"type": "array", "maxItems": MaxTests, "items": Schema{"$ref": TestsRef}},
			"What must come of which events; run by weir rules test. No part of the rule: a change makes no version.", allowedTests),

		"allow": described(Schema{"type": "array", "minItems": 1, "maxItems": MaxRuleAllow, "uniqueItems": true, "items": Schema{"type": "string", "pattern": idPattern}},
			"The lists of sources that the rule does not count.", allowedAllow),

		"count.distinct": described(distinctSchema(), "Each value of the field, or combination of values, is one, however often it comes.", allowedCounted),
		"count.sum": described(Schema{"anyOf": []any{Schema{"enum": []string{SumBytes, SumLatency}}, Schema{"type": "string", "pattern": attrPattern, "maxLength": format.MaxAttrPathBytes}}},
			"Each request is as much as this number says.", allowedSum),

		"block.key":    described(merged(listOfFields(identityElement()), Schema{"minItems": 1}), "Who is held back; default the rule's key.", allowedBlockKey),
		"block.ttl":    span("How long, from the request that was too many.", allowedTTL),
		"block.extend": oneOfTexts("What pushes the expiry out; default on-hit.", allowedExtend),
	}
	known["near"] = described(Schema{"oneOf": []any{
		Schema{"type": "number", "minimum": 0.01, "maximum": 0.99}, Schema{"type": "string", "pattern": "^[1-9][0-9]?%$"},
	}}, "The share of the limit from which a source is warned about.", allowedNear)
	known["candidate.limit"] = described(whole(0, MaxLimit), "A second limit, counted beside the first and never enforced.", allowedLimit)
	known["candidate"] = described(candidateSection().schema(known), "A limit on trial: its hits are recorded as candidate.", allowedCandidate)
	known["tiers"] = described(Schema{"type": "array", "minItems": 1, "maxItems": MaxTiers, "items": Schema{
		"type": "object", "additionalProperties": false, "required": []string{"when", "limit"},
		"properties": Schema{"when": conditionText("For which events."), "limit": whole(0, MaxLimit)},
	}}, "Limits of their own for some events: the first whose condition holds.", allowedTiers)
	for _, prefix := range []string{watchSection().prefix, reachSection().prefix} {
		for name, shape := range matchShapes() {
			known[prefix+name] = shape
		}
	}
	known["match"] = described(merged(watchSection().schema(known), readingNeedsPath()), "Which requests are watched.", allowedMatch)
	known["block.match"] = described(merged(merged(reachSection().schema(known), readingNeedsPath()), someRequest()), "What a block holds back, where that is not the request part of match.", allowedReach)
	known["count"] = described(Schema{"oneOf": []any{
		Schema{"const": string(CountEvents)}, merged(countSection().schema(known), Schema{"minProperties": 1, "maxProperties": 1}),
	}}, "What the window adds up.", allowedCount)
	maps.Copy(known, promotionShapes())
	known["block"] = described(blockSection().schema(known), "What a block would be, were the rule promoted.", "a mapping with key, ttl and extend")
	return known
}

// matchShapes are those of the members of a match, a rule's or a block's.
func matchShapes() map[string]Schema {
	path := Schema{"type": "string", "minLength": 1, "maxLength": MaxPathBytes, "pattern": pathPattern}
	status := Schema{"oneOf": []any{whole(100, 599), Schema{"type": "string", "pattern": "^[1-5]([xX][xX]|[0-9][0-9])$"}}}
	return map[string]Schema{
		"method":    described(someOf(Schema{"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"}), "The method of the request.", allowedMethod),
		"path":      described(someOf(path), "The path of the request, segment by segment.", allowedPath),
		"except":    described(someOf(path), "Paths that are left out.", allowedPath),
		"host":      described(someOf(Schema{"type": "string", "maxLength": reading.MaxHostBytes, "pattern": hostPattern}), "The host that the request is for.", allowedHost),
		"route":     described(someOf(Schema{"type": "string", "minLength": 1, "maxLength": MaxRouteBytes, "not": unreadable()}), "The gateway's own name of the route.", allowedRoute),
		"status":    described(someOf(status), "The status of the answer.", allowedStatus),
		"path_as":   oneOfTexts("In which form paths are compared; default normal.", allowedPathAs),
		"path_case": oneOfTexts("Whether the case of letters makes a difference; default exact.", allowedPathCase),
		"when":      conditionText("What else must hold of the event."),
	}
}

// conditionText is a text in CEL. What is in it weir rules lint checks.
func conditionText(what string) Schema {
	return text(what, allowedWhen, Schema{"pattern": `\S`})
}

// readingNeedsPath: how paths are compared is said beside a path.
func readingNeedsPath() Schema {
	needs := Schema{"anyOf": []any{Schema{"required": []string{"path"}}, Schema{"required": []string{"except"}}}}
	return Schema{"dependentSchemas": Schema{"path_as": needs, "path_case": needs}}
}

// someRequest: a block that no request can meet is refused. Only a CONNECT has another target than a path.
func someRequest() Schema {
	met := Schema{"pattern": `^/|^\*$`}
	return Schema{
		"if":   Schema{"not": Schema{"required": []string{"method"}}},
		"then": Schema{"properties": Schema{"path": Schema{"oneOf": []any{merged(met, Schema{"type": "string"}), Schema{"type": "array", "contains": met}}}}},
	}
}

const (
	idPattern   = `^[a-z0-9][a-z0-9-]{0,63}$`
	hostPattern = `^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$|^\[[0-9A-Fa-f:.]+\]$`
	// pathPattern: braces and stars stand for whole segments; a star stands at the end of the last one, too, or before its suffix.
	pathPattern     = `^(([^/?*{}]*|\*|\{[A-Za-z_][A-Za-z0-9_]*\})/)*([^/?*{}]*\*?|\*[^/?*{}]*|\{[A-Za-z_][A-Za-z0-9_]*\})$`
	durationPattern = `^([0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?|[0-9]+h([0-9]+m)?([0-9]+s)?|[0-9]+m([0-9]+s)?|[0-9]+s)$`
	// spelledPattern is what no path in the form that servers read has.
	spelledPattern = `^/(.*%[0-9A-Fa-f]{2}|/|.*//|(.*/)?\.\.?(/|$))`
)

// conditions are what one member asks of another.
func conditions() []any {
	// A path is in the form that servers read, unless it is compared as it stands.
	read := Schema{"not": Schema{"type": "string", "pattern": spelledPattern}}
	normal := Schema{
		"if":   Schema{"not": Schema{"required": []string{"path_as"}, "properties": Schema{"path_as": Schema{"const": string(PathRaw)}}}},
		"then": Schema{"properties": Schema{"path": merged(read, Schema{"items": read}), "except": merged(read, Schema{"items": read})}},
	}
	out := []any{
		Schema{"properties": Schema{"match": normal, "block": Schema{"properties": Schema{"match": normal}}}},
		Schema{ // nobody can be blocked who was not told from others
			"if":   Schema{"required": []string{"key"}, "properties": Schema{"key": Schema{"maxItems": 0}}},
			"then": Schema{"properties": Schema{"block": false}},
		},
	}
	out = append(out, keyConditions()...)
	var buckets []string
	for _, a := range Algorithms() {
		if a.bucket() {
			buckets = append(buckets, string(a))
		}
		var illegal []any
		for _, kind := range []CountKind{CountDistinct, CountSum} {
			if !Legal(a, kind) {
				illegal = append(illegal, Schema{"required": []string{string(kind)}})
			}
		}
		if len(illegal) > 0 {
			out = append(out, Schema{
				"if":   Schema{"required": []string{"algorithm"}, "properties": Schema{"algorithm": Schema{"const": string(a)}}},
				"then": Schema{"properties": Schema{"count": Schema{"not": Schema{"type": "object", "anyOf": illegal}}}},
			})
		}
	}
	out = append(out, Schema{ // a bucket has one rate, and is full whenever it is used in full
		"if":   Schema{"required": []string{"algorithm"}, "properties": Schema{"algorithm": Schema{"enum": buckets}}},
		"then": Schema{"properties": Schema{"near": false, "tiers": false}},
	})
	return append(out, Schema{
		"if": Schema{"required": []string{"burst"}},
		"then": Schema{
			"required":   []string{"algorithm"},
			"properties": Schema{"algorithm": Schema{"enum": buckets}, "limit": Schema{"minimum": 1}},
		},
	})
}

func whole(least, most int) Schema {
	return Schema{"type": "integer", "minimum": least, "maximum": most}
}

func text(what, allowed string, more Schema) Schema {
	return described(merged(Schema{"type": "string"}, more), what, allowed)
}

// someOf is one value, or a list of different ones.
func someOf(one Schema) Schema {
	return Schema{"oneOf": []any{one, Schema{"type": "array", "minItems": 1, "uniqueItems": true, "items": one}}}
}

// oneOfTexts takes its words from what messages say is allowed.
func oneOfTexts(what, allowed string) Schema {
	return described(Schema{"enum": strings.Split(allowed, ", ")}, what, allowed)
}

// line is one line of readable text, without spaces around it.
func line(most int) Schema {
	return Schema{"minLength": 1, "maxLength": most, "pattern": `^\S(.*\S)?$`, "not": unreadable()}
}

// unreadable is what no readable text has: control characters, and those that turn the direction of what follows.
func unreadable() Schema { return Schema{"pattern": "[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]"} }

func span(what, allowed string) Schema {
	return text(what, allowed, Schema{"pattern": durationPattern, "not": Schema{"pattern": "^[0dhms]+$"}})
}

func described(s Schema, what, allowed string) Schema {
	return merged(s, Schema{"description": what + " Allowed: " + allowed + "."})
}

// merged is s with the members of more.
func merged(s, more Schema) Schema {
	s = maps.Clone(s)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		s[name] = more[name]
	}
	return s
}

// One field of a key, as patterns say it.
const (
	paramPattern  = `\{[A-Za-z_][A-Za-z0-9_]*\}`
	memberPattern = "[^.|\x00-\x1f\x7f]+"
	attrPattern   = "^attrs\\.[^.\x00-\x1f\x7f]+(\\.[^.\x00-\x1f\x7f]+)*$"
)

// NamedFieldPattern is the name of one field of a key that has a name of its own: {id} or attrs.tenant.
const NamedFieldPattern = "^(" + paramPattern + `|attrs\.` + memberPattern + `(\.` + memberPattern + ")*)$"

// fieldPattern is the text of one field, without its ends. counted says that it is counted by its values.
func fieldPattern(counted bool) string {
	return "(" + strings.Join(plainFields(counted), "|") + "|" + paramPattern + `|attrs\.` + memberPattern + `(\.` + memberPattern + ")*)"
}

// plainFields are the names of fields that have one of their own.
func plainFields(counted bool) []string {
	names := traffic.KeyFieldNames()
	if !counted {
		names = slices.DeleteFunc(names, func(name string) bool { return name == traffic.FieldPath.String() })
	}
	return names
}

// fieldText is one field, or several with | between them. The names stand beside the pattern for the sake of completion.
func fieldText(counted bool) Schema {
	one := fieldPattern(counted)
	return Schema{"type": "string", "anyOf": []any{
		Schema{"enum": plainFields(counted)},
		Schema{"pattern": "^" + one + `(\|` + one + ")*$"},
	}}
}

// keyElement is a field's name, an address with prefix lengths, or a list of fields of which one counts.
func keyElement(counted bool) Schema {
	one := Schema{"type": "string", "anyOf": []any{Schema{"enum": plainFields(counted)}, Schema{"pattern": "^" + fieldPattern(counted) + "$"}}}
	among := Schema{"type": "array", "minItems": 2, "uniqueItems": true, "items": Schema{"oneOf": []any{one, fieldWithLengths(one, addressText())}}}
	return Schema{"oneOf": []any{fieldText(counted), fieldWithLengths(fieldText(counted), addressText()), anyOfFields(among)}}
}

// identityElement is one of an identity, which is all that a gate knows.
func identityElement() Schema {
	names := Schema{"enum": traffic.FieldNames()}
	return Schema{"oneOf": []any{names, fieldWithLengths(names, Schema{"const": traffic.FieldIP.String()})}}
}

// addressText is a field that is an address, or may be one.
func addressText() Schema { return Schema{"pattern": `(^|\|)ip(\||$)`} }

// fieldWithLengths is {field: ip, v4: N, v6: N}. Prefix lengths are an address's.
func fieldWithLengths(field, address Schema) Schema {
	return Schema{
		"type": "object", "additionalProperties": false, "required": []string{"field"},
		"properties": merged(lengths(), Schema{"field": field}),
		"if":         lengthsSaid(), "then": Schema{"properties": Schema{"field": address}},
	}
}

// anyOfFields is {any: [FIELD, FIELD], v4: N, v6: N}.
func anyOfFields(among Schema) Schema {
	address := Schema{"anyOf": []any{Schema{"const": traffic.FieldIP.String()}, Schema{"type": "object"}}}
	return Schema{
		"type": "object", "additionalProperties": false, "required": []string{"any"},
		"properties": merged(lengths(), Schema{"any": among}),
		"if":         lengthsSaid(), "then": Schema{"properties": Schema{"any": Schema{"contains": address}}},
	}
}

func lengths() Schema { return Schema{"v4": whole(1, 32), "v6": whole(1, 128)} }

func lengthsSaid() Schema {
	return Schema{"anyOf": []any{Schema{"required": []string{"v4"}}, Schema{"required": []string{"v6"}}}}
}

func listOfFields(element Schema) Schema {
	return Schema{"type": "array", "items": element, "uniqueItems": true, "maxItems": traffic.MaxKeyFields}
}

// distinctSchema is a field, or a list of those whose combinations count.
func distinctSchema() Schema {
	return Schema{"oneOf": []any{keyElement(true), merged(listOfFields(keyElement(true)), Schema{"minItems": 1})}}
}

// keyConditions are what a key asks of other members.
func keyConditions() []any {
	withParam := Schema{"type": "string", "pattern": `\{`}
	return []any{
		Schema{ // a {param} is a segment of a path
			"if":   Schema{"required": []string{"key"}, "properties": Schema{"key": Schema{"contains": withParam}}},
			"then": Schema{"properties": Schema{"match": Schema{"required": []string{"path"}}}},
		},
		Schema{ // a gate knows identities only: whom it holds must be said where the key has other fields
			"if":   Schema{"required": []string{"key"}, "properties": Schema{"key": Schema{"contains": Schema{"not": identityElement()}}}},
			"then": Schema{"properties": Schema{"block": Schema{"required": []string{"key"}}}},
		},
	}
}

// allowSchema is the JSON Schema of an allow list.
func allowSchema() Schema {
	entries := entrySection("", &AllowEntry{})
	entries.prefix = ""
	entry := entries.schema(entryShapes())
	entry["oneOf"] = oneSource()
	s := allowSection(&AllowList{}).schema(map[string]Schema{
		"kind":    described(Schema{"const": string(kindAllow)}, "What the document is.", string(kindAllow)),
		"id":      text("Names the list in rules, commands and metrics.", allowedID, Schema{"pattern": idPattern}),
		"owner":   text("The team that answers for the list.", allowedOwner, line(MaxOwnerBytes)),
		"entries": described(Schema{"type": "array", "maxItems": MaxAllowEntries, "uniqueItems": true, "items": entry}, "The sources that rules with this list do not count.", allowedEntries),
	})
	s["description"] = "Whom rules do not count. See docs/allow.md."
	return s
}

const (
	// cidrPattern takes no zone, no IPv4 address within IPv6, and no prefix of all addresses. Bits behind a prefix it cannot see.
	cidrPattern = `^([0-9]{1,3}(\.[0-9]{1,3}){3}(/([1-9]|[12][0-9]|3[0-2]))?|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(/([1-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?)$`
	timePattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`
)

// entryShapes are those of the members of an entry.
func entryShapes() map[string]Schema {
	known := map[string]Schema{
		"reason": text("Why the source is let pass.", allowedAllowReason, line(maxAllowReason)),
		"until":  text("When the entry ends, by the time of events.", allowedUntil, Schema{"pattern": timePattern}),
	}
	for _, kind := range AllowKinds() {
		if kind == AllowCIDR {
			known[string(kind)] = text("The addresses that are let pass.", allowedCIDR, Schema{"pattern": cidrPattern})
		} else {
			known[string(kind)] = text("The "+string(kind)+" that is let pass, where the gateway vouches for it.", allowedAllowValue, line(maxAllowValue))
		}
	}
	return known
}

// oneSource: an entry has exactly one.
func oneSource() []any {
	var out []any
	for _, kind := range AllowKinds() {
		out = append(out, Schema{"required": []string{string(kind)}})
	}
	return out
}
