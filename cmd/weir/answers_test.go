package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// askers are the commands that can ask a server, each with arguments with which it does, | between them; FILE is one
// with a rule.
func askers() map[string]string {
	const reason = " --reason tests"
	return map[string]string{
		"rules list": "", "rules show": "flood", "rules history": "flood", "rules diff": "flood 1 | -f FILE",
		"rules apply":   "-f FILE --yes" + reason + " | -f FILE --dry-run",
		"rules try":     "-f FILE",
		"rules promote": "flood --version 1 --override tests --yes" + reason,
		"rules demote":  "flood" + reason, "rules disable": "flood" + reason, "rules rollback": "flood --yes" + reason +
			" | flood --dry-run",
		"rules set-limit": "flood --clear" + reason, "rules evidence": "flood",
		"blocks list": "", "blocks add": "user=alice --everything --for 1h --wait 0 --yes" + reason +
			" | user=alice --everything --for 1h --dry-run",
		"blocks release": "by-hand ip=192.0.2.1 --wait 0" + reason + " | 0123456789abcdef --wait 0" + reason +
			" | flood ip=192.0.2.1 --wait 0" + reason,
		"allow list": "", "allow show": "office", "allow add": "office cidr=192.0.2.0/24" + reason,
		"allow remove":     "office cidr=192.0.2.0/24" + reason,
		"never-block list": "", "never-block add": "192.0.2.1" + reason, "never-block remove": "192.0.2.1" + reason,
		"counters show": "flood ip=192.0.2.1 device=tv-7", "counters reset": "flood ip=192.0.2.1 device=tv-7" + reason,
		"partitions list": "",
		"partitions resume": "--keyed 12 --accept-gap" + reason +
			" | --keyed 12 --accept-gap --gap-source 5 --gap-offset 7" +
			reason,
		"why": "0123456789abcdef | 192.0.2.1", "history hits": "", "history sources": "", "history top": "",
		"history timeline": "ip=192.0.2.1", "history show": "0123456789abcdef", "history decisions": "",
		"history audit": "",
		"history late":  "", "history uncounted": "", "history refused": "", "history dead": "", "history replays": "",
		"history erase": "user=alice --yes" + reason, "deadletters list": "", "deadletters show": "weir.requests 0 7",
	}
}

// eachAsker goes through askers with each of their arguments.
func eachAsker() iter.Seq2[string, string] {
	return func(yield func(name, arguments string) bool) {
		for name, all := range askers() {
			for arguments := range strings.SplitSeq(all, "|") {
				if !yield(name, arguments) {
					return
				}
			}
		}
	}
}

// alone are the commands that ask no server, and why.
func alone() map[string]string {
	const process, offline, servers = "it is a process of the installation", "it needs no server at all",
		"it works on the servers themselves: it looks at them, makes them ready, or fills them"
	return map[string]string{
		"run": process, "console": process, "gate": process, "dev": process,
		"ready":      "it asks the process beside it whether that is ready",
		"rules lint": offline, "rules test": offline, "rules explain": offline, "rules schema": offline,
		"backtest":    offline,
		"config show": offline, "version": offline, "dashboards generate": offline, "completion bash": offline,
		"completion fish": offline, "completion powershell": offline, "completion zsh": offline,
		"migrate": servers, "doctor": servers, "ingest": servers, "loadgen": servers, "loadgen verify": servers,
		"dashboards push": "it asks a Grafana",
		"rules export": "it writes documents as they were applied, comments and tests included, which the " +
			"API does not tell",
		"gate trust":     "it says by the credentials of the store what gates are told before they ask anybody",
		"console invite": "it lets in who has no token yet, by the credentials of the store",
		"console sessions": "it shows and ends sessions where nobody can sign in any more, by the credentials " +
			"of the store",
		"console sessions end": "the same",
	}
}

