package rules

import (
	"strings"
	"testing"
)

// A match that stands alone is read as block.match is, and what is no match says what is allowed.
func TestParseReach(t *testing.T) {
	for text, want := range map[string]string{
		"{method: post, path: /v1/login}":              "POST /v1/login",
		"path: [/b, /a]\nhost: Example.COM":            "any method /a,/b, host example.com",
		"{route: orders@docker, except: [/v1/health]}": `any method any path, except /v1/health, route "orders@docker"`,
		"{}": "any method any path",
	} {
		if m, err := ParseReach(text); err != nil || m.String() != want {
			t.Errorf("%q: got %q, %v, want %q", text, m.String(), err, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "0 documents",
		"null":                    "got nothing",
		"[]":                      "got a list",
		"/v1/login":               "allowed a mapping",
		"{path: v1/login}":        "match.path",
		"{status: 401}":           "what only an answer or an event has",
		"{when: 'true'}":          "what only an answer or an event has",
		"{pth: /a}":               `did you mean "path"?`,
		"{path: /a}\n---\n{}":     "2 documents",
		"{path: /a, path: /b}":    "a second time",
		"{path: \"/\x00\"}":       "control character",
		"{path: \"\xff\"}":        "not UTF-8",
		"{path: &a /x, host: *a}": "allowed",
		"{path: /a":               "YAML that cannot be read",
		"{path: [" + strings.Repeat("/a,", 70) + "]}": "at most 64",
	} {
		if m, err := ParseReach(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %q", text, m, err, want)
		}
	}
}

// The rule of a block by hand follows from what it holds, however that was written, and no document has its name.
func TestByHand(t *testing.T) {
	of := func(text string) ModeState {
		t.Helper()
		m, err := ParseReach(text)
		if err != nil {
			t.Fatal(err)
		}
		state, err := ByHandOf(m)
		if err != nil || state.Mode != ModeBlock || state.Generation != 1 || !IsByHand(state.Rule) ||
			!validID(state.Rule) {
			t.Fatalf("%s: %+v, %v", text, state, err)
		}
		return state
	}
	if got := of("{}").Rule; got != ByHand {
		t.Errorf("every request: %s", got)
	}
	if a, b := of("{path: [/a, /b], method: get}").Rule, of("{method: GET, path: [/b, /a]}").Rule; a != b ||
		a == ByHand {
		t.Errorf("the same match: %s and %s", a, b)
	}
	if a, b := of("{path: /a}").Rule, of("{path: /b}").Rule; a == b {
		t.Errorf("other matches: both %s", a)
	}
	const document = "id: %s\nowner: o\nmatch: {path: /a}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
	for id, taken := range map[string]bool{"by-hand": true, "by-hand-x": true, "by-hands": false,
		"not-by-hand": false} {
		_, err := ParseFiles([]File{{Name: "a.yaml", Src: []byte(strings.Replace(document, "%s", id, 1))}},
			Environment{})
		if refused := err != nil && strings.Contains(err.Error(), allowedNotByHand); refused != taken {
			t.Errorf("id %s: %v", id, err)
		}
	}
}
