package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/console/access"
)

// wildcard is a part of a path that stands for a name.
var wildcard = regexp.MustCompile(`\{([a-z]+)\}`)

// openAPI writes the OpenAPI 3.1 document of a table of routes.
func openAPI(table []route, version string) ([]byte, error) {
	s := &schemas{components: map[string]schema{}, names: map[reflect.Type]string{}}
	problem := s.of(reflect.TypeFor[Problem]())
	paths := map[string]map[string]any{}
	for i := range table {
		r := &table[i]
		if paths[r.Pattern] == nil {
			paths[r.Pattern] = map[string]any{}
		}
		paths[r.Pattern][strings.ToLower(r.Method)] = operation(s, r)
	}
	if version == "" {
		version = "(devel)"
	}
	return json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "weir", "version": version,
			"description": "What an installation of weir knows and what people do to it. Each operation says in x-weir-act what its caller must be allowed to do.",
		},
		"servers":  []map[string]any{{"url": "/"}},
		"security": []map[string]any{{"token": []string{}}, {"session": []string{}}, {}},
		"paths":    paths,
		"components": map[string]any{
			"schemas": s.components,
			"responses": map[string]any{
				"problem": map[string]any{"description": "no success: what was wrong, after RFC 9457", "content": map[string]any{"application/problem+json": map[string]any{"schema": problem}}},
			},
			"securitySchemes": map[string]any{
				"token":   map[string]any{"type": "http", "scheme": "bearer", "description": "a static token"},
				"session": map[string]any{"type": "apiKey", "in": "cookie", "name": "__Host-weir-session", "description": "a signed-in browser; what changes something carries " + access.CSRFHeader + " too"},
			},
		},
	}, "", "  ")
}

// operation describes one route.
func operation(s *schemas, r *route) map[string]any {
	op := map[string]any{"operationId": r.name, "summary": r.summary, "x-weir-act": string(r.Act)}
	parameters := []map[string]any{}
	for _, name := range wildcard.FindAllStringSubmatch(r.Pattern, -1) {
		parameters = append(parameters, map[string]any{"name": name[1], "in": "path", "required": true, "schema": schema{"type": "string"}})
	}
	for _, p := range r.params {
		of := schema{"type": "string"}
		if p.kind != "" {
			of["type"] = p.kind
		}
		if len(p.allowed) > 0 {
			of["enum"] = p.allowed
		}
		parameter := map[string]any{"name": p.name, "in": "query", "description": p.doc, "schema": of}
		if p.required {
			parameter["required"] = true
		}
		parameters = append(parameters, parameter)
	}
	if r.matched {
		parameters = append(parameters, map[string]any{"name": "If-Match", "in": "header", "schema": schema{"type": "string"},
			"description": "the ETag of the rule that was looked at: 412 where somebody else was quicker"})
	}
	if !r.CSRF() && r.stream == nil {
		parameters = append(parameters, map[string]any{"name": "If-None-Match", "in": "header", "schema": schema{"type": "string"}, "description": "the ETag of an earlier answer: 304 where nothing changed"})
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if r.body != nil {
		op["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": bodySchema(s, r)}}}
	}
	op["responses"] = responses(s, r)
	return op
}

// bodySchema is that of the body: what the path names need not be there.
func bodySchema(s *schemas, r *route) schema {
	t := reflect.TypeOf(r.body)
	name := s.component(t)
	of := s.components[name]
	required := []string{}
	for _, member := range of["required"].([]string) {
		if member != r.Rule {
			required = append(required, member)
		}
	}
	return schema{"type": "object", "properties": of["properties"], "required": required, "additionalProperties": false}
}

func responses(s *schemas, r *route) map[string]any {
	answer := map[string]any{}
	switch {
	case r.stream != nil && strings.HasSuffix(r.Pattern, "/stream"):
		answer["text/event-stream"] = map[string]any{"schema": schema{"type": "string"}}
	case r.answer == nil:
		answer["application/json"] = map[string]any{"schema": schema{"type": "object"}}
	default:
		answer["application/json"] = map[string]any{"schema": s.of(reflect.TypeOf(r.answer))}
	}
	if r.csv {
		answer["text/csv"] = map[string]any{"schema": schema{"type": "string"}}
	}
	all := map[string]any{"200": map[string]any{"description": "done", "content": answer}}
	if r.unfinished {
		all["202"] = map[string]any{"description": "begun, and not known to be complete: the answer says what is done", "content": answer}
	}
	if !r.CSRF() && r.stream == nil {
		all["304"] = map[string]any{"description": "nothing has changed"}
	}
	codes := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	if len(r.params) > 0 || r.body != nil || strings.Contains(r.Pattern, "{") {
		codes = append(codes, http.StatusBadRequest, http.StatusNotFound)
	}
	if r.CSRF() {
		codes = append(codes, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if r.matched {
		codes = append(codes, http.StatusPreconditionFailed)
	}
	for _, code := range codes {
		all[strconv.Itoa(code)] = map[string]any{"$ref": "#/components/responses/problem"}
	}
	return all
}