// TestEveryCommandCanAskAServer: a command asks a server that is named, or it stands in alone why it does not, and says
// so itself where it would work on stores.
func TestEveryCommandCanAskAServer(t *testing.T) {
	t.Parallel()
	asks, works := askers(), alone()
	eachCommand((&app{}).root(), func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "weir ")
		_, can := asks[name]
		why, cannot := works[name]
		delete(asks, name)
		delete(works, name)
		switch family := c.HasSubCommands() && !cannot; {
		case family || name == "weir":
		case can == cannot:
			t.Errorf("weir %s: it can ask a server: %t; the reason why not: %q", name, can, why)
		}
	})
	for name := range asks {
		t.Errorf("weir %s is no command", name)
	}
	for name := range works {
		t.Errorf("weir %s is no command", name)
	}
}

// answering runs a command against a server that answers with whatever answer gives.
func answering(t *testing.T, name, arguments, format string, answer http.HandlerFunc) (o outcome, panicked string) {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	document := writeFile(t, "flood.yaml",
		"id: flood\nowner: tests\nmatch: {path: /x}\nkey: [ip]\nlimit: 9\nwindow: 1m\n")
	args := slices.Concat(strings.Fields(name), strings.Fields(strings.ReplaceAll(arguments, "FILE", document)),
		[]string{"--output", format, "--server", server.URL, "--token-file", writeFile(t, "token", "x")})
	defer func() {
		if p := recover(); p != nil {
			panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return outcome{code, out.String(), errs.String()}, ""
}

// TestAnswersOfNoWeir: whatever a server answers that is none of weir's, each command says that it is no answer, and
// never that something is, or was done.
func TestAnswersOfNoWeir(t *testing.T) {
	t.Parallel()
	for _, odd := range []struct{ name, kind, body string }{
		{"an empty object", "application/json", `{}`}, {"a list", "application/json", `[]`},
		{"null", "application/json", `null`}, {"a plan of null", "application/json", `{"plan":null}`},
		{"nothing", "application/json", ``}, {"a text", "application/json", `"ok"`},
		{"a list of nothing", "application/json", `[null, {}]`},
		{"another program's", "application/json", `{"status": "ok", "data": {"items": [1]}}`},
		{"a list of what it is not", "application/json", `{"items": [{}]}`},
		{"a page", "text/html; charset=utf-8", `<!doctype html><title>Sign in</title>`},
		{"a page that says it is JSON", "application/json", `<!doctype html><title>Sign in</title>`},
		{"a problem without a word", "application/problem+json", `{}`},
		{"a problem of null", "application/problem+json", `null`},
	} {
		t.Run(odd.name, func(t *testing.T) {
			t.Parallel()
			for name, arguments := range eachAsker() {
				for _, format := range []string{"table", "json"} {
					o, panicked := answering(t, name, arguments, format, func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", odd.kind)
						_, _ = io.WriteString(w, odd.body)
					})
					if panicked != "" || o.code == exitOK || !strings.Contains(o.stderr, "server http://127.0.0.1:") {
						t.Errorf("weir %s %s as %s: exit code %d, %s%s%s", name, arguments, format, o.code, o.stdout,
							o.stderr, panicked)
					}
				}
			}
		})
	}
}

// skeleton makes values of the schemas of an OpenAPI document.
type skeleton struct {
	schemas map[string]any
	full    bool // all members, and one item of each list; else those that are required, and empty lists
	null    bool // what may be null is
}

// of is a value of a schema, at most so deep.
func (s skeleton) of(schema map[string]any, deep int) any {
	if ref, ok := schema["$ref"].(string); ok {
		return s.of(s.schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any), deep)
	}
	if either, ok := schema["oneOf"].([]any); ok {
		if s.null || deep == 0 {
			return nil
		}
		return s.of(either[0].(map[string]any), deep)
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok {
		if kind = kinds[0].(string); s.null {
			return nil
		}
	}
	if allowed, ok := schema["enum"].([]any); ok {
		return allowed[0]
	}
	switch kind {
	case "object":
		return s.object(schema, deep)
	case "array":
		if !s.full || deep == 0 {
			return []any{}
		}
		return []any{s.of(schema["items"].(map[string]any), deep-1)}
	case "boolean":
		return true
	case "integer", "number":
		return 1
	case "string":
		switch {
		case schema["format"] == "date-time":
			return "2026-11-21T14:30:00Z"
		case strings.HasPrefix(fmt.Sprint(schema["description"]), "a canonical subject"):
			return "ip=192.0.2.1%2F32"
		}
		return "x"
	}
	return nil
}

func (s skeleton) object(schema map[string]any, deep int) any {
	if strings.HasPrefix(fmt.Sprint(schema["description"]), "a version of a rule") {
		return rulestore.StoredVersion{Version: rules.Version{Document: historytest.Document("flood"), Number: 1}}
	}
	properties, _ := schema["properties"].(map[string]any)
	names := slices.Collect(maps.Keys(properties))
	if !s.full {
		names = nil
		required, _ := schema["required"].([]any)
		for _, name := range required {
			names = append(names, name.(string))
		}
	}
	value := map[string]any{}
	for _, name := range names {
		switch name {
		case "next": // there would be no end of pages
		case "running": // nor of waiting
			value[name] = false
		default:
			if deep > 0 {
				value[name] = s.of(properties[name].(map[string]any), deep-1)
			}
		}
	}
	return value
}

// described is a server that answers each route of the API with a value of the schema that describes it.
func described(t *testing.T, s skeleton) (answers map[access.Route][]byte) {
	t.Helper()
	a, _ := served(t)
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema map[string]any `json:"schema"`
				} `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(a.Document(), &document); err != nil {
		t.Fatal(err)
	}
	s.schemas, answers = document.Components.Schemas, map[access.Route][]byte{}
	for _, route := range a.Routes() {
		operation := document.Paths[route.Pattern][strings.ToLower(route.Method)]
		schema := operation.Responses["200"].Content["application/json"].Schema
		if schema == nil { // of what is no JSON
			continue
		}
		body, err := json.Marshal(s.of(schema, 12))
		if err != nil {
			t.Fatal(route.Pattern, err)
		}
		answers[route] = body
		if s.full && !s.null && route.Pattern == "/api/v1/rules/{rule}" { // whose texts are of many kinds
			answers[route] = storedRule(t)
		}
	}
	return answers
}

// storedRule is a rule in shadow as the API tells it.
func storedRule(t *testing.T) []byte {
	t.Helper()
	v := rulestore.StoredVersion{Version: rules.Version{Document: historytest.Document("flood"), Number: 1}}
	rule := api.Rule{Rule: rulestore.Rule{Newest: v, Mode: rules.ModeShadow, Versions: []rulestore.StoredVersion{v}}}
	body, err := json.Marshal(api.RuleAnswer{Rule: rule, Revision: "r7"})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestAnswersWithoutWhatMayBeMissing: a server may leave out what its description does not require, and null what may
// be null: no command falls over that, whatever it says.
func TestAnswersWithoutWhatMayBeMissing(t *testing.T) {
	t.Parallel()
	for _, s := range []skeleton{{}, {null: true}, {full: true}, {full: true, null: true}} {
		mux := http.NewServeMux()
		for route, body := range described(t, s) {
			mux.HandleFunc(route.Method+" "+route.Pattern, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			})
		}
		content := 0
		for name, arguments := range eachAsker() {
			for _, format := range []string{"table", "json"} {
				o, panicked := answering(t, name, arguments, format, mux.ServeHTTP)
				if panicked != "" {
					t.Errorf("weir %s %s as %s, full %t, null %t: %s", name, arguments, format, s.full, s.null,
						panicked)
				}
				if o.code == exitOK {
					content++
				}
			}
		}
		if content < 30 {
			t.Errorf("full %t, null %t: only %d commands could do anything with the answers", s.full, s.null, content)
		}
	}
}
