package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReference parses every YAML block of docs/rules.md, holds the shown messages to the real ones, and looks for each
// field and each allowed range.
func TestReference(t *testing.T) {
	src, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(src)
	var good, wrong, warned int
	blocks := regexp.MustCompile("(?ms)^```(yaml[^\n]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?").FindAllStringSubmatch(text, -1)
	for _, block := range blocks {
		warnings, env := "", testEnvironment()
		env.Warn = func(p Problem) { warnings += "warning: " + p.Error() + "\n" }
		docs, err := parse("rule.yaml", []byte(block[2]), env)
		switch block[1] {
		case "yaml":
			good++
			if err != nil || len(docs) == 0 {
				t.Errorf("%s\ngot %d rules, %v", block[2], len(docs), err)
			}
			if shown := block[3]; shown != "" {
				warned++
				if warnings != shown {
					t.Errorf("%s\nshown\n%s\ngot\n%s", block[2], shown, warnings)
				}
			}
		case "yaml wrong":
			wrong++
			if err == nil || err.Error()+"\n" != block[3] {
				t.Errorf("%s\nshown\n%s\ngot\n%v", block[2], block[3], err)
			}
		default:
			t.Errorf("a block of kind %q is not tested", block[1])
		}
	}
	if good < 4 || wrong < 1 || warned < 1 || strings.Count(text, "```yaml") != good+wrong {
		t.Errorf("got %d good and %d wrong blocks of %d", good, wrong, strings.Count(text, "```yaml"))
	}
	for _, s := range []section{ruleSection(), watchSection(), countSection(), candidateSection(), blockSection(), promoteSection(), canarySection()} {
		for _, name := range s.names() {
			if !strings.Contains(text, "| `"+s.prefix+name+"` |") {
				t.Errorf("%s%s is not in the table of fields", s.prefix, name)
			}
		}
		for _, name := range s.later {
			if strings.Contains(text, "`"+s.prefix+name+"`") || strings.Contains(text, "\n"+name+":") {
				t.Errorf("%s%s is not supported, and is in the reference", s.prefix, name)
			}
		}
	}
}

// TestReferenceCounts holds the table of legal pairs to Legal, and the table of algorithms to Algorithms.
func TestReferenceCounts(t *testing.T) {
	src, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| algorithm | `events` | `sum` | `distinct` |\n|---|---|---|---|\n")
	for _, a := range Algorithms() {
		want.WriteString("| `" + string(a) + "` |")
		for _, kind := range []CountKind{CountEvents, CountSum, CountDistinct} {
			want.WriteString(map[bool]string{true: " yes |", false: " no |"}[Legal(a, kind)])
		}
		want.WriteString("\n")
		if !strings.Contains(string(src), "\n| `"+string(a)+"` | ") {
			t.Errorf("%s is not in the table of algorithms", a)
		}
	}
	if !strings.Contains(string(src), "\n"+want.String()+"\n") {
		t.Errorf("docs/rules.md does not have the table of legal pairs as it is:\n%s", want.String())
	}
	if len(CountKinds()) != 3 || len(Algorithms()) != 7 {
		t.Errorf("got %d kinds and %d algorithms: the table needs another column or row", len(CountKinds()), len(Algorithms()))
	}
}

// TestReferencePatterns reads the table of patterns in docs/rules.md and asks Matches.
func TestReferencePatterns(t *testing.T) {
	src, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(src), "| pattern | matches | does not match |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 5 {
		t.Fatalf("got %d rows", len(rows))
	}
	code := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 3 {
			t.Fatalf("row %q", row)
		}
		m := Match{Path: code.FindStringSubmatch(cells[0])[1]}
		for i, want := range []bool{true, false} {
			for _, path := range code.FindAllStringSubmatch(cells[i+1], -1) {
				if got := m.Reaches(&Target{Method: "GET", Path: path[1]}); got != want {
					t.Errorf("%s on %s: got %v, want %v", m.Path, path[1], got, want)
				}
			}
		}
	}
}

// TestReferenceSpellings holds the table of spellings to what reaches a rule.
func TestReferenceSpellings(t *testing.T) {
	src, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(src), "| spelling | read so by |\n|---|---|\n")
	table, after, _ := strings.Cut(table, "\n\n")
	m := Match{Path: "/v1/guest-tokens"}
	spellings := regexp.MustCompile("`([^`]+)`")
	rows := strings.Split(table, "\n")
	for _, row := range rows {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		found := spellings.FindAllStringSubmatch(cell, -1)
		if len(found) == 0 {
			t.Errorf("row %q", row)
		}
		for _, path := range found {
			if !m.Reaches(&Target{Method: "GET", Path: path[1]}) {
				t.Errorf("%s does not reach %s", path[1], m.Path)
			}
		}
	}
	if len(rows) < 10 {
		t.Errorf("%d rows", len(rows))
	}
	if other := "/v1/%2567uest-tokens"; !strings.Contains(after, other) || m.Reaches(&Target{Method: "GET", Path: other}) {
		t.Errorf("%s is another path", other)
	}
}

func TestExamples(t *testing.T) {
	docs, err := LoadDir(os.DirFS("../examples/rules"), "examples/rules", testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]*Document{}
	for i := range docs {
		byID[docs[i].ID] = &docs[i]
	}
	story := storyRule()
	if got := byID["guest-token-flood"]; got == nil || !got.Equal(&story) {
		t.Errorf("guest-token-flood: got %+v, want %+v", got, story)
	}
	if got := byID["login-burst"]; got == nil || describeKey(got.Key) != "[{field: ip, v4: 32, v6: 64}]" {
		t.Errorf("login-burst: got %+v", got)
	}
}
