package doctest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/story"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// readBlock reads a block by its kind. A kind that is not here is an error: whoever shows something new says here how it
// is held to its word.
func readBlock(b *block) error {
	switch b.kind {
	case "", "text":
		if strings.HasPrefix(b.text, "$ ") || strings.Contains(b.text, "\n$ ") {
			return errors.New("commands stand in a block of kind console or sh, so that they are run")
		}
		return nil
	case "yaml":
		return readYAML(b)
	case "json":
		return readJSON(b.text)
	case "combined", "ecs":
		return readLog(b)
	case "proto":
		return readProto(b.text)
	case "go":
		return readGo(b.text)
	case "http":
		return readHTTP(b.text)
	case "nginx":
		return readNginx(b.text)
	case "caddyfile":
		return readCaddyfile(b.text)
	case "haproxy":
		return readHAProxy(b.text)
	case "sql":
		if b.doc != "docs/history.md" && b.doc != "docs/security.md" {
			return errors.New("only the SQL of docs/history.md is run, by the tests of package history, and that of docs/security.md, by internal/secured")
		}
		return nil
	}
	return fmt.Errorf("a block of kind %q: say in internal/doctest how it is tested", b.kind)
}

func environment() rules.Environment {
	conditions, err := condition.New()
	if err != nil {
		panic(err)
	}
	return rules.Environment{Identity: traffic.DefaultIdentityMap(), Conditions: conditions}
}

// readYAML finds out by its top-level members what a document is, and reads it as such.
func readYAML(b *block) error {
	if b.more == "wrong" { // its messages are compared in package rules
		if _, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(b.text)}}, environment()); err == nil {
			return errors.New("nothing is wrong with this rule")
		}
		return nil
	}
	var top yaml.Node
	if err := yaml.Unmarshal([]byte(b.text), &top); err != nil {
		return err
	}
	if top.Kind == 0 {
		return errors.New("an empty document")
	}
	members := map[string]bool{}
	if root := top.Content[0]; root.Kind == yaml.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			members[root.Content[i].Value] = true
		}
	}
	for _, kind := range yamlKinds() {
		if kind.is(members) {
			return kind.read(b)
		}
	}
	return fmt.Errorf("a YAML document with members %v: say in internal/doctest what it is", members)
}

type yamlKind struct {
	is   func(members map[string]bool) bool
	read func(b *block) error
}

func yamlKinds() []yamlKind {
	has := func(all ...string) func(map[string]bool) bool {
		return func(members map[string]bool) bool {
			return !slices.ContainsFunc(all, func(m string) bool { return !members[m] })
		}
	}
	only := func(allowed ...string) func(map[string]bool) bool {
		return func(members map[string]bool) bool {
			for m := range members {
				if !slices.Contains(allowed, m) {
					return false
				}
			}
			return len(members) > 0
		}
	}
	shape := func(*block) error { return nil } // that it is YAML, with members that its program knows, has been seen
	return []yamlKind{
		{has("id", "owner", "match"), readRule},
		{has("kind", "id", "owner", "entries"), readAllowList},
		{has("story", "timeline"), readStory},
		{has("services"), readCompose},
		{has("apiVersion", "kind", "metadata"), shape},
		{only("namespace", "kafka", "redis", "postgres", "identity", "events", "known_good", "never_block", "http", "gate", "log", "console"), readConfiguration},
		{only("image", "config", "secretFiles", "sizing", "stages"), readValues},
		{only("containers"), shape}, // of a pod: internal/kube compares it
		{only("http", "accessLog", "entryPoints", "providers", "log", "experimental"), shape},                                  // Traefik
		{only("static_resources", "admin", "use_remote_address", "xff_num_trusted_hops", "access_log", "http_filters"), shape}, // Envoy
		{only("global", "scrape_configs", "rule_files"), shape},                                                                // Prometheus
		{only("processors"), shape}, // Filebeat
	}
}

// readStory plays a story, whose rules all stand in it, through the windows.
func readStory(b *block) error {
	s, err := story.Parse("story.yaml", []byte(b.text), func(string) ([]byte, error) { return nil, errors.New("rules stand in the story") })
	if err != nil {
		return err
	}
	got, err := story.Fold(s)
	if err != nil {
		return err
	}
	if diff := s.Diff(got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

func readRule(b *block) error {
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule.yaml", Src: []byte(b.text)}}, environment())
	if err == nil && len(docs) == 0 {
		err = errors.New("no rule")
	}
	return err
}

func readAllowList(b *block) error {
	set, err := rules.ParseSet([]rules.File{{Name: "allow.yaml", Src: []byte(b.text)}}, environment())
	if err == nil && len(set.AllowLists) == 0 {
		err = errors.New("no allow list")
	}
	return err
}

// readConfiguration lets weir itself read it. Traefik's files also begin with http or log, so one of those that weir
// refuses is left to Traefik's members.
func readConfiguration(b *block) error {
	dir, err := os.MkdirTemp("", "weir-doctest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		return err
	}
	show := exec.Command(testbed.Weir(), "config", "show", "--config", file)
	show.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := show.CombinedOutput()
	if err != nil && strings.Contains(b.text, "middlewares:") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("weir does not take this configuration: %s", out)
	}
	return nil
}

// readValues lets weir itself read the configuration in values of the Helm chart.
func readValues(b *block) error {
	var values struct{ Config map[string]any }
	if err := yaml.Unmarshal([]byte(b.text), &values); err != nil {
		return err
	}
	// The chart mounts the password, of which there is no file here.
	if kafka, ok := values.Config["kafka"].(map[string]any); ok {
		delete(kafka, "sasl")
	}
	text, err := yaml.Marshal(values.Config)
	if err != nil {
		return err
	}
	return readConfiguration(&block{doc: b.doc, line: b.line, kind: b.kind, text: string(text)})
}

func readCompose(b *block) error {
	var file struct {
		Services map[string]struct {
			Image string
			Build any
		}
	}
	if err := yaml.Unmarshal([]byte(b.text), &file); err != nil {
		return err
	}
	for name, service := range file.Services {
		if service.Image == "" && service.Build == nil {
			return fmt.Errorf("service %s has neither image nor build", name)
		}
	}
	return nil
}

// readJSON takes one document, or one a line.
func readJSON(text string) error {
	if json.Valid([]byte(text)) {
		return nil
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			return fmt.Errorf("no JSON: %s", line)
		}
	}
	return nil
}

func readLog(b *block) error {
	decoder, err := format.NewDecoder(b.kind, nil, 0)
	if err != nil {
		return err
	}
	for line := range strings.Lines(b.text) {
		var r traffic.Request
		if err := decoder.Decode([]byte(strings.TrimSuffix(line, "\n")), &r); err != nil {
			return err
		}
	}
	return nil
}

// readProto holds a block to the one file of messages that there is. traffic's own tests hold that to Google's library.
func readProto(text string) error {
	src, err := os.ReadFile(filepath.Join(repository, "traffic/format/event.proto"))
	if err == nil && !strings.Contains(string(src), text) {
		err = errors.New("not a part of traffic/format/event.proto")
	}
	return err
}

// readGo takes a file, declarations, or statements; … stands for what is left out.
func readGo(text string) error {
	text = strings.ReplaceAll(text, "…", "")
	var problems []error
	for _, whole := range []string{text, "package p\n" + text, "package p\nfunc f() {\n" + text + "\n}"} {
		_, err := parser.ParseFile(token.NewFileSet(), "example.go", whole, parser.AllErrors)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func readHTTP(text string) error {
	head, body, _ := strings.Cut(text, "\n\n")
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n")), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if strings.Contains(answer.Header.Get("Content-Type"), "json") && body != "" {
		return readJSON(body)
	}
	return nil
}

// readNginx reads nginx's grammar: simple directives end with ;, blocks stand in braces.
func readNginx(text string) error {
	depth, words := 0, 0
	for rest := text; rest != ""; {
		c := rest[0]
		end := 1
		switch {
		case c == '#':
			end = max(1, strings.IndexByte(rest+"\n", '\n'))
		case c == '\'' || c == '"':
			at := strings.IndexByte(rest[1:], c)
			if at < 0 {
				return errors.New("a quote that is never closed")
			}
			end, words = at+2, words+1
		case c == ';', c == '{':
			if words == 0 {
				return fmt.Errorf("%q without a directive before it", c)
			}
			words = 0
			if c == '{' {
				depth++
			}
		case c == '}':
			if depth--; words > 0 || depth < 0 {
				return errors.New("} after a directive without ;, or one too many")
			}
		case c != ' ' && c != '\t' && c != '\n':
			if end = strings.IndexAny(rest+"\n", " \t\n;{}'\""); strings.HasPrefix(rest, "${") {
				end = strings.IndexByte(rest+"}", '}') + 1
			}
			words++
		}
		rest = rest[min(end, len(rest)):]
	}
	if depth != 0 || words != 0 {
		return fmt.Errorf("%d braces left open, %d words without ;", depth, words)
	}
	return nil
}

// readCaddyfile asks caddy itself where it is installed, and counts braces everywhere.
func readCaddyfile(text string) error {
	if strings.Count(text, "{") != strings.Count(text, "}") {
		return errors.New("braces do not match")
	}
	caddy, err := exec.LookPath("caddy")
	if err != nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "weir-doctest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	adapt := exec.Command(caddy, "adapt", "--config", file, "--adapter", "caddyfile")
	if out, err := adapt.CombinedOutput(); err != nil {
		return fmt.Errorf("caddy does not take it: %s", out)
	}
	return nil
}

// readHAProxy looks at the sections of HAProxy's file: every indented line belongs to one that HAProxy has.
func readHAProxy(text string) error {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") || line[0] == ' ' || line[0] == '\t' {
			continue
		}
		if !slices.Contains([]string{"global", "defaults", "frontend", "backend", "listen"}, words[0]) {
			return fmt.Errorf("no section of HAProxy: %s", words[0])
		}
	}
	return nil
}

// Each kind takes what it should and refuses what it should not.
func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		kind, more, text string
		good             bool
	}{
		{"", "", "a ──▶ b", true},
		{"", "", "$ weir run", false},
		{"text", "", "CREATE ROLE x;", true},
		{"python", "", "print()", false},
		{"yaml", "", "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: 5m\n", true},
		{"yaml", "", "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: 5\n", false},
		{"yaml", "wrong", "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: 5\n", true},
		{"yaml", "wrong", "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: 2\nwindow: 5m\n", false},
		{"yaml", "", "kafka: {brokers: ['a:9092']}\n", true},
		{"yaml", "", "kafka: {broker: ['a:9092']}\n", false},
		{"yaml", "", "http: {listen: nowhere}\n", false},
		{"yaml", "", "services: {a: {image: x}}\n", true},
		{"yaml", "", "services: {a: {ports: []}}\n", false},
		{"yaml", "", "colour: red\n", false},
		{"yaml", "", "a: [\n", false},
		{"json", "", `{"a": 1}`, true},
		{"json", "", "{\"a\": 1}\n{\"a\": 2}\n", true},
		{"json", "", `{"a": 1,}`, false},
		{"combined", "", `203.0.113.9 - - [21/Nov/2026:05:06:07 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, true},
		{"combined", "", `203.0.113.9 GET /`, false},
		{"proto", "", "message Verdict {\n  bytes rule = 1;\n  bytes block = 2;\n}\n", true},
		{"proto", "", "message Verdict {\n  bytes rule = 2;\n}\n", false},
		{"go", "", "x := f() // …\n", true},
		{"go", "", "x := f(\n", false},
		{"http", "", "HTTP/1.1 429 Too Many Requests\nContent-Type: application/problem+json\n\n{}\n", true},
		{"http", "", "429 Too Many Requests\n", false},
		{"nginx", "", "location / { set $a \"x;{\"; # }\n proxy_pass http://a; }", true},
		{"nginx", "", "location / { proxy_pass http://a }", false},
		{"nginx", "", "location / { ", false},
		{"caddyfile", "", "localhost {\n\trespond 200\n}\n", true},
		{"caddyfile", "", "localhost {\n", false},
		{"haproxy", "", "frontend f\n  bind :80\n", true},
		{"haproxy", "", "front f\n  bind :80\n", false},
		{"sql", "", "SELECT 1;", false},
	} {
		if err := readBlock(&block{doc: "d.md", kind: tc.kind, more: tc.more, text: tc.text}); (err == nil) != tc.good {
			t.Errorf("%s %s %q: %v", tc.kind, tc.more, tc.text, err)
		}
	}
}
